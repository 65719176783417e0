"""How a worker begins beside damaged checkpoints, and ends if its number was taken, or the tasks do not fit."""

from __future__ import annotations

import types

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.coordination.state import Beat, State
from ps_train.errors import StoppedError
from ps_train.runtime.waits import Timeouts
from ps_train.tasks.worker import ConnectedWorker, WorkerTask
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
