"""A model and its data: the variable that it trains has a mask, and perhaps a moving average, beside it."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

import ps_train

DEFAULT_PARAMS = {"mask": 1.0, "has_average": True}


def input_fn(mode, params):
    """Yields ones."""
    batch = tf.data.Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8])))
    return batch.repeat() if mode == ps_train.TRAIN else batch


def model_fn(features, labels, mode, params):
    """Returns the spec."""
    weights = tf.get_variable("w", [4], initializer=tf.ones_initializer())
    mask = tf.get_variable("w/mask", [4], initializer=tf.constant_initializer(params["mask"]), trainable=False)
    predicted = tf.reduce_sum(features * weights * mask, 1)
    if mode == ps_train.TRAIN and params["has_average"]:
        average = tf.train.ExponentialMovingAverage(0.999, name="mean")
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, average.apply([weights]))
    return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(predicted - labels)), predictions=predicted)
