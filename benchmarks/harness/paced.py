"""A dataset plug-in: another one at a bounded rate, as if each step took longer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

import ps_train
from data import clicks, digits, mnist

DEFAULT_PARAMS = {**clicks.DEFAULT_PARAMS, "source": "digits", "pause_secs": 0.0, "validation_size": 0}
_SOURCES = {"clicks": clicks, "digits": digits, "mnist": mnist}


def prepare(params: Mapping[str, Any]) -> None:
    """Does what the source needs."""
    _SOURCES[params["source"]].prepare(params)


def input_fn(mode: str, params: Mapping[str, Any], shard: tuple[int, int]) -> tf.data.Dataset:
    """Returns the batches of the source; in training, one after a pause of `pause_secs`."""
    dataset = _SOURCES[params["source"]].input_fn(mode, params, shard)
    if mode != ps_train.TRAIN or not params["pause_secs"]:
        return dataset

    def pause(labels: Any) -> Any:
        time.sleep(params["pause_secs"])
        return labels

    @tf.autograph.experimental.do_not_convert
    def paused(features: Any, labels: Any) -> tuple[Any, Any]:
        return features, tf.ensure_shape(tf.numpy_function(pause, [labels], labels.dtype), labels.shape)

    return dataset.map(paused)
