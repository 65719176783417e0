"""A condition variable on a ps: a task waits while a condition holds, and rereads it when notified.

A notification is kept until the waiting task receives it, and several count as one. So none is lost, and one too many
costs only a reread.
"""

from __future__ import annotations

from typing import Callable

import tensorflow.compat.v1 as tf


class Condition:
    """A condition variable for one waiting task, on one device."""

    def __init__(self, name: str, device: str) -> None:
        """Creates it; tasks that give the same name share it."""
        self._device = device
        with tf.device(device):
            # An accumulator of scalars: a pushed gradient is a notification, and its value means nothing.
            self._notifications = tf.ConditionalAccumulator(tf.float32, [], name)

    def notify(self) -> tf.Operation:
        """Lets the waiting task reread its condition, now or when it begins to wait."""
        with tf.device(self._device):
            never_stale = tf.constant(tf.int64.max, tf.int64)
            return self._notifications.apply_grad(0.0, never_stale)

    def wait_while(self, must_wait: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Returns a tensor that is computed once `must_wait()`, a bool scalar read on the same device, is false."""

        def wait_and_reread(_: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([self._notifications.take_grad(1)]):
                return must_wait()

        with tf.device(self._device):
            return tf.while_loop(lambda waits: waits, wait_and_reread, [must_wait()], parallel_iterations=1,
                                 back_prop=False)
