"""The range queue, the requests of clients, and an evaluator, on the twin; test_explorer.py has the rest."""

from __future__ import annotations

import pytest

from tests.protocol import explorer
from tests.protocol.explorer import PART_SETTINGS, Fault, Schedule


@pytest.mark.parametrize("name", PART_SETTINGS)
def test_without_a_fault_all_promises_are_kept(name):
    """In a fixed order, and in any: ranges, answers, evaluations."""
    for schedule in (Schedule(PART_SETTINGS[name]), Schedule(PART_SETTINGS[name], seed=1, is_fine=True)):
        assert explorer.run(schedule).failure == "", schedule


@pytest.mark.parametrize("name", PART_SETTINGS)
def test_no_walk_breaks_an_invariant(name):
    """`python -m tests.protocol walk --setting=ranges` takes more of them."""
    setting = PART_SETTINGS[name]
    num_points = explorer.run(Schedule(setting)).points
    for seed in range(1, 6):
        schedule = explorer.walk(setting, seed, num_points)
        assert explorer.run(schedule).failure == "", schedule


def test_a_client_that_asks_after_the_last_save_learns_of_the_end():
    """It does not wait for an answer that nobody gives: the chief has looked for requests for the last time."""
    answers = explorer.run(Schedule(PART_SETTINGS["client"])).training.answers
    assert [answer.verb for answer in answers] == ["save", "status", "save", "save"]
    assert answers[0].value.startswith("saved ") and answers[1].value["state"] == "running"
    late = answers[2]
    assert "finished at step" in late.value and late.ended_secs - late.begun_secs < 5.0


@pytest.mark.parametrize(("what", "schedule"), [
    ("a worker that pauses is stopped while ps 0 is gone", Schedule(PART_SETTINGS["follow"], seed=627, faults=(
        Fault(427, "kill", 3, 15), Fault(437, "stop", 2, 0.5)))),
    ("the chief is cut off before its first look at the data", Schedule(PART_SETTINGS["follow"], faults=(
        Fault(97, "cut", 7, 6),))),
    ("a chief that pauses does not hear of its last update", Schedule(PART_SETTINGS["follow_sync"], seed=1022, faults=(
        Fault(2956, "lose", 1, 0),))),
    ("a process that was replaced gives ranges back", Schedule(PART_SETTINGS["ranges_sync"], faults=(
        Fault(958, "replace", 2, 25),))),
])
def test_what_the_explorer_has_found_is_mended(what, schedule):
    """Each schedule broke an invariant once."""
    assert explorer.run(schedule).failure == ""
