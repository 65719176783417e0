"""Waiting on a ps until something is so: whoever changes it rings, and whoever waits looks again.

A ring is kept until it is heard, and several count as one: so none is missed, and one too many costs a look.
"""

from __future__ import annotations

from typing import Callable

import tensorflow.compat.v1 as tf


class Condition:
    """The bell of one task that waits, on one device; an accumulator of nothings, which needs no room."""

    def __init__(self, name: str, device: str) -> None:
        """Makes it; `name` is what the tasks know it by."""
        self._device = device
        with tf.device(device):
            self._rings = tf.ConditionalAccumulator(tf.float32, [], name)

    def ring(self) -> tf.Operation:
        """Lets the one that waits look again, now or when it comes."""
        with tf.device(self._device):
            return self._rings.apply_grad(0.0, tf.constant(tf.int64.max, tf.int64))  # a ring is never stale

    def wait_while(self, condition: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Returns a tensor that is there once `condition()`, a bool scalar read on the same device, is false."""

        def look_again(_: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([self._rings.take_grad(1)]):
                return condition()

        with tf.device(self._device):
            return tf.while_loop(lambda is_so: is_so, look_again, [condition()], parallel_iterations=1,
                                 back_prop=False)
