"""Numpy arrays as a dataset: a tf.data pipeline that keeps them out of the GraphDef.

    arrays --> placeholders (fed once, when the iterator is initialised) --> shuffled row numbers --> gathered batches

`tf.data.Dataset.from_tensor_slices(array)` would write the array into the GraphDef, which every session sends to its
master, and which must be smaller than 2 GiB. It is for the input_fn of a plug-in: no task needs it. See
docs/decisions/input.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.graph.batches import feed_at_start, is_single_pass


def from_arrays(
    arrays: Sequence[Any], batch_size: int, shuffle: bool = False, repeat: bool = False, seed: int | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of mini-batches of the arrays.

    Args:
      arrays: arrays with the same first dimension, the number of examples, such as `(features, labels)`; each may also
        be a dict of arrays, and a list of numbers or texts counts as the array that `tf.constant` makes of it.
      batch_size: examples in a mini-batch.
      shuffle: whether each epoch has the examples in a new order.
      repeat: whether to start again after the last example, which makes every batch full; otherwise the last batch may
        be smaller.
      seed: seed of the shuffling, or None for another order in each run.

    Returns:
      A dataset of tuples with one [batch, ...] tensor for each array, in the array's dtype, or a dict of them for a
      dict. In graph mode, initialise its iterator with `feed_dict=input_feed(graph)`, as a worker of ps_train does.

    Raises:
      ValueError: the arrays differ in length, or are empty.
    """
    structure = tuple(map(_lists_as_arrays, arrays))
    flat = tf.nest.flatten(structure)
    lengths = {len(array) for array in flat}
    if len(lengths) != 1 or not lengths.isdisjoint({0}):
        raise ValueError(f"arrays: got {sorted(lengths)} examples; allowed: the same number in each, at least 1")
    if is_single_pass():
        shuffle = repeat = False
    # Eager execution, which `ps_train keras` uses, feeds nothing.
    sources = [tf.constant(array) if _is_eager() else _placeholder(array) for array in flat]
    batches = _row_numbers(len(flat[0]), batch_size, shuffle=shuffle, repeat=repeat, seed=seed)
    batches = batches.map(_gathering(tf.nest.pack_sequence_as(structure, sources)))
    if not _is_eager():
        return batches
    num_batches = tf.data.experimental.INFINITE_CARDINALITY if repeat else math.ceil(len(flat[0]) / batch_size)
    return batches.apply(tf.data.experimental.assert_cardinality(num_batches))  # `ps_train keras` asks for it


def _lists_as_arrays(arrays: Any) -> Any:
    """Returns an array, or a structure of arrays, with an array in place of each list of numbers or texts."""
    if isinstance(arrays, Mapping):
        return {name: _lists_as_arrays(entry) for name, entry in arrays.items()}
    if not isinstance(arrays, (list, tuple)) or any(np.ndim(entry) for entry in tf.nest.flatten(arrays)):
        return arrays
    return tf.make_ndarray(tf.make_tensor_proto(arrays))


def _row_numbers(count: int, batch_size: int, *, shuffle: bool, repeat: bool, seed: int | None) -> tf.data.Dataset:
    """Returns a dataset of the row numbers of each mini-batch."""
    # AutoGraph would write the function, which has no control flow to convert, to a temporary file.
    @tf.autograph.experimental.do_not_convert
    def order(_: tf.Tensor) -> tf.Tensor:
        indices = tf.range(count, dtype=tf.int64)
        return tf.random.shuffle(indices, seed=seed) if shuffle else indices

    # Shuffles a whole epoch, then cuts it into batches: any work per example costs more than gathering a batch.
    return tf.data.Dataset.from_tensors(0).repeat(None if repeat else 1).map(order).rebatch(batch_size)


def _gathering(sources: tuple[Any, ...]) -> Callable[[tf.Tensor], tuple[Any, ...]]:
    """Returns the function that gathers rows from each of the sources."""
    @tf.autograph.experimental.do_not_convert
    def gather(rows: tf.Tensor) -> tuple[Any, ...]:
        return tf.nest.map_structure(lambda source: tf.gather(source, rows), sources)

    return gather


def _is_eager() -> bool:
    return tf.executing_eagerly_outside_functions()


def _placeholder(array: np.ndarray) -> tf.Tensor:
    placeholder = tf.placeholder(array.dtype, array.shape, name="examples")
    feed_at_start(placeholder, array)
    return placeholder
