"""Calls the user's model_fn and checks what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.plugins.contracts import Model, ModelSpec
from ps_train.runtime import legacy_keras


def call_model_fn(
    model: Model, features: Any, labels: Any, mode: str, params: Mapping[str, Any]
) -> ModelSpec:
    """Adds the model to the current graph and returns its ModelSpec.

    Raises:
      UserCodeError: model_fn returned something other than a ModelSpec with a scalar loss, or needs tf_keras, which is
        not installed.
    """
    # Without the auxiliary scope a second call in the graph would prefix the names of operations with "_1/".
    with tf.variable_scope(tf.get_variable_scope(), auxiliary_name_scope=False):
        try:
            spec = model.model_fn(features=features, labels=labels, mode=mode, params=params)
        except (AttributeError, ImportError) as error:
            if advice := legacy_keras.advice(error):
                raise UserCodeError(f"{model.name}.model_fn: {advice}") from error
            raise
    if not isinstance(spec, ModelSpec):
        raise UserCodeError(f"{model.name}.model_fn returned {type(spec).__name__}; it must return a "
                            "ps_train.ModelSpec, which has the same fields as an EstimatorSpec")
    if not tf.is_tensor(spec.loss) or spec.loss.shape.rank not in (None, 0):
        raise UserCodeError(f"{model.name}.model_fn returned the loss {spec.loss!r}; it must be a scalar tensor")
    return spec
