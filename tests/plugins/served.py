"""A model and a dataset for tests of what can be done with a checkpoint: 64 examples in batches of 24.

`constant` is a metric that never becomes better.
"""

from __future__ import annotations

import time

import numpy as np
import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"width": 2, "batch_secs": 0.0}


def features():
    """Returns the features: x float32 [64, 4], kind int64 [64]."""
    rng = np.random.default_rng(3)
    return {"x": rng.normal(size=(64, 4)).astype(np.float32), "kind": np.arange(64) % 5}


def labels():
    """Returns float32 [64]."""
    return features()["x"].sum(axis=1)


def model_fn(features, labels, mode, params):
    """Linear in x, with an offset for each kind."""
    weights = tf.get_variable("weights", [4, params["width"]], initializer=tf.ones_initializer())
    offsets = tf.get_variable("offsets", [5], initializer=tf.zeros_initializer())
    pair = tf.matmul(features["x"], weights) + tf.gather(offsets, features["kind"])[:, tf.newaxis]
    predictions = {"pair": pair, "kind": features["kind"], "name": tf.as_string(features["kind"])}
    if mode == ps_train.PREDICT:
        return ps_train.ModelSpec(predictions=predictions)
    loss = tf.reduce_mean(tf.square(pair[:, 0] - labels))
    return ps_train.ModelSpec(loss=loss, predictions=predictions, eval_metric_ops={
        "mean": tf.metrics.mean(pair), "constant": tf.metrics.mean(tf.ones([1]))})


def input_fn(mode, params, shard):
    """Returns ({"x", "kind"}, labels); repeated in training."""
    index, count = shard
    arrays = [array[index::count] for array in (*features().values(), labels())]
    training = mode == ps_train.TRAIN
    dataset = ps_train.from_arrays(arrays, 24, shuffle=training, repeat=training, seed=params["seed"])

    def wait(label):
        time.sleep(params["batch_secs"])
        return label

    @tf.autograph.experimental.do_not_convert
    def named(x, kind, label):
        if training and params["batch_secs"]:  # at most one batch in this time, so that the cores are free for others
            label = tf.ensure_shape(tf.numpy_function(wait, [label], tf.float32), label.shape)
        return {"x": x, "kind": kind}, label

    return dataset.map(named)
