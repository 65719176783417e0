"""How a worker begins beside damaged checkpoints, and ends if its number was taken, or the tasks do not fit."""

from __future__ import annotations

import types

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination.state import AdmissionView, Beat, State
from ps_train.errors import StoppedError, UserCodeError
from ps_train.runtime.waits import StopEvent, Timeouts
from ps_train.tasks.worker import ConnectedWorker, WorkerTask
from ps_train.training.reporting import End, Outcome
from tests.errors import raises

VIEW = Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1"}})


def connected(*, is_replaced: bool, mismatch: str = "") -> ConnectedWorker:
    """Returns a worker whose heartbeat has found this, and nothing else of what it needs to train."""
    worker = object.__new__(ConnectedWorker)
    worker._cluster, worker._settings = VIEW, types.SimpleNamespace(timeouts=Timeouts())
    worker.heartbeat = types.SimpleNamespace(is_replaced=is_replaced, last=Beat(True, State.RUNNING, mismatch, False))
    return worker


STOPPED = StoppedError("stopped", "stopped while waiting")


@pytest.mark.parametrize(("heartbeat", "code", "value"), [
    ({"is_replaced": True}, "worker_replaced", "worker:0 b:1"),
    ({"is_replaced": False, "mismatch": "ps:0 has 1 worker"}, "clusters_differ", "ps:0 has 1 worker"),
])
@pytest.mark.parametrize("error", [None, STOPPED])
def test_the_reason_is_raised_however_the_training_ended(heartbeat, code, value, error):
    """Either reason stops the training as a signal does, with another exit code."""
    with raises(code) as ended, connected(**heartbeat).raising_stop_reason():
        if error:
            raise error
    assert value in str(ended.value)


def test_a_signal_stays_a_signal():
    """If no process has taken the number."""
    alone = connected(is_replaced=False)
    with raises("stopped"), alone.raising_stop_reason():
        raise STOPPED
    with alone.raising_stop_reason():
        pass


@pytest.mark.parametrize("is_chief", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("a fault"), SystemExit(0)], ids=["error", "sys.exit"])
def test_the_end_of_the_users_code_is_announced(is_chief, error):
    """The others would wait for it; `sys.exit` there is no end of training."""
    said = []
    board = types.SimpleNamespace(announce=lambda state: said.append(state), report_finished=said.append)
    task = object.__new__(WorkerTask)
    task._cluster = types.SimpleNamespace(is_chief=is_chief, worker_number=1)
    task._settings = types.SimpleNamespace(has_server=False)
    with pytest.raises(type(error)), task._announcing_failure(board):
        raise error
    assert said == [State.FAILED if is_chief else 1]


def test_a_chief_does_not_begin_again_beside_checkpoints_that_cannot_be_read(tmp_path):
    """Neither does it replace the record of their training."""
    (tmp_path / "model.ckpt-9.index").write_bytes(b"")
    task = object.__new__(WorkerTask)
    task._cluster, task._settings = VIEW, types.SimpleNamespace(train_dir=str(tmp_path))
    with raises("checkpoint_unreadable"):
        task._prepare_as_chief(None)
    assert [file.name for file in tmp_path.iterdir()] == ["model.ckpt-9.index"]


def _chief_on_existing_servers(state, admitted):
    """Returns a chief with --existing_servers, a board with these values, and the states that it announces."""
    task = object.__new__(WorkerTask)
    task._cluster, task._settings, task._stop = VIEW, types.SimpleNamespace(has_server=True), StopEvent()
    task._report_steps = lambda board: None
    announced = []
    board = types.SimpleNamespace(admission_view=lambda: AdmissionView(state, True, "", "", frozenset(admitted)),
                                  announce=announced.append)
    return task, board, announced


@pytest.mark.parametrize(("state", "admitted", "is_free"), [
    (State.RUNNING, {0, 1}, False), (State.RUNNING, {0}, True), (State.STOPPING, {0, 1}, True)])
@pytest.mark.parametrize("is_failure", [True, False], ids=["its code fails", "signal"])
def test_a_chief_alone_that_ends_leaves_the_parameters_to_those_that_train_on(state, admitted, is_free, is_failure):
    """A chief that finds idle servers restores a checkpoint, over what the others have trained."""
    task, board, announced = _chief_on_existing_servers(state, admitted)
    if is_failure:
        with raises("nan"), task._announcing_failure(board):
            raise UserCodeError("nan", "the loss is NaN")
    else:
        assert task._finish_as_chief(board, Outcome(End.SIGNAL, 0, 9, 9, 1.0), pytest.fail) is None
    assert announced == ([State.IDLE] if is_free else [])


def test_servers_are_free_after_the_last_step_and_when_all_were_asked_to_stop():
    """`ps_train stop` is a mark on the servers, which would stop the next training."""
    task, board, announced = _chief_on_existing_servers(State.RUNNING, {0, 1})
    task._finish_as_chief(board, Outcome(End.STEPS, 0, 9, 9, 1.0), lambda: None)
    task._stop.is_requested = True
    task._finish_as_chief(board, Outcome(End.SIGNAL, 0, 9, 9, 1.0), pytest.fail)
    assert announced == [State.IDLE] * 2
