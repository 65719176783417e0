"""A model whose gradients are constants: 2, 1 and 1 for three rows of a table, and 3 for a dense variable."""

from __future__ import annotations

import numpy as np

import ps_train
from tests.tensorflow_mode import tf

IDS = np.array([1, 1, 2, 5])
ROWS = {1: 2.0, 2: 1.0, 5: 1.0}  # id -> its gradient
DENSE = 3.0


def input_fn(mode, params, shard):
    """Returns the same mini-batch again and again; once in "eval"."""
    dataset = tf.data.Dataset.from_tensors((IDS, np.zeros(4, np.float32)))
    return dataset.repeat() if mode == ps_train.TRAIN else dataset


def model_fn(features, labels, mode, params):
    """All values begin at 0."""
    rows = ps_train.embedding_table("rows", dim=2, num_rows=10, initial_limit=0.0).lookup(features)
    dense = tf.get_variable("dense", [2], initializer=tf.zeros_initializer())
    return ps_train.ModelSpec(loss=tf.reduce_sum(rows) + DENSE * tf.reduce_sum(dense))
