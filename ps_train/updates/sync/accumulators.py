"""Accumulators: each averages the gradients of several workers, on the ps of the variable that they are for.

An accumulator has a step. It drops gradients that were computed for an earlier step, and each `take` raises
its step by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf


class Accumulator:
    """An accumulator on one device, for a dense gradient, a sparse gradient or a count."""

    def __init__(self, accumulator: Any, device: str) -> None:
        """Wraps a TensorFlow accumulator."""
        self._accumulator = accumulator
        self._device = device
        self._is_sparse = isinstance(accumulator, tf.SparseConditionalAccumulator)

    def push(self, gradient: Any, step: tf.Tensor) -> tf.Operation:
        """Adds a gradient that was computed for a global step."""
        with tf.device(self._device):
            if self._is_sparse:
                return self._accumulator.apply_indexed_slices_grad(gradient, step)
            return self._accumulator.apply_grad(gradient, step)

    def take(self) -> Any:
        """Returns the mean (or the count) and empties the accumulator; waits while it is empty."""
        with tf.device(self._device):
            return self._accumulator.take_indexed_slices_grad(1) if self._is_sparse else self._accumulator.take_grad(1)

    def size(self) -> tf.Tensor:
        """Returns how many gradients it contains, int32 scalar."""
        with tf.device(self._device):
            return self._accumulator.num_accumulated()

    def drop(self) -> tf.Operation:
        """Empties the accumulator."""
        with tf.device(self._device):
            # Taking from an empty accumulator would wait.
            return tf.cond(self._accumulator.num_accumulated() > 0,
                           lambda: tf.group(self._accumulator.take_grad(1)), tf.no_op)

    def set_step(self, step: tf.Tensor) -> tf.Operation:
        """Sets the accumulator's own step."""
        with tf.device(self._device):
            return self._accumulator.set_global_step(step)


def restart(accumulators: Sequence[Accumulator], step: tf.Tensor) -> list[tf.Operation]:
    """Returns operations that empty accumulators and set their steps to a global step."""
    # The step is set twice: first to keep older gradients out, then because `drop` raises it.
    with tf.control_dependencies([accumulator.set_step(step) for accumulator in accumulators]):
        dropped = [accumulator.drop() for accumulator in accumulators]
    with tf.control_dependencies(dropped):
        return [accumulator.set_step(step) for accumulator in accumulators]


def gradient_accumulator(gradient: Any, variable: tf.Variable, *, sums: bool = False) -> Accumulator:
    """Returns the accumulator of a variable's gradients, on the ps of the variable.

    Args:
      sums: whether to sum the gradients. By default they are averaged: a row of a sparse gradient over those that have
        it.
    """
    name, reduction = f"{variable.op.name}/gradients", "SUM" if sums else "MEAN"
    with tf.device(variable.device):
        if isinstance(gradient, tf.IndexedSlices):
            accumulator = tf.SparseConditionalAccumulator(
                gradient.dtype, shape=(), shared_name=name, reduction_type=reduction)
        else:
            accumulator = tf.ConditionalAccumulator(
                gradient.dtype, variable.shape, shared_name=name, reduction_type=reduction)
    return Accumulator(accumulator, variable.device)


def summing(name: str, size: int, device: str) -> Accumulator:
    """Returns an accumulator of float64 [size], of which `take` returns the sum."""
    with tf.device(device):
        return Accumulator(tf.ConditionalAccumulator(tf.float64, [size], name, reduction_type="SUM"), device)
