"""--init_checkpoint of a model with mutable tables, whose entries come with its variables."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train import testing
from ps_train.parts.warm_start.entries import Entries
from ps_train.parts.warm_start.part import WarmStart
from ps_train.storage import checkpoints
from tests.errors import raises
from tests.tensorflow_mode import tf


def _tally(name="tally", kind=tf.int64, shape=(), is_dense=False):
    default = tf.zeros(shape, kind)
    if is_dense:
        return tf.lookup.experimental.DenseHashTable(tf.int64, kind, default, -1, -2, name=name)
    return tf.lookup.experimental.MutableHashTable(tf.int64, kind, default, name=name)


@pytest.fixture
def path(tmp_path):
    """A checkpoint with a variable, and a table that counts."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("bias", initializer=5.0)
        filled = _tally().insert(tf.constant([3, 4], tf.int64), tf.constant([30, 40], tf.int64))
        session.run([tf.global_variables_initializer(), filled])
        return tf.train.Saver(checkpoints.saved_objects()).save(session, str(tmp_path / "model.ckpt"), 7)


def _started(path, pairs=(), **table):
    """Returns the entries of 3 and 9, and the bias, after a warm start; 9 had one before."""
    with tf.Graph().as_default(), tf.Session() as session:
        bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
        tally = _tally(**table)
        start = WarmStart(path, pairs, [bias], entries=Entries(checkpoints.saved_tables()))
        session.run([tf.global_variables_initializer(), tally.insert(
            tf.constant([9], tf.int64), tf.constant([90], tally.value_dtype))])
        start.load(session)
        start.log()
        return [*session.run(tally.lookup(tf.constant([3, 9], tf.int64))).tolist(), session.run(bias)]


@pytest.mark.parametrize(("pairs", "table", "expected"), [
    ((), {}, [30, 0, 5]), ((), {"name": "other"}, [0, 90, 5]),
    ([("tally", "other")], {"name": "other"}, [30, 0, 0]), ([("bias", "bias")], {}, [0, 90, 5])])
def test_tables_take_the_entries_of_the_names(path, pairs, table, expected):
    """Issue: they began empty, and nothing said so. As for variables: by their own names, or those of the map only."""
    assert _started(path, pairs, **table) == expected


def test_a_dense_table_takes_those_of_a_dense_table(tmp_path):
    """Its values have an axis more in a checkpoint."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("bias", initializer=6.0)
        filled = _tally(is_dense=True).insert(tf.constant([3], tf.int64), tf.constant([31], tf.int64))
        session.run([tf.global_variables_initializer(), filled])
        dense = tf.train.Saver(checkpoints.saved_objects()).save(session, str(tmp_path / "dense" / "model.ckpt"), 7)
    assert _started(dense, is_dense=True) == [31, 0, 6]


@pytest.mark.parametrize(("pairs", "table", "code", "part"), [
    ((), {"kind": tf.float32}, "checkpoint_of_another_model", "tally int64 -> float32 [] here, int64 -> int64 []"),
    ((), {"shape": [2]}, "checkpoint_of_another_model", "int64 -> int64 [2] here"),
    ((), {"is_dense": True}, "checkpoint_of_another_model", "tally dense int64 -> int64 [1] here"),
    ([("tall", "tally")], {}, "variable_missing", "no mutable table 'tall'; it has tally"),
    ([("tally", "talli")], {}, "variable_missing", "'talli'")])
def test_entries_that_do_not_fit_are_refused(path, pairs, table, code, part):
    """Another type or shape, and a name that is not there or not here."""
    with raises(code) as refused:
        _started(path, pairs, **table)
    assert part in str(refused.value)


def model_fn(features, labels, mode, params):
    """Counts its steps in a table."""
    tally = _tally()
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    count = tally.lookup(tf.constant([3], tf.int64))
    is_trained = mode == ps_train.TRAIN
    with tf.control_dependencies([tally.insert(tf.constant([3], tf.int64), count + 1)] if is_trained else []):
        return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(labels - tf.identity(bias))))


def input_fn(mode, params, shard):
    """Eight examples at a time."""
    return ps_train.from_arrays((np.ones([24, 4], np.float32), np.ones([24], np.float32)), 8)


def test_a_training_begins_with_them(path, tmp_path):
    """The counts of the training before go on, on a ps."""
    testing.run_in_threads(__name__, __name__, train_dir=tmp_path / "second", num_ps=2, num_workers=1, train_steps=6,
                           log_steps=0, init_checkpoint=path)
    saved = testing.read_checkpoint(tmp_path / "second")
    assert dict(zip(saved["tally-keys"].tolist(), saved["tally-values"].tolist())) == {3: 33, 4: 40}  # three batches
