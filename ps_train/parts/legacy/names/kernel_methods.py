"""`tf.contrib.kernel_methods`: random Fourier features, and the hinge loss of several classes."""

from __future__ import annotations

import abc
import math
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


class InvalidShapeError(Exception):
    """A tensor that is to be mapped has another shape."""


class DenseKernelMapper(abc.ABC):
    """Maps float [batch, input_dim] to [batch, output_dim], whose inner products are about those of a kernel."""

    name = input_dim = output_dim = None

    @abc.abstractmethod
    def map(self, input_tensor: tf.Tensor) -> tf.Tensor:
        """Returns the features of a batch."""


class RandomFourierFeatureMapper(DenseKernelMapper):
    """Features whose inner products are about those of a Gaussian kernel of a standard deviation.

    sqrt(2 / output_dim) cos(x w + b), w normal of the deviation 1 / stddev, b uniform in [0, 2 pi): Rahimi and Recht,
    https://people.eecs.berkeley.edu/~brecht/papers/07.rah.rec.nips.pdf
    """

    def __init__(self, input_dim: int, output_dim: int, stddev: float = 1.0, seed: int = 1,
                 name: str | None = None) -> None:
        """Takes the seed of numpy's random numbers, by which each task of a cluster gets the same w and b."""
        self.input_dim, self.output_dim = input_dim, output_dim  # type: ignore[assignment]
        self._stddev, self._seed = stddev, seed
        self.name = name or str(id(self))  # type: ignore[assignment]

    def map(self, input_tensor: tf.Tensor) -> tf.Tensor:
        """Returns float32 [batch, output_dim] for [batch, input_dim].

        Raises:
          InvalidShapeError: the tensor has another shape.
        """
        if input_tensor.shape.rank != 2:
            raise InvalidShapeError(f"a mapper takes [batch, {self.input_dim}]; got the shape {input_tensor.shape}")
        if input_tensor.shape[1] != self.input_dim:
            raise InvalidShapeError(f"this mapper takes {self.input_dim} features; got {input_tensor.shape[1]}")
        # It seeded numpy's own generator, and so the numbers that a script draws after it.
        np.random.seed(self._seed)
        factors = np.random.normal(scale=1.0 / self._stddev, size=[self.input_dim, self.output_dim])
        shifts = np.random.uniform(low=0.0, high=2 * np.pi, size=[self.output_dim])
        product = tf.matmul(input_tensor, tf.constant(factors, tf.float32)) + tf.constant(shifts, tf.float32)
        return math.sqrt(2.0 / self.output_dim) * tf.cos(product)  # type: ignore[operator]


def sparse_multiclass_hinge_loss(
    labels: tf.Tensor, logits: tf.Tensor, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str = tf.GraphKeys.LOSSES, reduction: str = tf.losses.Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> tf.Tensor:
    """Returns the loss max(0, 1 + the greatest other logit - the label's), float32 [].

    Args:
      labels: int [batch] or [batch, 1].
      logits: float [batch, classes].
      weights: a number, or [batch] or [batch, 1].
      scope: of the operations.
      loss_collection: to which the loss is added.
      reduction: of tf.losses.Reduction.

    Raises:
      ValueError: a shape or a type is another one.
    """
    with tf.name_scope(scope, "sparse_multiclass_hinge_loss") as name:
        weights = tf.convert_to_tensor(weights)
        for what, tensor, ranks in (
                ("logits", logits, (2,)), ("labels", labels, (1, 2)), ("weights", weights, (0, 1, 2))):
            if tensor.shape.rank not in ranks:
                raise ValueError(f"the rank of the {what} is {tensor.shape.rank}; allowed: {ranks}")
        if labels.dtype not in (tf.int32, tf.int64):
            raise ValueError(f"the labels are {labels.dtype.name}; allowed: int32, int64")
        logits = tf.cast(logits, tf.float32)
        classes = tf.shape(logits)[1]
        with tf.control_dependencies([tf.debugging.assert_less(labels, tf.cast(classes, labels.dtype))]):
            labels = tf.reshape(labels, [-1])
        if weights.shape.rank:
            weights = tf.reshape(weights, [-1])
            weights.shape.assert_is_compatible_with(labels.shape)
        own = tf.gather(logits, labels, axis=1, batch_dims=1)[:, tf.newaxis]
        margins = tf.nn.relu(logits - own + tf.one_hot(labels, classes, on_value=0.0, off_value=1.0))
        return tf.losses.compute_weighted_loss(
            tf.reduce_max(margins, axis=1), weights, name, loss_collection, reduction)
