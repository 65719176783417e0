"""The optimizers that --optimizer names."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_MOMENTUM = 0.9
_OPTIMIZERS = {
    "sgd": tf.train.GradientDescentOptimizer,
    "momentum": lambda learning_rate: tf.train.MomentumOptimizer(learning_rate, _MOMENTUM),
    "adagrad": tf.train.AdagradOptimizer,
    "adam": tf.train.AdamOptimizer,
    "rmsprop": tf.train.RMSPropOptimizer,
    "ftrl": tf.train.FtrlOptimizer,
}


def make_optimizer(name: str, learning_rate: float) -> tf.train.Optimizer:
    """Returns the optimizer of that name, with TensorFlow's defaults and a momentum of 0.9."""
    return _OPTIMIZERS[name](learning_rate)
