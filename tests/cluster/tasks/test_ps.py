"""The life of a ps."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import types

import pytest

from ps_train.cluster.spec import Task
from ps_train.coordination import agreement, blackboard
from ps_train.coordination.state import State
from ps_train.errors import ConfigError, PsTrainError
from ps_train.runtime.waits import Timeouts
from ps_train.storage import journal
from ps_train.tasks import ps
from tests import processes
from tests.errors import codes_of, raises

TRAIN_STEPS = 7


def _serve(cluster, stop, train_dir="", **timeouts):
    """Runs a ps's life in a thread, up to its loop; returns it and the list that gets the error it ended with."""
    errors, is_up = [], threading.Event()

    def run():
        try:
            with contextlib.closing(blackboard.for_ps(cluster.target("ps", 0), cluster.view("ps", 0), 5)) as board:
                create = board.create
                board.create = lambda: (create(), is_up.set())
                unused_port, = processes.free_ports(1)
                addresses = {0: cluster.addresses["worker"][0], 1: f"localhost:{unused_port}"}
                limits = Timeouts(**{"heartbeat_secs": 5, "idle_secs": 60, "stop_secs": 20, **timeouts})
                ps.PsTask(board, lambda: board, addresses, limits, stop, train_dir, TRAIN_STEPS).run()
        except PsTrainError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_up.wait(30)
    return thread, errors


def test_a_ps_serves_until_training_is_done(start_servers, stop):
    """Running and stopping do not end it, done does."""
    cluster = start_servers(1, 1)
    thread, errors = _serve(cluster, stop)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        for state in (State.RUNNING, State.STOPPING):
            board.announce(state)
            thread.join(3 * ps._POLL_SECS)
            assert thread.is_alive(), state
        board.announce(State.DONE)
    thread.join(10)
    assert not thread.is_alive()
    assert errors == []


def test_a_ps_waits_for_a_worker_that_does_not_know_yet_that_training_is_done(start_servers, stop, monkeypatch):
    """It ends when that worker has read it, and otherwise after a while."""
    monkeypatch.setattr(ps, "_LATE_SECS", 60.0)
    cluster = start_servers(1, 1)
    thread, errors = _serve(cluster, stop)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.start_run("")
        board.claim(0, claim=5)
        board.announce(State.DONE)
        thread.join(2 * ps._LINGER_SECS)
        assert thread.is_alive()
        board.report_finished(0)
        thread.join(10)
        assert not thread.is_alive()
    monkeypatch.setattr(ps, "_LATE_SECS", 0.5)
    thread, errors_without_it = _serve(cluster, stop)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.start_run("")
        board.claim(0, claim=6)
        board.announce(State.DONE)
    thread.join(10)
    assert (thread.is_alive(), errors, errors_without_it) == (False, [], [])


@pytest.mark.parametrize(("worker", "silent_secs", "is_awaited"), [(1, 6.0, False), (0, 6.0, True), (0, 61.0, False)],
                         ids=["no process", "its server is there", "silent for long"])
def test_a_ps_waits_for_a_silent_worker_only_while_it_may_come(start_servers, stop, monkeypatch, worker, silent_secs,
                                                               is_awaited):
    """Its claim is still there, its beats are not: they may miss for 5 s, and a ps has 60 s for those that are late."""
    monkeypatch.setattr(ps, "_LATE_SECS", 60.0)
    cluster = start_servers(1, 2)
    thread, errors = _serve(cluster, stop)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.start_run("")
        board.claim(worker, claim=5)
        board._run(board._tick, {board._secs: silent_secs})
        board.announce(State.DONE)
        thread.join(2 * ps._LINGER_SECS if is_awaited else 20)
        assert thread.is_alive() == is_awaited
        board.leave(worker)
    thread.join(20)
    assert (thread.is_alive(), errors) == (False, [])


def test_a_ps_obeys_a_signal(start_servers, stop):
    """A set stop event ends it with the error of that exit code."""
    thread, errors = _serve(start_servers(1, 1), stop)
    stop.set()
    thread.join(10)
    assert [error.exit_code for error in errors] == [143]


def test_a_ps_that_is_told_to_stop_does_not_ask_a_ps_0_that_is_gone(start_servers, stop):
    """Such a call takes seconds to say so."""
    cluster = start_servers(1, 1)
    port, = processes.free_ports(1)
    first = types.SimpleNamespace(first_ps=Task("ps", 0, f"localhost:{port}"), snapshot=lambda: pytest.fail("asked"))
    with contextlib.closing(blackboard.for_ps(cluster.target("ps", 0), cluster.view("ps", 0), 5)) as own:
        life = ps.PsTask(own, lambda: first, {}, Timeouts(idle_secs=60.0, stop_secs=60.0), stop)
        stop.set()
        with raises("stopped"):
            life.run()


def test_a_ps_without_any_worker_ends_by_itself(start_servers, stop):
    """Exit code 138 after the idle time-out, and not before a worker that is there has left."""
    cluster = start_servers(1, 1)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.claim(0, claim=5)
        thread, errors = _serve(cluster, stop, idle_secs=0.1)
        assert board.snapshot().claims[0] == 0
    thread.join(20)
    assert [error.exit_code for error in errors] == [138]
    assert codes_of(errors[0]) == ["no_workers"]


def test_a_ps_that_is_stopped_while_training_ends_has_served_to_the_end(start_servers, stop):
    """So it ends with 0, and nobody starts it again."""
    cluster = start_servers(1, 1)
    thread, errors = _serve(cluster, stop)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.start_run("")
        board.claim(0, claim=5)
        stop.set()
        thread.join(2 * ps._POLL_SECS)
        assert thread.is_alive()
        board.announce(State.DONE)
        board.leave(0)
    thread.join(20)
    assert (thread.is_alive(), errors) == (False, [])


@pytest.mark.parametrize(("end", "exit_codes"), [
    ({"step": 7}, []), ({"step": 5, "train_steps": 7}, []), ({}, [138]), ({"step": 5, "train_steps": 5}, [138]),
    ({"step": 7, "ps": ["another:2222"]}, [138])], ids=["ended", "data ended", "failed", "fewer steps", "other ps"])
def test_a_ps_that_comes_back_to_a_training_that_has_ended_ends(start_servers, stop, tmp_path, end, exit_codes):
    """When no worker has come for as long as one waits for it.

    If that failed, was one that this one continues, or another one's in the same folder, it waits for them as ever.
    """
    cluster = start_servers(1, 1)
    noted = journal.Journal(str(tmp_path))
    noted.note("end", **{"why": "", "ps": [cluster.addresses["ps"][0]], **end})
    noted.close()
    idle_secs = 3 * ps._CHECK_PERIOD_SECS
    thread, errors = _serve(cluster, stop, str(tmp_path), start_secs=0.1, idle_secs=idle_secs)
    thread.join(20)
    assert not thread.is_alive()
    assert [error.exit_code for error in errors] == exit_codes


def test_a_ps_ends_when_the_tasks_have_different_clusters(start_servers, stop, monkeypatch):
    """With the line that ps 0 has, as a configuration error."""
    monkeypatch.setattr(ps, "_LATE_SECS", 0.1)
    cluster = start_servers(1, 2)
    thread, errors = _serve(cluster, stop)
    view = cluster.view("worker", 0)
    fewer = dataclasses.replace(view, addresses={**view.addresses, "worker": {0: view.task.address}})
    with pytest.raises(ConfigError):
        agreement.check(fewer, 30, stop)
    thread.join(30)
    assert not thread.is_alive()
    assert [code for error in errors for code in codes_of(error)] == ["clusters_differ"]
    assert "2 workers" in str(errors[0])


def test_a_ps_ends_when_the_chief_gave_up(start_servers, stop):
    """Exit code 138, and the message says whose log to read."""
    cluster = start_servers(1, 1)
    thread, errors = _serve(cluster, stop)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board:
        board.announce(State.FAILED)
    thread.join(10)
    assert [code for error in errors for code in codes_of(error)] == ["chief_failed"]
