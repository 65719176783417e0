"""The explorer: trainings under schedules of faults, and a fault in the code that it finds."""

from __future__ import annotations

import pytest

from tests.protocol import explorer, planted
from tests.protocol.explorer import Schedule, Setting

SETTINGS = {"async": Setting(), "two ps": Setting(num_ps=2),
            "sync": Setting(num_ps=2, num_workers=3, is_sync=True)}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_training_without_a_fault_ends_in_the_same_way_every_time(setting):
    """And with operations and latencies in any order, in some way."""
    runs = [explorer.run(Schedule(setting)) for _ in range(2)]
    assert [(run.failure, run.points) for run in runs] == [("", runs[0].points)] * 2
    for seed in range(1, 4):
        assert explorer.run(Schedule(setting, seed=seed, is_fine=True)).failure == ""


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_no_walk_breaks_an_invariant(setting):
    """`python -m tests.protocol walk` takes more of them."""
    num_points = explorer.run(Schedule(setting)).points
    for seed in range(1, 14):
        schedule = explorer.walk(setting, seed, num_points)
        assert explorer.run(schedule).failure == "", schedule


def test_a_planted_fault_is_found_and_its_schedule_shrunk():
    """The chief that comes back overwrites what the others have trained."""
    fault = planted.PLANTED[0]
    found = planted.find(fault)
    assert found.schedule is not None
    shortest = planted.shrunk(fault, found)
    [only] = shortest.faults
    assert only.kind in ("kill", "move", "stop")
    with planted.planted(fault):
        assert explorer.run(shortest).failure
    assert explorer.run(shortest).failure == ""


@pytest.mark.parametrize("name", [
    "a worker does not report that it has finished", "the gate lets an update pass with one gradient less",
    "the gate waits for one gradient more", "the chief announces the end before it waits and saves"])
def test_a_fault_that_an_undisturbed_training_shows(name):
    """`python -m tests.protocol planted` finds those that need a schedule, too."""
    [fault] = [fault for fault in planted.PLANTED if fault.name == name]
    assert planted.find(fault).num_runs == 1


@pytest.mark.parametrize("name", [
    "a worker takes a dropped gradient for applied", "a flush leaves the gradients",
    "the staleness bound lets a worker take one step more", "the connection does not take the other route",
    "a worker that has finished is expected again after the loss of a ps"])
def test_a_fault_that_a_walk_shows(name):
    """An update that is lost, one that counts twice, one too early, and waits in vain: each shows after a fault."""
    [fault] = [fault for fault in planted.PLANTED if fault.name == name]
    assert planted.find(fault).schedule is not None


def test_some_schedules_with_one_fault_in_a_small_cluster():
    """`python -m tests.protocol every` runs all of them."""
    schedules = list(explorer.every_schedule(Setting(num_workers=1), step=60))
    assert {schedule.faults[0].kind for schedule in schedules} == set(explorer.KINDS)
    for schedule in schedules:
        assert explorer.run(schedule).failure == "", schedule


def test_each_planted_fault_has_its_place():
    """So the table fits the code of today."""
    for fault in planted.PLANTED:
        with planted.planted(fault):
            pass
