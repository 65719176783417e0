"""The heads of `tf.contrib.estimator`: those of tf.estimator, which take what the first ones took.

    multi_class_head(3).create_estimator_spec(features, mode, logits, labels, optimizer=tf.train.AdamOptimizer())

An optimizer is one of tf.train, the loss is reduced by tf.losses.Reduction, and a step runs the operations of
UPDATE_OPS, such as the moving averages of batch normalization.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

_REDUCTIONS = {tf.losses.Reduction.SUM: "sum", tf.losses.Reduction.SUM_OVER_BATCH_SIZE: "sum_over_batch_size"}


class _Head:
    """A head that takes a reduction and an optimizer of TensorFlow 1."""

    def __init__(self, *args: Any, loss_reduction: str | None = None, **kwargs: Any) -> None:
        if loss_reduction is not None:
            kwargs["loss_reduction"] = _REDUCTIONS.get(loss_reduction, loss_reduction)
        super().__init__(*args, **kwargs)

    def create_estimator_spec(self, features: Any, mode: str, logits: Any, labels: Any = None, optimizer: Any = None,
                              train_op_fn: Callable | None = None, regularization_losses: Any = None,
                              **others: Any) -> Any:
        """Returns the EstimatorSpec, whose step is that of the optimizer, or what `train_op_fn(loss)` returns."""
        if isinstance(optimizer, tf.train.Optimizer):
            train_op_fn, optimizer = functools.partial(_minimize, optimizer), None
        if mode == tf.estimator.ModeKeys.TRAIN:
            others.setdefault("update_ops", tf.get_collection(tf.GraphKeys.UPDATE_OPS))
        return super().create_estimator_spec(
            features, mode, logits, labels=labels, optimizer=optimizer, train_op_fn=train_op_fn,
            regularization_losses=regularization_losses, **others)


def _minimize(optimizer: tf.train.Optimizer, loss: tf.Tensor) -> tf.Operation:
    return optimizer.minimize(loss, global_step=tf.train.get_global_step())


multi_class_head, binary_classification_head, multi_label_head, multi_head, logistic_regression_head, _of_values, \
    _of_counts = (type(f"{name}Head", (_Head, getattr(tf.estimator, f"{name}Head")), {}) for name in (
        "MultiClass", "BinaryClass", "MultiLabel", "Multi", "LogisticRegression", "Regression", "PoissonRegression"))


def regression_head(weight_column: Any = None, label_dimension: int = 1, *args: Any, **kwargs: Any) -> Any:
    """`tf.estimator.RegressionHead`, whose first two arguments have another order."""
    return _of_values(label_dimension, weight_column, *args, **kwargs)


def poisson_regression_head(weight_column: Any = None, label_dimension: int = 1, *args: Any, **kwargs: Any) -> Any:
    """`tf.estimator.PoissonRegressionHead`, whose first two arguments have another order."""
    return _of_counts(label_dimension, weight_column, *args, **kwargs)
