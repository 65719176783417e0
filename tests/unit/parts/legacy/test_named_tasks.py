"""The other workers that a session needs."""

from __future__ import annotations

import types

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.errors import BlackboardError
from ps_train.parts.legacy.classic import membership, named_tasks
from ps_train.parts.legacy.classic.script_cluster import ScriptCluster
from tests.errors import raises

ADDRESSES = {"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1", 2: "d:1"}}


@pytest.mark.parametrize(("filters", "names"), [
    (["/job:ps/task:0", "/job:worker/task:0"], []),
    (["/job:ps", "/job:worker/task:0", "/job:worker/task:2"], ["worker:2"]),
    (["/job:worker"], ["worker:1", "worker:2"]),
    (["/job:chief"], []),
])
def test_the_others_are_those_that_the_filters_name(filters, names):
    """Without this task, and without the ps, for which each session waits anyway."""
    assert [task.name for task in named_tasks.others_in(filters, Cluster("worker", 0, ADDRESSES))] == names


def test_a_chief_that_is_listed_again_does_not_wait_for_itself():
    """Both of its names may be in a graph."""
    cluster = ScriptCluster("chief", 0, {**ADDRESSES, "chief": {0: "b:1"}})
    assert named_tasks.others_in(["/job:chief/task:0", "/job:worker/task:0"], cluster) == []


@pytest.fixture
def watch(monkeypatch):
    """A watch over worker 1, what answers, and a function that lets seconds pass and then checks once a second."""
    now, there = [100.0], {"c:1"}
    monkeypatch.setattr(named_tasks.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(named_tasks.reachability, "accepts", there.__contains__)
    monkeypatch.setattr(named_tasks, "_running", {})
    found = named_tasks.StepWatch(10.0, 300.0)
    found.tasks = named_tasks.others_in(["/job:worker/task:1"], Cluster("worker", 0, ADDRESSES))

    def check_for(secs):
        for _ in range(secs):
            now[0] += 1.0
            found.check()

    return there, check_for


def test_a_worker_that_is_lost_in_the_middle_of_a_step_is_named(watch):
    """Issue: the step waited for it for ever."""
    there, check_for = watch
    with named_tasks.step():
        check_for(400)  # a long step is no fault
        there.clear()
        check_for(200)
        there.add("c:1")
        check_for(1)
        there.clear()
        check_for(300)
        with raises("timed_out") as caught:
            check_for(2)
    assert caught.value.exit_code == 138 and "worker:1 c:1" in str(caught.value)


def test_a_lost_worker_that_no_step_needs_ends_nothing(watch):
    """A graph may name the device of each worker, and use its own only."""
    there, check_for = watch
    there.clear()
    for _ in range(3):
        with named_tasks.step():
            check_for(200)
    check_for(1000)


def test_a_worker_that_is_missing_at_an_average_is_named_once(monkeypatch, caplog):
    """In a step that takes long, until another one is missing; a ps that does not answer is another's concern."""
    now, alive = [100.0], {0, 1}
    monkeypatch.setattr(named_tasks.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(named_tasks, "_running", {})

    def snapshot():
        if not alive:
            raise BlackboardError("no answer")
        return types.SimpleNamespace(is_alive=alive.__contains__)

    member = types.SimpleNamespace(cluster=Cluster("worker", 0, ADDRESSES), update_services=[], snapshot=snapshot,
                                   timeouts=types.SimpleNamespace(heartbeat_secs=10.0))
    monkeypatch.setattr(membership, "_current", [member])
    for _ in range(2):
        named_tasks.warn_of_missing("Average")
    service, = member.update_services

    def told_after(secs):
        now[0] += secs
        service.check()
        found = [record.message for record in caplog.records]
        caplog.clear()
        return found

    assert not told_after(20.0)
    with named_tasks.step():
        assert not told_after(9.0)
        text, = told_after(2.0)
        assert text.startswith("Average waits for all workers, and has nothing from worker:2")
        assert not told_after(1.0)
        alive.discard(1)
        assert "worker:1, worker:2" in told_after(1.0)[0]
        alive.clear()
        assert not told_after(1.0)
    monkeypatch.setattr(membership, "_current", [])
    named_tasks.warn_of_missing("Average")  # a script without a cluster
