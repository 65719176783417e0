"""Gradients of several workers, averaged beside the variable that they are for.

An accumulator has a step of its own. It drops what was computed for an earlier one, and each `take` raises it by one.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class Accumulator:
    """One accumulator on one device, of a dense or a sparse gradient, or of a count."""

    def __init__(self, accumulator: Any, device: str) -> None:
        """Wraps TensorFlow's own."""
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
        """Returns the mean of all that is there, or the number where it counts; waits while there is nothing."""
        with tf.device(self._device):
            return self._accumulator.take_indexed_slices_grad(1) if self._is_sparse else self._accumulator.take_grad(1)

    def size(self) -> tf.Tensor:
        """Returns how many are there, int32 scalar."""
        with tf.device(self._device):
            return self._accumulator.num_accumulated()

    def drop(self) -> tf.Operation:
        """Takes out what is there, if anything is: taking from nothing would wait."""
        with tf.device(self._device):
            return tf.cond(self._accumulator.num_accumulated() > 0,
                           lambda: tf.group(self._accumulator.take_grad(1)), tf.no_op)

    def set_step(self, step: tf.Tensor) -> tf.Operation:
        """Sets its own step."""
        with tf.device(self._device):
            return self._accumulator.set_global_step(step)


def for_gradient(gradient: Any, variable: tf.Variable) -> Accumulator:
    """Returns the accumulator of a variable's gradients, beside the variable."""
    name = f"{variable.op.name}/gradients"
    with tf.device(variable.device):
        if isinstance(gradient, tf.IndexedSlices):
            made = tf.SparseConditionalAccumulator(gradient.dtype, shape=(), shared_name=name)
        else:
            made = tf.ConditionalAccumulator(gradient.dtype, variable.shape, shared_name=name)
    return Accumulator(made, variable.device)


def for_count(name: str, device: str) -> Accumulator:
    """Returns an accumulator that counts: push 1.0, and `take` returns how many were pushed, float32 scalar."""
    with tf.device(device):
        return Accumulator(tf.ConditionalAccumulator(tf.float32, [], name, reduction_type="SUM"), device)
