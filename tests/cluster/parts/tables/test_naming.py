"""The name of ids in messages: the key of their feature, also after the model has processed it."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import ps_train
from ps_train.parts.tables import registry
from ps_train.storage import checkpoints
from ps_train.updates.update import Period
from tests import clusters
from tests.errors import raises
from tests.tensorflow_mode import tf

_Pair = collections.namedtuple("_Pair", "left right")
_IDS = {
    "the tensor itself": lambda ids: ids,
    "cast and reshaped": lambda ids: tf.reshape(tf.cast(ids, tf.int32), [-1, 1]),
    "a slice": lambda ids: ids[1:],
    "hashed": lambda ids: tf.strings.to_hash_bucket_fast(tf.as_string(ids), 10),
    "squeezed": lambda ids: tf.squeeze(ids[:, tf.newaxis], 1),
    "masked": lambda ids: tf.where(ids > 3, ids, tf.zeros_like(ids)),
    "split": lambda ids: tf.split(ids, [1, -1])[0],
}


@pytest.mark.parametrize("change", _IDS.values(), ids=_IDS)
def test_the_key_is_found_through_operations(change):
    """Of ids in a dict; another feature that only gives the shape or the places is not named."""
    with tf.Graph().as_default():
        features = {"user": tf.placeholder(tf.int64, [None]), "item": tf.placeholder(tf.int64, [None])}
        names = registry.names_of(features)
        assert registry.feature_of(change(features["item"]), names) == "item"
        shaped = tf.reshape(change(features["item"]), [tf.shape(features["user"])[0], -1])
        assert registry.feature_of(tf.gather(shaped, features["user"]), names) == "item"


def test_every_structure_of_features_has_names():
    """One tensor, tuples, nested dicts, NamedTuples, labels, and the parts of sparse and ragged features."""
    with tf.Graph().as_default():
        ids = [tf.placeholder(tf.int64, [None]) for _ in range(7)]
        sparse, ragged = tf.sparse.placeholder(tf.int64), tf.ragged.placeholder(tf.int64, 1)
        structure = {"user": {"id": ids[0], "past": (ids[1], sparse)}, "pair": _Pair(ids[2], ragged)}
        names = registry.names_of(structure, {"next": ids[3]})
        found = [registry.feature_of(one, names) for one in (
            ids[0], ids[1], sparse.values, ids[2], ragged.flat_values, ragged.to_sparse().values, ids[3])]
        assert found == ["user/id", "user/past[0]", "user/past[1]", "pair/left", "pair/right", "pair/right",
                         "labels/next"]
        assert registry.feature_of(ids[4][:, tf.newaxis], registry.names_of(ids[4], ids[5])) == "features"
        assert registry.feature_of(ids[5], registry.names_of(ids[4], ids[5])) == "labels"
        assert registry.feature_of(ids[5], registry.names_of((ids[4], ids[5]))) == "features[1]"


def test_ids_of_several_features_name_them_and_other_ids_their_operation():
    """At most four names; what comes from no feature is called as before."""
    with tf.Graph().as_default():
        features = {name: tf.placeholder(tf.int64, [None]) for name in "abcdef"}
        names = registry.names_of(features)
        assert registry.feature_of(features["b"] * 10 + features["c"], names) == "b or c"
        assert registry.feature_of(tf.stack(list(features.values()), 1), names) == "a or b or c or d or 2 more"
        assert registry.feature_of(tf.range(3, name="places"), names) == "places"


def _model_fn(features, labels, mode, params):
    users, items = (ps_train.embedding_table(name, 2, num_rows=10) for name in ("users", "items"))
    rows = users.lookup(features["user"]) * items.lookup(tf.reshape(tf.cast(features["item"], tf.int32), [-1]))
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(tf.reduce_sum(rows, 1) + bias - labels)))


_MODEL = clusters.contracts.Model("tables", _model_fn, {})


def _dataset(bad_row):
    """Returns a dataset of dicts, of which one row has an item that is not there; None for no row."""
    rows = np.arange(48)
    arrays = ({"user": rows % 10, "item": np.where(rows == bad_row, 10, rows % 10)}, np.zeros(48, np.float32))
    return clusters.contracts.Dataset(
        "dicts", lambda mode, params, shard: ps_train.from_arrays(arrays, 4, repeat=mode == ps_train.TRAIN),
        lambda params: None, {})


_MODES = {"async": {}, "local steps": {"period": Period(2)},
          "several steps at once": {"steps_per_execution": 3}}


@pytest.mark.parametrize("options", _MODES.values(), ids=_MODES)
def test_a_bad_id_names_its_feature_in_every_mode(tmp_path, start_servers, options):
    """Where the model is built on a mini-batch that waits, or in a loop, too."""
    worker = clusters.Worker(
        start_servers(1, 1), 0, tmp_path, 6, model=_MODEL, dataset=_dataset(bad_row=2), **options)
    worker.start()
    with raises("bad_id") as caught:
        worker.result()
    assert str(caught.value).startswith("worker:0: table items: item has the id 10; allowed: 0 to 9; ")


def test_a_bad_id_names_its_feature_in_an_evaluation(tmp_path, start_servers):
    """Of a checkpoint that was trained without it."""
    clusters.train_together(start_servers(1, 1), tmp_path, 1, 1, model=_MODEL, dataset=_dataset(bad_row=None))
    evaluator = clusters.evaluation.Evaluator(_MODEL, {}, _dataset(bad_row=2), {})
    with raises("bad_id") as caught:
        evaluator.evaluate(checkpoints.newest_sound(str(tmp_path)))
    assert str(caught.value).startswith("evaluation: table items: item has the id 10; allowed: 0 to 9; ")
