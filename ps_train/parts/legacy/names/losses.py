"""The functions of `tf.contrib.losses`, which also take the names that their arguments had until 0.12."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tf_slim.losses import loss_ops

from ps_train.parts.legacy.names.functions import renamed

(absolute_difference, hinge_loss, log_loss, mean_squared_error, mean_pairwise_squared_error, sigmoid_cross_entropy,
 softmax_cross_entropy, sparse_softmax_cross_entropy, compute_weighted_loss) = (
    renamed(getattr(loss_ops, name), targets="labels", target="labels", weight="weights") for name in (
        "absolute_difference", "hinge_loss", "log_loss", "mean_squared_error", "mean_pairwise_squared_error",
        "sigmoid_cross_entropy", "softmax_cross_entropy", "sparse_softmax_cross_entropy", "compute_weighted_loss"))


def cosine_distance(predictions: tf.Tensor, labels: tf.Tensor | None = None, dim: int | None = None,
                    weights: Any = 1.0, scope: str | None = None, targets: Any = None, weight: Any = None,
                    axis: int | None = None) -> tf.Tensor:
    """1 - the sum of products along an axis, of unit vectors."""
    return loss_ops.cosine_distance(
        predictions, targets if labels is None else labels, dim if axis is None else axis,
        weights if weight is None else weight, scope)
