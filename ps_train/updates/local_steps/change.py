"""The change that a worker pushes at the end of a round, and how the ps apply it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

Gradients = Sequence[tuple[Any, tf.Variable]]


class ChangeOptimizer(tf.train.GradientDescentOptimizer):
    """Subtracts the change of a round from the parameters, and adds its steps to the global step."""

    def __init__(self, num_steps: Callable[[], tf.Tensor]) -> None:
        """Prepares it; `num_steps()` adds an int64 scalar to the graph when the change is applied."""
        super().__init__(learning_rate=1.0)
        self._num_steps = num_steps

    def apply_gradients(
        self, grads_and_vars: Gradients, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies changes as gradients; see `tf.compat.v1.train.Optimizer`."""
        applied = super().apply_gradients(grads_and_vars, name=name)
        if global_step is None:
            return applied
        with tf.control_dependencies([applied]):
            return global_step.assign_add(self._num_steps(), read_value=False)


class Change(NamedTuple):
    """What this worker's steps have changed since its pull, after division by the number of workers.

    Attributes:
      pairs: (what to subtract, on the variable's ps; variable) for each variable of the model.
      num_taken: int64 scalar on ps 0, the steps.
    """

    pairs: Gradients
    num_taken: tf.Tensor
