"""The losses of `tf.contrib.learn`'s heads.

Each takes labels, logits [batch, size] and weights [batch, 1] or None, and returns two means, float32 []: over the
numbers of a batch, by which a model trains, and over the weights, which is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import weights_broadcast_ops  # it has no public name

from ps_train.parts.legacy.names.learn_metrics import argument_names

Losses = tuple[tf.Tensor, tf.Tensor]


def as_loss(loss_fn: Callable) -> Callable:
    """Returns such a function for one that returns one loss.

    Raises:
      ValueError: it lacks one of the arguments.
    """
    for name in ("labels", "logits", "weights"):
        if name not in argument_names(loss_fn):
            raise ValueError(f"loss_fn must have the arguments labels, logits and weights; {name} is missing")

    def losses(labels: Any, logits: Any, weights: Any) -> Losses:
        loss = loss_fn(labels, logits) if weights is None else loss_fn(labels, logits, weights)
        return loss, loss
    return losses


def _means(losses: tf.Tensor, weights: Any) -> Losses:
    if weights is None:
        mean = tf.reduce_mean(losses)
        return mean, mean
    weights = weights_broadcast_ops.broadcast_weights(weights, losses)
    weighted = losses * weights
    return tf.reduce_mean(weighted), tf.reduce_sum(weighted) / tf.reduce_sum(weights)


def _column(values: Any) -> tf.Tensor:
    """Returns values [batch] as [batch, 1]."""
    values = tf.convert_to_tensor(values)
    return values[:, tf.newaxis] if values.shape.rank == 1 else values


def squared(labels: Any, logits: Any, weights: Any) -> Losses:
    """The squares of the differences."""
    labels, logits = _column(labels), _column(logits)
    logits.shape.assert_is_compatible_with(labels.shape)
    return _means(tf.math.squared_difference(logits, tf.cast(labels, tf.float32)), weights)


def poisson(labels: Any, logits: Any, weights: Any) -> Losses:
    """The logarithms of probabilities of counts, with the logarithms of factorials of labels."""
    labels, logits = _column(labels), _column(logits)
    logits.shape.assert_is_compatible_with(labels.shape)
    return _means(tf.nn.log_poisson_loss(labels, logits, compute_full_loss=True), weights)


def log_loss(labels: Any, logits: Any, weights: Any) -> Losses:
    """The cross entropies of two classes; labels [batch] or [batch, 1] are from 0 to 1."""
    labels = _column(tf.cast(labels, tf.float32))
    return _means(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits), weights)


def sigmoid_cross_entropy(labels: Any, logits: Any, weights: Any) -> Losses:
    """The cross entropies of each class; labels [batch, size] are from 0 to 1."""
    labels = tf.cast(labels, tf.float32)
    return _means(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits), weights)


def cross_entropy(labels: Any, logits: Any, weights: Any) -> Losses:
    """The cross entropies of several classes; labels are ids [batch] or [batch, 1].

    Raises:
      ValueError: the labels are no ids.
    """
    labels = tf.convert_to_tensor(labels)
    if not labels.dtype.is_integer:
        raise ValueError(f"the labels of several classes must be whole numbers; got {labels.dtype.name}")
    is_column = labels.shape.rank == 2
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.squeeze(labels, 1) if is_column else labels, logits=logits)
    return _means(losses[:, tf.newaxis] if is_column else losses, weights)


def hinge(labels: Any, logits: Any, weights: Any) -> Losses:
    """The hinge losses of two classes; labels [batch] or [batch, 1] are 0 or 1."""
    losses = tf.losses.hinge_loss(tf.reshape(labels, [-1, 1]), logits, reduction=tf.losses.Reduction.NONE)
    return _means(losses, weights)
