"""A model plug-in of many small variables, where what a step costs is their number: 200 of 64 floats by default."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train import ModelSpec

DEFAULT_PARAMS = {"count": 200, "size": 64}


def model_fn(features, labels, mode, params) -> ModelSpec:
    """Fits labels by a linear function of the first `size` features, whose weights are the sum of `count` variables."""
    del mode  # nothing in it differs
    count, size = params["count"], params["size"]
    parts = [tf.get_variable(f"part_{number}", [size], initializer=tf.zeros_initializer()) for number in range(count)]
    predictions = tf.linalg.matvec(features[:, :size], tf.add_n(parts) / count)
    labels = tf.cast(labels, tf.float32)
    loss = tf.reduce_mean(tf.square(predictions - labels))
    return ModelSpec(loss=loss, predictions=predictions, eval_metric_ops={
        "error": tf.metrics.mean_absolute_error(labels, predictions)})
