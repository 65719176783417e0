"""A model plug-in of one large dense variable that is hardly computed with: what a step costs is to send it."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train import ModelSpec

DEFAULT_PARAMS = {"megabytes": 32}


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Fits labels by one number for all: the mean of a float32 vector of so many megabytes (2**20 bytes)."""
    del mode  # nothing in it differs
    weights = tf.get_variable("weights", [params["megabytes"] << 18], initializer=tf.zeros_initializer())
    predictions = tf.reduce_mean(weights) + 0.0 * features[:, 0]
    labels = tf.cast(labels, tf.float32)
    loss = tf.reduce_mean(tf.square(predictions - labels))
    return ModelSpec(loss=loss, predictions=predictions, eval_metric_ops={
        "error": tf.metrics.mean_absolute_error(labels, predictions)})
