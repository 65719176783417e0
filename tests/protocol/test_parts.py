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


def test_a_worker_that_pauses_and_is_stopped_while_ps_0_is_gone_ends_as_stopped():
    """The explorer has found that it gave up."""
    faults = (Fault(427, "kill", 3, 15), Fault(437, "stop", 2, 0.5))
    assert explorer.run(Schedule(PART_SETTINGS["follow"], seed=627, faults=faults)).failure == ""
