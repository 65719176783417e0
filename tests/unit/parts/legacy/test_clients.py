"""When a server of a cluster without workers ends."""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest

from ps_train.cluster.spec import Task
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError
from ps_train.parts.legacy.classic import clients
from ps_train.parts.legacy.classic.membership import SERVES_ONLY
from ps_train.runtime.waits import Timeouts
from tests.errors import raises

A, B, C = (Task("local", index, f"host{index}:1") for index in range(3))


@pytest.fixture
def world(monkeypatch):
    """The tasks that are there, and those that have set their mark."""
    there, joined = set(), set()
    monkeypatch.setattr(clients.reachability, "accepts", lambda address: address in {task.address for task in there})
    monkeypatch.setattr(clients, "has_joined", joined.__contains__)
    monkeypatch.setattr(clients, "_MARK_POLL_SECS", 0.0)
    return there, joined


def test_servers_that_have_joined_are_not_waited_for(world):
    """Only the client is; a server that was there before its mark was no client."""
    there, joined = world
    watch = clients._Watch([A, B], 0.0)
    assert not watch.have_clients_ended()
    there.add(B)
    assert not watch.have_clients_ended() and watch.came == {B}
    joined.add(B)
    assert not watch.have_clients_ended() and watch.came == set()
    there.add(A)
    assert not watch.have_clients_ended() and watch.came == {A}
    there.remove(A)
    assert watch.have_clients_ended()


def test_a_server_that_ended_was_no_client_and_another_may_come_in_its_place(world):
    """What comes back at its address counts anew."""
    there, joined = world
    watch = clients._Watch([A, B], 0.0)
    there.add(B)
    joined.add(B)
    assert not watch.have_clients_ended()
    there.remove(B)
    joined.remove(B)
    assert not watch.have_clients_ended()
    there.add(B)
    assert not watch.have_clients_ended()
    there.remove(B)
    assert watch.have_clients_ended()


@pytest.fixture
def passes(monkeypatch):
    """A function that lets seconds pass."""
    now = [100.0]
    monkeypatch.setattr(clients.time, "monotonic", lambda: now[0])
    return lambda secs: now.append(now.pop() + secs)


def test_a_connection_that_fails_for_a_moment_is_no_end_of_a_client(world, passes):
    """Issue: the server ended with 0 when one connection failed."""
    there, _ = world
    watch = clients._Watch([A], 10.0)
    for _ in range(2):
        there.add(A)
        assert not watch.have_clients_ended()
        there.clear()
        passes(60.0)
        assert not watch.have_clients_ended()
        passes(9.0)
        assert not watch.have_clients_ended()
    passes(2.0)
    assert watch.have_clients_ended()


def served(**values):
    """Returns a watch over A and B, and what ps 0 knows of three workers: 0 trains and 2 serves, 1 has ended."""
    zeros = np.zeros([3])
    snapshot = Snapshot(state=State.RUNNING, now_secs=1.0, claims=np.array([7, 0, 7]), heartbeats=zeros, steps=zeros,
                        local_steps=np.array([0, 0, SERVES_ONLY]), finished=np.array([0, 1, 0]))
    member = types.SimpleNamespace(snapshot=lambda: snapshot._replace(**values))
    return clients.ServedWatch([A, B], member, Timeouts(start_secs=300.0, heartbeat_secs=10.0))


@pytest.mark.parametrize(("finished", "secs"), [([0, 1, 0], 10.0), ([1, 0, 0], 0.0), ([1, 1, 1], 0.0)],
                         ids=["one trains", "all that train have finished", "all have finished"])
def test_a_worker_that_serves_ends_with_the_ps_at_once_only_if_all_have_finished(world, passes, finished, secs):
    """Issue: it ended with 0 when one connection to the ps failed, as while a ps was started again."""
    there, _ = world
    watch = served(finished=np.array(finished))
    for task in (A, B):
        there.clear()
        there.add(task)
        passes(60.0)
        assert not watch.have_ended()
    there.clear()
    passes(60.0)
    if secs:
        assert not watch.have_ended()
        passes(secs - 1.0)
        assert not watch.have_ended()
        passes(2.0)
    assert watch.have_ended()


@pytest.mark.parametrize("answers", [True, False], ids=["nobody has finished", "ps 0 never answered a call"])
def test_a_worker_that_serves_waits_for_lost_ps_as_long_as_one_that_trains(world, passes, answers):
    """Then it can be started again; the end with 0 said that training was over."""
    there, _ = world
    watch = served(finished=np.zeros([3]))
    if not answers:
        watch._member = types.SimpleNamespace(snapshot=fail_to_answer)
    there.add(A)
    assert not watch.have_ended()
    there.clear()
    assert not watch.have_ended()
    passes(299.0)
    assert not watch.have_ended()
    passes(2.0)
    with raises("timed_out") as caught:
        watch.have_ended()
    assert caught.value.exit_code == 138 and "local:0 host0:1, local:1 host1:1" in str(caught.value)


def fail_to_answer():
    """Stands for a call to a ps that is too busy."""
    raise BlackboardError("ps_unreachable", "too busy")


def test_a_worker_that_serves_without_ps_ends_with_the_first_worker(world, passes):
    """Which may be started again within the heartbeat time-out."""
    there, _ = world
    watch = clients.ServedWatch([A], None, Timeouts(heartbeat_secs=10.0))
    there.add(A)
    assert not watch.have_ended()
    there.clear()
    assert not watch.have_ended()
    passes(11.0)
    assert watch.have_ended()


def test_a_mark_is_looked_at_from_time_to_time(world, monkeypatch):
    """As each look opens a session at a client that computes."""
    there, _ = world
    looks = []
    monkeypatch.setattr(clients, "has_joined", lambda task: looks.append(task))
    monkeypatch.setattr(clients, "_MARK_POLL_SECS", 1000.0)
    watch = clients._Watch([A], 0.0)
    there.add(A)
    assert not any(watch.have_clients_ended() for _ in range(5)) and looks == [A]


@pytest.mark.usefixtures("world")
def test_a_signal_ends_a_server_whose_client_never_came(monkeypatch):
    """With the code of a signal."""
    monkeypatch.setattr(clients, "mark_as_joined", lambda own: True)
    stop = threading.Event()
    stop.set()
    with raises("stopped") as caught:
        clients.wait_for_clients(A, [B, C], stop, 0.0)
    assert caught.value.exit_code == 143


def test_a_mark_is_set_once_the_server_has_answered(world, monkeypatch):
    """And then no more; the wait ends with the client."""
    there, _ = world
    answers = [False, True]

    def mark(own):
        assert own == A
        there.symmetric_difference_update({B})
        return answers.pop(0)

    monkeypatch.setattr(clients, "mark_as_joined", mark)
    monkeypatch.setattr(clients, "_POLL_SECS", 0.0)
    clients.wait_for_clients(A, [B], threading.Event(), 0.0)
    assert not answers
