"""MNIST or the drawn digits at a bounded rate, so that a fault comes in the midst of training on any machine."""

import time

import tensorflow.compat.v1 as tf

import ps_train
from data import digits, mnist

DEFAULT_PARAMS = {"source": "digits", "batch_secs": 0.03}
_SOURCES = {"digits": digits, "mnist": mnist}


def prepare(params):
    """Does what the source needs."""
    _SOURCES[params["source"]].prepare(params)


def input_fn(mode, params, shard):
    """The batches of the source; in training at most one in `batch_secs` comes to each worker."""
    return at_bounded_rate(_SOURCES[params["source"]].input_fn(mode, params, shard), mode, params)


def at_bounded_rate(dataset, mode, params):
    """Returns the dataset of (features, labels), which in training gives at most one mini-batch in `batch_secs`."""
    if mode != ps_train.TRAIN:
        return dataset

    def wait(labels):
        time.sleep(params["batch_secs"])
        return labels

    @tf.autograph.experimental.do_not_convert
    def slowly(features, labels):
        return features, tf.ensure_shape(tf.numpy_function(wait, [labels], labels.dtype), labels.shape)

    return dataset.map(slowly)
