"""The change that a worker pushes at the end of a round, by how many workers it is divided, and how the ps apply it.

An asynchronous change is divided by the number of workers that train at the same time. The parameters then move by the
mean of what the workers did. A worker that trains alone moves them by its whole change. The reasons and measurements:
docs/decisions/local-steps.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables
from ps_train.updates import staleness

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


def count_training(worker: int, heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns how many workers train now, this worker included: an int64 scalar of at least 1, on ps 0."""
    has_joined = tf.equal(variables.read("joined")[worker], variables.read("claims")[worker])
    # In its own first round a worker counts all live workers: the others may be about to begin, too. If each took
    # itself to be alone, the parameters would move by the sum of all changes.
    counted = tf.where(has_joined, staleness.training_workers(heartbeat_timeout_secs),
                       staleness.alive_workers(heartbeat_timeout_secs))
    return 1 + tf.math.count_nonzero(staleness.without_worker(worker, counted))


class Divisor(NamedTuple):
    """By how many workers the rounds of one worker are divided.

    Attributes:
      worker: the number of this worker.
      heartbeat_timeout_secs: a worker without a heartbeat for this long does not count.
      begin_op: counts the workers when a round begins, records the count, and joins. It runs in the session run of the
        round's steps.
    """

    worker: int
    heartbeat_timeout_secs: float
    begin_op: tf.Operation

    def after(self, done: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the divisor, an int64 scalar, once these tensors are computed."""
        # The larger of two counts, at the begin of the round and now. Otherwise a worker that was alone when a long
        # round began, and is not any more, would apply its whole change on top of what the others did since.
        with tf.control_dependencies(done):
            now = count_training(self.worker, self.heartbeat_timeout_secs)
            return tf.maximum(variables.read("round_divisors")[self.worker], now)


def make_divisor(worker: int, heartbeat_timeout_secs: float) -> Divisor:
    """Returns the divisor of a worker's rounds; place it on ps 0."""
    recorded = variables.write_element("round_divisors", worker, count_training(worker, heartbeat_timeout_secs))
    with tf.control_dependencies([recorded]):
        return Divisor(worker, heartbeat_timeout_secs, staleness.join_training(worker))
