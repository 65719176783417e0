"""The checkpoints and epochs of `ps_train keras`, as far as they need no model."""

from __future__ import annotations

import errno
import pathlib
import threading
import zipfile

import pytest
import tensorflow as tf

pytest.importorskip("tf_keras", reason="the Keras road needs the extra `keras`")

from ps_train.errors import SaveError
from ps_train.parts.keras import flags
from ps_train.parts.keras.storage import keras_checkpoints
from ps_train.parts.keras.training import planning
from ps_train.storage.folder_lock import FolderLock


def _write(folder, step):
    with zipfile.ZipFile(keras_checkpoints.checkpoint_path(folder, step), "w") as file:
        file.writestr("weights", "some text " * 100)


def test_the_newest_sound_checkpoint_is_found(tmp_path):
    """One that is cut off, and one with a byte turned over, are skipped."""
    assert keras_checkpoints.newest_readable(tmp_path / "nowhere") is None
    for step in (9, 100, 1000, 20000):
        _write(tmp_path, step)
    newest = tmp_path / "ckpt-00020000.keras"
    newest.write_bytes(newest.read_bytes()[:50])
    turned = bytearray((tmp_path / "ckpt-00001000.keras").read_bytes())
    turned[60] ^= 1
    (tmp_path / "ckpt-00001000.keras").write_bytes(turned)
    assert keras_checkpoints.newest_readable(tmp_path) == (100, str(tmp_path / "ckpt-00000100.keras"))


def test_only_the_newest_are_kept(tmp_path):
    """By step, and nothing else in the folder is touched."""
    for step in (1, 2, 30):
        _write(tmp_path, step)
    (tmp_path / "notes.txt").touch()
    keras_checkpoints.remove_older(tmp_path, 2)
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

    monkeypatch.setattr(keras_checkpoints, "write_model", write)
    _write(tmp_path, 10)
    config = flags.parse_keras_task([f"--train_dir={tmp_path}"], {})
    saver = keras_checkpoints.ModelSaver(config, None, True, FolderLock(str(tmp_path), 1.0, threading.Event()))
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
    found = planning.plan_epochs(train_steps, steps_per_epoch, step)
    assert found[:3] == plan
    assert found.end_step == step + (found.epochs - found.first_epoch) * found.steps_per_epoch


def test_states_that_differ_have_different_numbers(tmp_path):
    """Workers compare them, lest they train on from different states."""
    empty = keras_checkpoints.state_number(tmp_path, 500)
    _write(tmp_path, 500)
    saved = keras_checkpoints.state_number(tmp_path, 500)
    backup = tmp_path / "backup-500/chief"
    backup.mkdir(parents=True)
    (backup / "ckpt-3.index").touch()
    assert len({empty, saved, keras_checkpoints.state_number(tmp_path, 500)}) == 3
    assert keras_checkpoints.state_number(tmp_path, 250) == saved
