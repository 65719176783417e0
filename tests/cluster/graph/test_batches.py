"""The mini-batches of a dataset plug-in."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train.errors import UserCodeError
from ps_train.graph.input.arrays import input_feed
from ps_train.graph.input.batches import Batches
from ps_train.plugins.contracts import Dataset
from tests.tensorflow_mode import tf

FEATURES, LABELS = np.arange(6, dtype=np.float32), np.arange(6, dtype=np.int32)


def batches_of(made) -> Batches:
    """Returns the mini-batches of an input_fn that returns what the function makes."""
    return Batches(Dataset("d", lambda mode, params, shard: made(), lambda params: None, {}), ps_train.EVAL, {}, (0, 1))


def test_a_dataset_gives_another_mini_batch_each_time():
    """In the same session run."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        batches = batches_of(lambda: ps_train.from_arrays((FEATURES, LABELS), 3))
        asked = [batches.next(), batches.next()]
        session.run(batches.initializer, input_feed(graph))
        found = session.run(asked)
    assert not batches.is_one_a_run
    assert sorted(value for features, _ in found for value in features) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("form", [tuple, list])
def test_a_pair_of_tensors_is_taken_as_it_is(form):
    """As TensorFlow 1's input_fns return it; the features may be a dict."""
    with tf.Graph().as_default(), tf.Session() as session:
        batches = batches_of(lambda: form([{"x": tf.constant(FEATURES)}, tf.constant(LABELS)]))
        session.run(batches.initializer)
        features, labels = session.run(batches.next())
    assert batches.is_one_a_run
    np.testing.assert_array_equal(features["x"], FEATURES)
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize("made", [lambda: 5, lambda: tf.constant(1.0), lambda: (FEATURES, LABELS)])
def test_anything_else_is_refused(made):
    """With what it is and what it must be; arrays would be written into the graph."""
    with tf.Graph().as_default(), pytest.raises(UserCodeError, match="d.input_fn returned .*must return a tf.data"):
        batches_of(made)


def test_a_dataset_of_something_else_is_refused():
    """It must yield pairs."""
    with tf.Graph().as_default(), pytest.raises(UserCodeError, match="its dataset yields .* must yield"):
        batches_of(lambda: tf.data.Dataset.range(3)).next()
