"""When a server of a cluster without workers ends."""

from __future__ import annotations

import threading

import pytest

from ps_train.cluster.spec import Task
from ps_train.parts.legacy.classic import clients
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
    watch = clients._Watch([A, B])
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
    watch = clients._Watch([A, B])
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


def test_a_mark_is_looked_at_from_time_to_time(world, monkeypatch):
    """As each look opens a session at a client that computes."""
    there, _ = world
    looks = []
    monkeypatch.setattr(clients, "has_joined", lambda task: looks.append(task))
    monkeypatch.setattr(clients, "_MARK_POLL_SECS", 1000.0)
    watch = clients._Watch([A])
    there.add(A)
    assert not any(watch.have_clients_ended() for _ in range(5)) and looks == [A]


@pytest.mark.usefixtures("world")
def test_a_signal_ends_a_server_whose_client_never_came(monkeypatch):
    """With the code of a signal."""
    monkeypatch.setattr(clients, "mark_as_joined", lambda own: True)
    stop = threading.Event()
    stop.set()
    with raises("stopped") as caught:
        clients.wait_for_clients(A, [B, C], stop)
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
    clients.wait_for_clients(A, [B], threading.Event())
    assert not answers
