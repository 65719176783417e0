"""A model and dataset of one embedding table whose rows are touched in turn, all over it: what a large table costs.

Step n touches rows `n * batch_size` and following of a permutation of all rows, so after num_rows / batch_size steps
each row was touched once. Every gradient is 1, so what a row has then follows from its id: a checkpoint can be checked
without a second copy of the table.
"""

from __future__ import annotations

import math

import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"num_rows": 100_000, "dim": 8, "is_dynamic": False, "num_sampled": 10_000, "expected_change": 1.0}
_BITS = 2**62 - 1  # dynamic ids are as far apart as hashes of strings


def input_fn(mode, params, shard):
    """Yields features {"ids": int64 [batch]} and labels of zeros; held out are ids that one round has touched once."""
    index, count = shard
    if mode == ps_train.TRAIN:
        size = params["batch_size"]
        starts = tf.data.Dataset.range(index, 2**62, count)
        numbers = starts.map(lambda start: start * size + tf.range(size, dtype=tf.int64))
    else:
        spread = (params["num_rows"] - params["batch_size"]) // params["num_sampled"]
        sampled = params["batch_size"] + tf.range(index, params["num_sampled"], count, dtype=tf.int64) * spread
        numbers = tf.data.Dataset.from_tensor_slices(sampled).batch(1000)
    return numbers.map(lambda own: ({"ids": ids_of(own, params)}, tf.zeros_like(own, tf.float32)))


def ids_of(numbers: tf.Tensor, params) -> tf.Tensor:
    """Returns the ids of places in the permutation, int64 [n]; the place num_rows is place 0 again."""
    num_rows = params["num_rows"]
    factor = next(number for number in range(round(0.618 * num_rows), 2 * num_rows) if math.gcd(number, num_rows) == 1)
    rows = tf.math.floormod(numbers % num_rows * factor, num_rows)
    return tf.bitwise.bitwise_and(rows * 0x1E3779B97F4A7C15, _BITS) if params["is_dynamic"] else rows


def model_fn(features, labels, mode, params):
    """Has the loss sum(values), and the mean error of values that were touched once."""
    del labels
    num_rows = None if params["is_dynamic"] else params["num_rows"]
    table = ps_train.embedding_table("items", params["dim"], num_rows, initial_limit=0.0)
    values = table.lookup(features["ids"])
    spec = ps_train.ModelSpec(loss=tf.reduce_sum(values), predictions=values)
    if mode == ps_train.TRAIN:
        return spec
    return spec._replace(eval_metric_ops={"error": tf.metrics.mean(tf.abs(values + params["expected_change"]))})
