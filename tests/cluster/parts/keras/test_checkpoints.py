"""The checkpoints and epochs of `ps_train keras`, as far as they need no model."""

from __future__ import annotations

import errno
import pathlib
import shutil
import threading
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")

from ps_train.parts.keras import checkpoints, fitting, flags
from ps_train.storage.folder_lock import FolderLock
from tests.errors import raises


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


def test_a_checkpoint_with_any_bit_turned_over_ends_no_training(tmp_path):
    """Issue: of some bits of the zip directory, which zipfile takes for a password, say, there was a traceback."""
    _write(tmp_path, 9)
    _write(tmp_path, 100)
    path = tmp_path / "ckpt-00000100.keras"
    whole, steps = path.read_bytes(), set()
    directory = whole.index(b"PK\x01\x02")
    for place in (*range(30), *range(directory, len(whole))):
        for bit in range(8):
            turned = bytearray(whole)
            turned[place] ^= 1 << bit
            path.write_bytes(turned)
            steps.add(checkpoints.newest_readable(tmp_path)[0])
    assert steps == {9, 100}  # the second where the bit means nothing, as one of the time


def test_a_training_does_not_start_again_beside_checkpoints_that_cannot_be_read(tmp_path):
    """It would remove them later, when it has saved as many."""
    assert checkpoints.load_newest(SimpleNamespace(objects={}), tmp_path) is None
    (tmp_path / "ckpt-00000009.keras").write_bytes(b"PK")
    with raises("checkpoint_unreadable"):
        checkpoints.load_newest(SimpleNamespace(objects={}), tmp_path)


def test_only_the_newest_are_kept(tmp_path):
    """By step, and nothing else in the folder is touched."""
    for step in (1, 2, 30):
        _write(tmp_path, step)
    (tmp_path / "notes.txt").touch()
    checkpoints.remove_older(tmp_path, 30, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-00000002.keras", "ckpt-00000030.keras",
                                                                "notes.txt"]


def test_old_checkpoints_that_cannot_be_removed_end_no_training(tmp_path, monkeypatch, caplog):
    """Issue: one that somebody had removed ended it, although the new one was written. The others are removed."""
    def remove(path):
        if path.endswith("1.keras"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        pathlib.Path(path).unlink()
        if path.endswith("2.keras"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(checkpoints.os, "remove", remove)
    for step in (1, 2, 3, 4):
        _write(tmp_path, step)
    checkpoints.remove_older(tmp_path, 4, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-00000001.keras", "ckpt-00000004.keras"]
    [warning] = caplog.messages
    assert "ckpt-00000001.keras" in warning and "Operation not permitted" in warning


def _saver(folder, *more_flags, is_chief=True):
    config = flags.parse_keras_task([f"--train_dir={folder}", *more_flags], {})
    return checkpoints.ModelSaver(config, None, is_chief, FolderLock(str(folder), 1.0, threading.Event()))


def test_a_new_checkpoint_stays_beside_a_damaged_one_of_a_later_step(tmp_path, monkeypatch):
    """Issue: the damaged one counted as the newest, so each new one was removed as soon as it was written."""
    monkeypatch.setattr(checkpoints, "write_model", lambda model, path: pathlib.Path(path).write_text("model"))
    (tmp_path / "ckpt-00002000.keras").write_bytes(b"PK")
    saver = _saver(tmp_path, "--keep_checkpoint_max=1")
    for step in (1600, 1700):
        saver.save(None, step)
        assert sorted(checkpoints.checkpoint_paths(tmp_path)) == [step, 2000]


@pytest.mark.parametrize("error", [
    OSError(errno.ENOSPC, "No space left on device"),
    tf.errors.ResourceExhaustedError(None, None, "/train/saving.keras; No space left on device")])
def test_a_full_disk_is_one_line_with_the_last_good_checkpoint(tmp_path, monkeypatch, error):
    """If it is the last one. The unfinished file of the next one is removed."""
    def write(model, path):
        pathlib.Path(path).write_text("half")
        raise error

    monkeypatch.setattr(checkpoints, "write_model", write)
    _write(tmp_path, 10)
    with raises("checkpoint_not_written") as caught:
        _saver(tmp_path).save(None, 20, is_last=True)
    assert "No space left on device" in str(caught.value) and f"{tmp_path}/ckpt-00000010.keras" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-00000010.keras"]


class Disk:
    """Writes a model that is a text, unless the path begins with `broken`."""

    def __init__(self, monkeypatch):
        self.broken, self.models, self.copyfile = "nowhere", [], shutil.copyfile
        monkeypatch.setattr(checkpoints, "write_model", self.write)
        monkeypatch.setattr(checkpoints.shutil, "copyfile", self.copy)

    def write(self, model, path):
        self.models.append(model)
        self.check(path)
        pathlib.Path(path).write_text(model)

    def copy(self, source, target):
        self.check(target)
        self.copyfile(source, target)

    def check(self, path):
        if str(path).startswith(str(self.broken)):
            raise OSError(errno.ESTALE, "Stale file handle")


@pytest.mark.parametrize("strategy", ["default", "multi_worker_mirrored"])
def test_training_goes_on_after_a_save_that_failed(tmp_path, monkeypatch, caplog, strategy):
    """Issue: a folder that failed for a moment ended it. The last step is saved by the next call, also of that step.

    Workers that read together do so once for each step: the others would not read again with the chief.
    """
    disk, folder = Disk(monkeypatch), tmp_path / "train"
    folder.mkdir()
    saver = _saver(folder, f"--strategy={strategy}")
    saver.save("ten", 10)
    disk.broken = folder
    saver.save("twenty", 20)
    saver.save("thirty", 30)
    assert [message.count("Stale file handle; training goes on") for message in caplog.messages] == [1, 1]
    with raises("checkpoint_not_written"):
        saver.save("thirty", 30, is_last=True)
    disk.broken = "nowhere"
    saver.save("thirty", 30, is_last=True)
    assert list(checkpoints.checkpoint_paths(folder)) == [10, 30]
    assert (folder / "ckpt-00000030.keras").read_text() == "thirty"
    assert disk.models == ["ten", "twenty", *["thirty"] * (3 if strategy == "default" else 1)]


@pytest.mark.parametrize("is_chief", [True, False])
def test_workers_that_read_together_name_the_folder_that_is_full(tmp_path, monkeypatch, is_chief):
    """Issue: a worker other than the chief named --train_dir. Each writes to its temporary folder, and empties it."""
    disk, folder = Disk(monkeypatch), tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(checkpoints.tempfile, "tempdir", str(folder))
    saver = _saver(tmp_path, "--strategy=multi_worker_mirrored", is_chief=is_chief)
    saver.save("ten", 10)
    assert list(checkpoints.checkpoint_paths(tmp_path)) == [10] * is_chief
    assert not list(folder.iterdir())
    disk.broken = folder
    with raises("checkpoint_not_written") as caught:
        saver.save("twenty", 20)
    assert f"in {folder}/ps_train-" in str(caught.value) and "TMPDIR" in str(caught.value)


@pytest.mark.parametrize(("train_steps", "steps_per_epoch", "step", "plan", "stretches"), [
    (1000, None, 0, (500, 2, 0), [(0, 2, 500)]),
    (700, None, 0, (350, 2, 0), [(0, 2, 350)]),  # no step beyond train_steps
    (1009, None, 0, (337, 3, 0), [(0, 3, 337)]),  # two steps beyond
    (20, None, 0, (20, 1, 0), [(0, 1, 20)]),
    (1000, 600, 0, (600, 2, 0), [(0, 2, 600)]),
    (100, 600, 0, (100, 1, 0), [(0, 1, 100)]),
    (1000, 250, 500, (250, 4, 2), [(2, 4, 250)]),  # continues
    (1000, 250, 600, (250, 4, 2), [(2, 3, 150), (3, 4, 250)]),  # within an epoch
    (1000, 250, 800, (250, 4, 3), [(3, 4, 200)]),
    (1000, 250, 1000, (250, 4, 4), []),  # nothing to do
    (1000, 600, 1100, (600, 2, 2), []),
    (1000, 250, 5000, (250, 4, 4), []),
])
def test_epochs_lead_from_the_step_to_the_end(train_steps, steps_per_epoch, step, plan, stretches):
    """Whole epochs of about 500 steps, or as long as --steps_per_epoch; first the rest of the current one."""
    planned = fitting.plan_epochs(train_steps, steps_per_epoch, step)
    assert planned == plan
    assert list(planned.stretches(step)) == stretches
    num_steps = sum((end - begin) * steps for begin, end, steps in stretches)
    assert num_steps == (planned.end_step - step if stretches else 0)


# --- variables that are split into parts

class Variable:
    """As much of a variable as is needed."""

    def __init__(self, name, value):
        self.name, self.value = f"{name}:0", np.array(value)
        self.shape = _Shape(self.value.shape)

    def numpy(self):
        return self.value

    def assign(self, value, read_value=True):
        assert value.shape == self.value.shape
        self.value = value


class _Shape(tuple):
    def as_list(self):
        return list(self)


def _model(variables, slots):
    return SimpleNamespace(weights=variables, optimizer=SimpleNamespace(variables=slots))


def _split():
    """Returns a kernel of five rows in two parts and a bias; the optimizer has its slot as one sharded variable."""
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
    split, back = _split(), _whole()
    checkpoints.copy_variables(split, _whole(), "a checkpoint")
    assert split.weights[1].value.tolist() == [[6.0, 7.0], [8.0, 9.0]]
    for variable in back.weights:
        variable.value = variable.value * 0
    checkpoints.copy_variables(back, split, "the model in training")
    for weight, expected in zip(back.weights, _whole().weights):
        np.testing.assert_array_equal(weight.value, expected.value)
    np.testing.assert_array_equal(back.optimizer.variables[1].value, np.ones([5, 2]))


def test_another_shape_is_refused():
    """The message has the shape of the whole variable."""
    with raises("checkpoint_of_another_model") as caught:
        checkpoints.copy_variables(_split(), _whole(rows=4), "checkpoint x")
    assert "a/kernel has shape [4, 2] instead of [5, 2]" in str(caught.value)
