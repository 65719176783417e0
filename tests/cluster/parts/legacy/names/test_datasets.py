"""Datasets as scripts of TensorFlow 1.2 to 1.12 use them."""

from __future__ import annotations

import gc

import numpy as np

from ps_train.parts.legacy.names import datasets
from tests.tensorflow_mode import tf


def read_all(dataset):
    """Returns the elements of a dataset, by a one-shot iterator in the default graph."""
    element = tf.data.make_one_shot_iterator(datasets.in_default_graph(dataset)).get_next()
    found = []
    with tf.Session() as session:
        while True:
            try:
                found.append(session.run(element))
            except tf.errors.OutOfRangeError:
                return found


def test_a_dataset_may_be_of_another_graph_than_its_iterator():
    """With its functions, Python's among them; its devices are those of a cluster, which this session has not."""
    with tf.Graph().as_default(), tf.device("/job:worker/task:1"):
        dataset = tf.data.Dataset.from_tensor_slices({"a": tf.constant([1, 2, 3])}).map(
            lambda row: (row["a"], tf.py_func(lambda value: np.int32(value * 10), [row["a"]], tf.int32))).repeat(2)
    with tf.Graph().as_default():
        copied = datasets.in_default_graph(dataset)
        del dataset
        gc.collect()
        assert read_all(copied) == [(1, 10), (2, 20), (3, 30)] * 2


def test_a_dataset_of_the_default_graph_stays():
    """As it is."""
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.range(3)
        assert datasets.in_default_graph(dataset) is dataset and read_all(dataset) == [0, 1, 2]
