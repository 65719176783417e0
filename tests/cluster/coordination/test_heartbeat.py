"""A worker's sign of life."""

from __future__ import annotations

import contextlib
import threading

import pytest

from ps_train.coordination import blackboard, heartbeat
from ps_train.coordination.state import Beat, State
from ps_train.errors import ConfigError
from ps_train.runtime import waits
from tests.errors import raises

LONG_SECS = 1000.0  # the clock goes on while a test looks, by seconds on a busy machine


@pytest.fixture
def make(start_servers, monkeypatch):
    """A function that returns another process's Heartbeat for worker 0, and its board."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECS", 0.1)
    monkeypatch.setattr(heartbeat, "_LEAVE_SECS", 60.0)  # a task ends without an answer; a test looks for the effect
    cluster = start_servers(1, 1)
    with contextlib.ExitStack() as stack:
        def build(stop=None, heartbeat_timeout_secs=LONG_SECS):
            view = cluster.view("worker", 0)
            board = stack.enter_context(contextlib.closing(
                blackboard.for_worker(cluster.target("worker", 0), view, heartbeat_timeout_secs)))
            progress = heartbeat.WorkerProgress()
            return heartbeat.Heartbeat(board, view.task, 0, progress, stop or threading.Event()), board
        build.cluster = cluster
        yield build


def test_a_worker_is_alive_from_its_claim_until_it_leaves(make, stop):
    """Each heartbeat reports the step that the worker has reached."""
    own, board = make()
    own.claim(board, 5)
    with own.running():
        own._progress.step = 42
        waits.until(lambda: board.snapshot().steps[0] == 42, 60, "a heartbeat", stop)
        assert board.snapshot().alive() == [0]
    assert board.snapshot().alive() == []


def test_a_second_process_with_the_same_number_is_refused(make):
    """It says who is running already; the first one is not disturbed."""
    first, board = make()
    first.claim(board, 5)
    with first.running():
        second, _ = make()
        with raises("task_already_running", kind=ConfigError):
            second.claim(board, 60)
        assert not first.is_replaced
        assert board.snapshot().claims[0] == first._claim


def test_the_number_of_a_process_that_died_is_free_after_its_beat_timeout(make):
    """The new one waits for as long as the old one might still be there."""
    first, board = make()
    first.claim(board, 5)
    second, visitor = make(heartbeat_timeout_secs=0.5)
    second.claim(visitor, 60)
    assert board.snapshot().claims[0] == second._claim != first._claim


def test_steps_are_counted_over_all_lives_of_a_worker_in_one_training(make):
    """A process that takes a dead one's number counts on; the next training begins at 0, also on the same servers."""
    first, board = make()
    first.claim(board, 5)
    board.start_run()
    first._progress.local_steps += 40
    first.beat()
    board.start_run()  # as after the loss of another ps
    second, visitor = make(heartbeat_timeout_secs=0.2)
    second.claim(visitor, 60)
    assert second._progress.local_steps == 40
    second._progress.local_steps += 2
    second.beat()
    assert board.snapshot().local_steps[0] == 42
    visitor.leave(0)
    board.announce(State.IDLE)
    third, _ = make()
    third.claim(board, 5)
    assert third._progress.local_steps == 0
    board.start_run()
    assert board.snapshot().local_steps[0] == 0


def test_the_number_of_a_process_whose_port_was_bound_again_is_free_at_once(make):
    """Only a process that is gone leaves its port: no task waits for its heartbeats, whatever the time-out is."""
    task, stop = make.cluster.view("worker", 0).task, threading.Event()
    _, board = make(heartbeat_timeout_secs=3600)
    for _ in range(2):
        own = heartbeat.Heartbeat(board, task, 0, heartbeat.WorkerProgress(), stop, has_bound=True)
        own.claim(board, 0.1)
        assert board.snapshot().claims[0] == own._claim


def test_a_process_that_was_replaced_stops(make):
    """One that was frozen, and wakes after another took its number, must not go on training."""
    stop = threading.Event()
    frozen, board = make(stop)
    frozen.claim(board, 5)
    board.claim(0, claim=1)
    with frozen.running():
        assert stop.wait(60)
        assert frozen.is_replaced
    assert board.snapshot().claims[0] == 1


def test_a_heartbeat_that_was_refused_before_the_number_was_claimed_again_replaces_nobody(make, monkeypatch):
    """Two threads of a process may find at once that ps 0 has forgotten it; the second sees the claim of the first."""
    stop = threading.Event()
    own, board = make(stop)
    own.claim(board, 5)
    monkeypatch.setattr(board, "beat", lambda *args, **kwargs: Beat(False, State.IDLE, "", False))
    own.beat()
    assert not own.is_replaced and not stop.is_set()
    assert board.snapshot().claims[0] == own._claim


def test_a_beat_that_comes_after_leaving_claims_nothing(make):
    """It was under way when its worker left: nobody would wait for that one for nothing."""
    own, board = make()
    own.claim(board, 5)
    with own.running():
        pass
    own.beat()
    assert board.snapshot().claims[0] == 0


def test_a_claim_that_a_restarted_ps_forgot_is_made_again(make, stop):
    """The blackboard comes back empty, and the next heartbeats fill it."""
    own, board = make()
    own.claim(board, 5)
    with own.running():
        make.cluster.create_blackboard()
        waits.until(lambda: board.snapshot().claims[0] == own._claim, 60, "the claim", stop)
        assert not own.is_replaced
