"""The checkpoints and epochs of `ps_train keras`, as far as they need no model."""

from __future__ import annotations

import errno
import pathlib
import threading
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("tf_keras", reason="the Keras road needs the extra `keras`")

from ps_train.errors import CheckpointError, SaveError
from ps_train.parts.keras import checkpoints, fitting, flags
from ps_train.storage.folder_lock import FolderLock


def _write(folder, step):
    with zipfile.ZipFile(checkpoints.checkpoint_path(folder, step), "w") as file:
        file.writestr("weights", "some text " * 100)


def test_the_newest_sound_checkpoint_is_found(tmp_path):
    """One that is cut off, and one with a byte turned over, are skipped."""
    assert checkpoints.newest_readable(tmp_path / "nowhere") is None
    for step in (9, 100, 1000, 20000):
        _write(tmp_path, step)
    newest = tmp_path / "ckpt-00020000.keras"
    newest.write_bytes(newest.read_bytes()[:50])
    turned = bytearray((tmp_path / "ckpt-00001000.keras").read_bytes())
    turned[60] ^= 1
    (tmp_path / "ckpt-00001000.keras").write_bytes(turned)
    assert checkpoints.newest_readable(tmp_path) == (100, str(tmp_path / "ckpt-00000100.keras"))


def test_only_the_newest_are_kept(tmp_path):
    """By step, and nothing else in the folder is touched."""
    for step in (1, 2, 30):
        _write(tmp_path, step)
    (tmp_path / "notes.txt").touch()
    checkpoints.remove_older(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-00000002.keras", "ckpt-00000030.keras",
                                                                "notes.txt"]


@pytest.mark.parametrize("error", [
    OSError(errno.ENOSPC, "No space left on device"),
    tf.errors.ResourceExhaustedError(None, None, "/train/saving.keras; No space left on device")])
def test_a_full_disk_is_one_line_with_the_last_good_checkpoint(tmp_path, monkeypatch, error):
    """And what was written of the next one is removed."""
    def write(model, path):
        pathlib.Path(path).write_text("half")
        raise error

    monkeypatch.setattr(checkpoints, "write_model", write)
    _write(tmp_path, 10)
    config = flags.parse_keras_task([f"--train_dir={tmp_path}"], {})
    saver = checkpoints.ModelSaver(config, None, True, FolderLock(str(tmp_path), 1.0, threading.Event()))
    with pytest.raises(SaveError, match=rf"^cannot write the checkpoint of step 20 in {tmp_path}: .*No space left on "
                                        rf"device; the last good checkpoint is {tmp_path}/ckpt-00000010.keras; fix"):
        saver.save(None, 20)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-00000010.keras"]


@pytest.mark.parametrize(("train_steps", "steps_per_epoch", "step", "plan"), [
    (1000, None, 0, (500, 2, 0)),
    (700, None, 0, (350, 2, 0)),  # no step beyond what was asked for
    (1009, None, 0, (337, 3, 0)),  # two steps beyond
    (20, None, 0, (20, 1, 0)),
    (1000, 600, 0, (600, 2, 0)),
    (100, 600, 0, (100, 1, 0)),
    (1000, 250, 500, (250, 4, 2)),  # continues
    (1000, 250, 600, (250, 4, 2)),
    (1000, 250, 1000, (250, 4, 4)),  # nothing to do
    (1000, 250, 5000, (250, 4, 4)),
])
def test_epochs_lead_from_the_step_to_the_end(train_steps, steps_per_epoch, step, plan):
    """Whole epochs of about 500 steps, or as long as was asked for."""
    found = fitting.plan_epochs(train_steps, steps_per_epoch, step)
    assert found[:3] == plan
    assert found.end_step == step + (found.epochs - found.first_epoch) * found.steps_per_epoch


def test_states_that_differ_have_different_numbers(tmp_path):
    """Workers compare them, lest they train on from different states."""
    empty = checkpoints.state_number(tmp_path, 500)
    _write(tmp_path, 500)
    saved = checkpoints.state_number(tmp_path, 500)
    backup = tmp_path / "backup-500/chief"
    backup.mkdir(parents=True)
    (backup / "ckpt-3.index").touch()
    assert len({empty, saved, checkpoints.state_number(tmp_path, 500)}) == 3
    assert checkpoints.state_number(tmp_path, 250) == saved


# --- variables that are cut into parts

class Variable:
    """As much of a variable as is needed."""

    def __init__(self, name, value):
        self.name, self.value = f"{name}:0", np.array(value)
        self.shape = _Shape(self.value.shape)

    def numpy(self):
        return self.value

    def assign(self, value):
        assert value.shape == self.value.shape
        self.value = value


class _Shape(tuple):
    def as_list(self):
        return list(self)


def _model(variables, slots):
    return SimpleNamespace(weights=variables, optimizer=SimpleNamespace(variables=slots))


def _cut():
    """A kernel of five rows in two parts, a bias of one; the optimizer has its slot as one sharded variable."""
    parts = [Variable("a/kernel/part_0", np.zeros([3, 2])), Variable("a/kernel/part_1", np.zeros([2, 2]))]
    other = [Variable("b/kernel/part_0", np.zeros([1, 2])), Variable("b/kernel/part_1", np.zeros([1, 2]))]
    slot = SimpleNamespace(variables=[Variable("m/a/kernel/part_0", np.zeros([3, 2])),
                                      Variable("m/a/kernel/part_1", np.zeros([2, 2]))])
    return _model([*parts, Variable("bias", [0.0]), *other], [Variable("iteration", 0), slot])


def _whole(rows=5):
    return _model([Variable("a/kernel", np.arange(2.0 * rows).reshape(rows, 2)), Variable("bias", [7.0]),
                   Variable("b/kernel", [[1.0, 2.0], [3.0, 4.0]])],
                  [Variable("iteration", 9), Variable("m/a/kernel", np.ones([rows, 2]))])


def test_parts_and_wholes_fill_each_other():
    """There and back, the values are the same, row by row."""
    cut, back = _cut(), _whole()
    checkpoints.copy_variables(cut, _whole(), "a checkpoint")
    assert cut.weights[1].value.tolist() == [[6.0, 7.0], [8.0, 9.0]]
    for variable in back.weights:
        variable.value = variable.value * 0
    checkpoints.copy_variables(back, cut, "what is trained")
    for found, expected in zip(back.weights, _whole().weights):
        np.testing.assert_array_equal(found.value, expected.value)
    np.testing.assert_array_equal(back.optimizer.variables[1].value, np.ones([5, 2]))


def test_another_shape_is_told():
    """With the shape of the whole variable."""
    with pytest.raises(CheckpointError, match=r"^checkpoint x is of another model: weights: a/kernel has shape "
                                              r"\[4, 2\] instead of \[5, 2\]"):
        checkpoints.copy_variables(_cut(), _whole(rows=4), "checkpoint x")
