"""How an export gets to its folder, whatever other exports do there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

import ps_train
from ps_train.errors import ConfigError
from ps_train.parts.inference import serving
from ps_train.plugins.contracts import Model
from ps_train.storage import folder_lock
from tests.errors import raises


def _model_fn(features, labels, mode, params):
    return ps_train.ModelSpec(predictions=tf.get_variable("weight", []) * features)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The path of a checkpoint."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        tf.get_variable("weight", [])
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, str(tmp_path_factory.mktemp("trained") / "model.ckpt"), 5)


def _export(path, output_dir, after_write=lambda: None, model_fn=_model_fn, **named):
    class Graph(serving.ServedGraph):
        def write(self, output_dir):
            super().write(output_dir)
            after_write()

    model, specs = Model("line", model_fn, {}), tf.TensorSpec([None], tf.float32, name="x")
    return serving.export_model(path, str(output_dir), model, {}, specs, make_graph=Graph, **named)


@pytest.mark.parametrize("replaces", [False, True])
def test_of_two_exports_to_one_folder_at_once_both_are_whole(trained, tmp_path, replaces):
    """Issue: the second removed the temporary folder of the first, whose files it then took. Which may replace it?"""
    output_dir = tmp_path / "out/5"

    def export_another():
        _export(trained, output_dir, replaces=replaces)
        (output_dir / "of_another").touch()

    if replaces:
        _export(trained, output_dir, export_another, replaces=True)
    else:
        with raises("export_exists"):
            _export(trained, output_dir, export_another)
    assert (output_dir / "of_another").exists() != replaces
    assert tf.saved_model.contains_saved_model(str(output_dir)) and (output_dir / "variables/variables.index").exists()
    assert os.listdir(tmp_path / "out") == ["5"]


def test_an_export_that_fails_leaves_nothing(trained, tmp_path):
    """An older model stays. Issue: the temporary folder stayed until the next export of that step."""
    _export(trained, tmp_path / "out/5")
    with raises("folder_not_writable") as caught:
        _export(trained, tmp_path / "out/5", _fail, replaces=True)
    assert "the disk is full" in str(caught.value)
    assert os.listdir(tmp_path / "out") == ["5"]


def test_a_disk_that_fills_during_an_export_is_one_line(tmp_path, small_disk):
    """Issue: a traceback of TensorFlow."""
    def model_fn(features, labels, mode, params):
        return ps_train.ModelSpec(predictions=tf.reduce_sum(tf.get_variable("weights", [2 << 20])) * features)

    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        model_fn(tf.zeros([1]), None, None, None)
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "model.ckpt"), 5)
    with raises("folder_not_writable", kind=ConfigError) as caught:
        _export(path, small_disk / "out/5", model_fn=model_fn)
    assert "No space left on device" in str(caught.value) and f"{small_disk}/out/5" in str(caught.value)
    assert os.listdir(small_disk / "out") == []


def _fail():
    raise OSError("the disk is full")


def test_only_what_killed_exports_have_left_is_removed(trained, tmp_path):
    """Of any step. On another machine nobody can look: what is a day old was of an export that was killed."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    killed = json.loads(folder_lock.lock_text("", "", 0))
    killed["process"] = ended.pid
    for step, holder, secs in ((1, killed, None), (2, json.loads(folder_lock.lock_text("", "", 0)), 0),
                               (3, {"machine": "another"}, None), (4, {"machine": "another"}, 0)):
        (tmp_path / f"temp-{step}-abcdefgh/model").mkdir(parents=True)
        (tmp_path / f"temp-{step}-abcdefgh/export.lock").write_text(json.dumps(holder))
        if secs is not None:
            os.utime(tmp_path / f"temp-{step}-abcdefgh/export.lock", (secs, secs))
    (tmp_path / "temp-files").mkdir()
    _export(trained, tmp_path / "5")
    assert sorted(os.listdir(tmp_path)) == ["5", "temp-2-abcdefgh", "temp-3-abcdefgh", "temp-files"]


@pytest.mark.parametrize("name,files,is_removed", [
    ("temp-5", ["saved_model.pb", "variables/variables.index"], True),
    ("temp-old-4", ["saved_model.pb", "assets.extra/pushes", "fingerprint.pb"], True),
    ("temp-6-ab_3d5fg", [], True),
    ("temp-6-ab_3d5fg", ["model/saved_model.pb", "model-0/variables/variables.index"], True),
    ("temp-7", ["notes.txt", "saved_model.pb"], False),
    ("temp-files", [], False)])
def test_a_folder_of_an_export_without_its_lock_is_removed_after_a_day(trained, tmp_path, name, files, is_removed):
    """Of an earlier version, or killed before the lock was there. Issue: it stayed for ever. A user's stays."""
    folder = tmp_path / name
    folder.mkdir()
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    _export(trained, tmp_path / "8")
    assert folder.exists()
    os.utime(folder, (0, 0))
    _export(trained, tmp_path / "9")
    assert folder.exists() != is_removed


def test_a_file_or_link_that_is_called_as_a_temporary_folder_hinders_no_export(trained, tmp_path):
    """And what the link leads to stays."""
    (tmp_path / "temp-1").touch()
    (tmp_path / "model/variables").mkdir(parents=True)
    os.utime(tmp_path / "model", (0, 0))
    (tmp_path / "temp-2").symlink_to(tmp_path / "model")
    _export(trained, tmp_path / "5")
    assert (tmp_path / "model/variables").exists()
