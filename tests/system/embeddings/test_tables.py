"""Embedding tables of real tasks, of which one is killed, or has an id that its table cannot have."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from ps_train.embeddings.files import contents
from ps_train.storage import checkpoints
from tests.processes import REPO, TaskCluster
from tests.tensorflow_mode import tf
from tests.training import GATE_BATCH


def _rows(path):
    """Returns id -> value of the table in a checkpoint."""
    reader = tf.train.load_checkpoint(path)
    (saved,) = contents.read_tables(path).values()
    return {int(one): value for pieces in saved.pieces for piece in pieces
            for one, value in zip(reader.get_tensor(f"{piece}/ids"), reader.get_tensor(f"{piece}/values"))}


def test_after_the_death_of_a_ps_no_row_has_lost_what_the_checkpoint_had(train):
    """Each row has counted the updates up to the checkpoint and those after it, on both ps."""
    training = train(model="counting_rows", flags=["--save_model_secs=1"])
    training.wait_for_gates()
    training.group.wait_for_line("worker-0", f"model.ckpt-{2 * GATE_BATCH}")
    training.kill("ps-1")
    training.start("ps", 1, "ps-1-again")
    training.open_gates()
    training.assert_ends_well(killed=["ps-1"])
    assert f"restoring all ps from {training.train_dir}/model.ckpt-{2 * GATE_BATCH}" in training.group.log("worker-0")
    path = checkpoints.newest_sound(str(training.train_dir))
    step = tf.train.load_checkpoint(path).get_tensor("global_step")
    assert step >= training.train_steps
    found = _rows(path)
    assert set(found) == {4, 7}
    np.testing.assert_array_equal(list(found.values()), np.full([2, 2], -step))
    assert "Traceback" not in training.group.logs() and "serializing" not in training.group.logs()


@pytest.mark.parametrize("mode", [[], ["--sync_replicas"]], ids=["async", "sync"])
def test_an_id_out_of_range_ends_the_task_with_one_line(tmp_path, start_process, mode):
    """The exit code is 1, and the line has the table, the feature, the id and what is allowed."""
    for name in ("looking_too_far", "tiny"):
        shutil.copy(REPO / f"tests/plugins/{name}.py", tmp_path)
    TaskCluster(1, 1).start(
        start_process, ["--model=looking_too_far", "--dataset=tiny", "--batch_size=16", "--train_steps=40",
                        f"--train_dir={tmp_path}/train", *mode], cwd=tmp_path)
    assert start_process.wait()["worker-0"] == 1
    log = start_process.logs()
    assert "table rows: sign has the id 1; allowed: 0 to 0; nothing of that batch was applied" in log
    assert "Traceback" not in log
