"""numpy arrays as a tf.data pipeline that stays out of the GraphDef.

    arrays --> placeholders (fed once, when the iterator is initialised) --> an epoch's order --> gathered batches

Under eager execution, which `ps_train keras` uses, there is nothing to feed: there the arrays are tensors.

`tf.data.Dataset.from_tensor_slices(array)` writes the array into the GraphDef, which every session sends to its
master and which may not be larger than 2 GiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

_FEEDS = "ps_train_input_feeds"


def from_arrays(
    arrays: Sequence[np.ndarray],
    batch_size: int,
    shuffle: bool = False,
    repeat: bool = False,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of mini-batches of the arrays.

    Args:
      arrays: arrays of the same first dimension, the examples.
      batch_size: examples in a mini-batch.
      shuffle: draw the examples in a new order in each epoch, each one once an epoch.
      repeat: start again after the last example; then every batch is full. Else the last one may be smaller.
      seed: seed of the shuffling, or None for another order in each run.

    Returns:
      A dataset of tuples, one [batch, ...] tensor for each array, in the array's dtype. In graph mode its iterator
      must be initialised with `feed_dict=input_feed(graph)`; a worker of ps_train does so.

    Raises:
      ValueError: the arrays differ in length, or are empty.
    """
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1 or not lengths.isdisjoint({0}):
        raise ValueError(f"arrays: got {sorted(lengths)} examples; allowed: the same number in each, at least 1")
    to_tensor = tf.constant if tf.executing_eagerly_outside_functions() else _placeholder
    sources = [to_tensor(array) for array in arrays]
    count = len(arrays[0])

    # Neither has control flow, and would be written to a temporary file.
    @tf.autograph.experimental.do_not_convert
    def order(_: tf.Tensor) -> tf.Tensor:
        indices = tf.range(count, dtype=tf.int64)
        return tf.random.shuffle(indices, seed=seed) if shuffle else indices

    @tf.autograph.experimental.do_not_convert
    def cut(rows: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(tf.gather(source, rows) for source in sources)

    # An epoch at a time, from which batches are cut: what is done for each example costs more than to gather a batch.
    epochs = tf.data.Dataset.from_tensors(0).repeat(None if repeat else 1)
    batches = epochs.map(order).rebatch(batch_size).map(cut)
    if not tf.executing_eagerly_outside_functions():
        return batches
    num_batches = tf.data.experimental.INFINITE_CARDINALITY if repeat else math.ceil(count / batch_size)
    return batches.apply(tf.data.experimental.assert_cardinality(num_batches))  # `ps_train keras` asks for it


def _placeholder(array: np.ndarray) -> tf.Tensor:
    placeholder = tf.placeholder(array.dtype, array.shape, name="examples")
    tf.add_to_collection(_FEEDS, (placeholder, array))
    return placeholder


def input_feed(graph: tf.Graph) -> dict[Any, np.ndarray]:
    """Returns the placeholder -> array that initialises the iterators over `from_arrays` in the graph."""
    return dict(graph.get_collection(_FEEDS))
