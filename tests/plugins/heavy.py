"""The model and dataset of `tiny`, with a ballast that makes each checkpoint take its time to write."""

import tensorflow.compat.v1 as tf
from tiny import DEFAULT_PARAMS as TINY_PARAMS
from tiny import input_fn  # noqa: F401 (part of the dataset's contract)
from tiny import model_fn as tiny_model_fn

DEFAULT_PARAMS = {**TINY_PARAMS, "ballast": 5_000_000}


def model_fn(features, labels, mode, params):
    """Linear regression with so many float32 more that nothing trains."""
    tf.get_variable("ballast", [params["ballast"]], initializer=tf.ones_initializer(), trainable=False)
    return tiny_model_fn(features, labels, mode, params)
