"""The mini-batches of a dataset plug-in."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow.core.framework import dataset_options_pb2

import ps_train
from ps_train.graph.batches import Batches, input_feed
from ps_train.plugins.contracts import Dataset
from tests.errors import raises
from tests.tensorflow_mode import tf

FEATURES, LABELS = np.arange(6, dtype=np.float32), np.arange(6, dtype=np.int32)


def batches_of(make) -> Batches:
    """Returns the mini-batches of an input_fn that returns the result of `make`."""
    return Batches(Dataset("d", lambda mode, params, shard: make(), lambda params: None, {}), ps_train.EVAL, {}, (0, 1))


def test_a_dataset_gives_another_mini_batch_each_time():
    """In the same session run."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        batches = batches_of(lambda: ps_train.from_arrays((FEATURES, LABELS), 3))
        pairs = [batches.next(), batches.next()]
        session.run(batches.initializer, input_feed(graph))
        found = session.run(pairs)
    assert not batches.has_one_batch_per_run
    assert sorted(value for features, _ in found for value in features) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("form", [tuple, list])
def test_a_pair_of_tensors_is_taken_as_it_is(form):
    """As TensorFlow 1's input_fns return it; the features may be a dict."""
    with tf.Graph().as_default(), tf.Session() as session:
        batches = batches_of(lambda: form([{"x": tf.constant(FEATURES)}, tf.constant(LABELS)]))
        session.run(batches.initializer)
        features, labels = session.run(batches.next())
    assert batches.has_one_batch_per_run
    np.testing.assert_array_equal(features["x"], FEATURES)
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize("make", [lambda: 5, lambda: tf.constant(1.0), lambda: (FEATURES, LABELS)])
def test_anything_else_is_refused(make):
    """With what it is and what it must be; arrays would be written into the graph."""
    with tf.Graph().as_default(), raises("plugin_returned_wrong_type"):
        batches_of(make)


@pytest.mark.parametrize("chosen, tuned", [(None, False), (True, True), (False, False)])
def test_autotuning_is_off_unless_it_is_chosen(chosen, tuned):
    """Its thread can keep a lost session from closing for a minute, and with it every other session of the process."""
    def make():
        options = tf.data.Options()
        if chosen is not None:
            options.autotune.enabled = chosen
        return ps_train.from_arrays((FEATURES, LABELS), 3).with_options(options)

    with tf.Graph().as_default() as graph:
        batches_of(make)
    last = [node for node in graph.as_graph_def().node if node.op == "OptionsDataset"][-1]
    found = dataset_options_pb2.Options.FromString(last.attr["serialized_options"].s)
    assert found.autotune_options.enabled is tuned


def test_a_dataset_of_something_else_is_refused():
    """It must yield pairs."""
    with tf.Graph().as_default(), raises("plugin_returned_wrong_type"):
        batches_of(lambda: tf.data.Dataset.range(3)).next()
