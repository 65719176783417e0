"""What a worker makes of the loss of its cluster."""

from __future__ import annotations

import threading
import types

import pytest

from ps_train.errors import CheckpointError, ClusterLostError
from ps_train.storage import checkpoints
from ps_train.tasks import worker


def refuse(folder):
    raise CheckpointError("folder_unreadable", f"cannot list {folder!r}: Stale file handle")


@pytest.mark.parametrize("look", [refuse, lambda folder: threading.Event().wait(60)], ids=["unreadable", "hangs"])
@pytest.mark.parametrize("code", ["timed_out", "session_lost"])
def test_a_folder_that_went_with_the_lost_machine_does_not_hide_the_loss(tmp_path, monkeypatch, look, code):
    """Issue: the worker ended with 1, which no supervisor restarts, or never."""
    monkeypatch.setattr(checkpoints, "newest_sound", look)
    task = worker.WorkerTask.__new__(worker.WorkerTask)
    task._settings = types.SimpleNamespace(train_dir=str(tmp_path), timeouts=types.SimpleNamespace(save_secs=0.2))
    task._earlier_end = None
    lost = ClusterLostError(code, "ps:0 does not answer")
    with pytest.raises(ClusterLostError) as caught:
        task._result_after_end(lost)
    assert caught.value is lost
