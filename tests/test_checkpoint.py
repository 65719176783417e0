"""Which checkpoint there is, and whether it fits."""

from __future__ import annotations

import os

import pytest
import tensorflow.compat.v1 as tf

from ps_train import checkpoint
from ps_train.errors import CheckpointError, ConfigError


def save(folder, variables):
    """Saves variables of these shapes and dtypes; returns the path."""
    with tf.Graph().as_default(), tf.Session() as session:
        for name, (shape, dtype) in variables.items():
            tf.get_variable(name, shape, dtype, tf.zeros_initializer())
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, os.path.join(str(folder), "model.ckpt"), 7)


def check(path, variables, partitioner=None):
    """Checks a graph with these variables against the checkpoint."""
    with tf.Graph().as_default(), tf.variable_scope("", partitioner=partitioner):
        for name, (shape, dtype) in variables.items():
            tf.get_variable(name, shape, dtype, tf.zeros_initializer())
        checkpoint.check_fits(path, tf.global_variables())


SAVED = {"a": ([2, 3], tf.float32), "b": ([], tf.int64)}


def test_the_same_variables_fit(tmp_path):
    """So do fewer: another optimizer's slots may be left over."""
    path = save(tmp_path, SAVED)
    check(path, SAVED)
    check(path, {"a": SAVED["a"]})


@pytest.mark.parametrize(("name", "wanted", "message"), [
    ("c", ([1], tf.float32), "c is missing"),
    ("a", ([2, 4], tf.float32), r"a has shape \[2, 3\] instead of \[2, 4\]"),
    ("b", ([], tf.int32), "b is int64 instead of int32"),
])
def test_what_differs_is_listed(tmp_path, name, wanted, message):
    """With the path, and what to do."""
    path = save(tmp_path, SAVED)
    with pytest.raises(CheckpointError, match=f"ckpt-7 is of another model or optimizer: {message};.*--train_dir"):
        check(path, {**SAVED, name: wanted})


def test_many_differences_are_counted(tmp_path):
    """The line stays readable."""
    path = save(tmp_path, SAVED)
    with pytest.raises(CheckpointError, match="and 12 more"):
        check(path, {f"v{index:02}": ([1], tf.float32) for index in range(20)})


def test_a_partitioned_variable_is_one_in_the_checkpoint(tmp_path):
    """A model that is cut into three parts fits one that was saved whole, and the other way round."""
    whole = {"a": ([6, 2], tf.float32)}
    check(save(tmp_path, whole), whole, tf.fixed_size_partitioner(3))
    with pytest.raises(CheckpointError, match=r"a has shape \[6, 2\] instead of \[7, 2\]"):
        check(save(tmp_path, whole), {"a": ([7, 2], tf.float32)}, tf.fixed_size_partitioner(3))


def test_latest_is_none_where_nothing_was_saved(tmp_path):
    """And the newest path where something was."""
    assert checkpoint.latest(str(tmp_path)) is None
    path = save(tmp_path, SAVED)
    assert checkpoint.latest(str(tmp_path)) == path


def test_a_train_dir_that_cannot_be_made_is_refused(tmp_path):
    """The error names it; a good one is made with its parents."""
    checkpoint.check_writable(str(tmp_path / "new" / "deep"))
    assert (tmp_path / "new" / "deep").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--train_dir: cannot make .*file/below"):
        checkpoint.check_writable(str(tmp_path / "file" / "below"))
