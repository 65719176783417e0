"""The dataset plug-in of the recommender benchmarks: mini-batches of a folder from memory, or uniform ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from benchmarks.recommender import examples
from benchmarks.recommender.examples import NUM_FIELDS
from benchmarks.recommender.work import Work
from ps_train import from_arrays

DEFAULT_PARAMS: dict[str, Any] = dataclasses.asdict(Work())


def prepare(params: Mapping[str, Any]) -> None:
    """There is nothing to fetch: the tool has written the examples."""


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns ({"ids": int64 [batch, 26], "numbers": float32 [batch, 13]}, labels float32 [batch]) without end."""
    del mode  # nothing is evaluated
    work = Work(**{name: params[name] for name in DEFAULT_PARAMS})
    if work.fill:
        return uniform_batches(work, params["batch_size"], shard)
    return batches_of(params["data_dir"], params["batch_size"], shard)


def batches_of(folder: str, batch_size: int, shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns the mini-batches of a folder again and again; see `input_fn`."""
    arrays = examples.batches(folder, batch_size, shard)

    @tf.autograph.experimental.do_not_convert
    def unpack(ids: tf.Tensor, numbers: tf.Tensor, labels: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        # Each element is a batch of one mini-batch.
        return ({"ids": tf.ensure_shape(ids[0], [batch_size, NUM_FIELDS]),
                 "numbers": tf.ensure_shape(numbers[0], [batch_size, examples.NUM_NUMBERS])},
                tf.ensure_shape(labels[0], [batch_size]))

    return from_arrays(arrays, 1, repeat=True).map(unpack)


def uniform_batches(work: Work, batch_size: int, shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns mini-batches of distinct ids, those of the filling first; see `input_fn`. Labels are 0 and 1 in turn."""
    per_batch = batch_size * NUM_FIELDS
    num_filling = -(-work.num_ids // (per_batch * work.fill))

    @tf.autograph.experimental.do_not_convert
    def make(number: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        filling = (number * per_batch + tf.range(per_batch, dtype=tf.int64)) * work.fill % work.num_ids
        uniform = tf.random.stateless_uniform([per_batch], [number, 1], maxval=work.num_ids, dtype=tf.int64)
        ids = tf.where(number < num_filling, filling, uniform)
        labels = tf.cast(tf.range(batch_size) % 2, tf.float32)
        return {"ids": tf.reshape(ids, [batch_size, NUM_FIELDS])}, labels

    index, count = shard
    return tf.data.Dataset.range(index, 2**60, count).map(make)
