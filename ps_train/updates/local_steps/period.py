"""How many steps a round of local steps has."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf


class Period(NamedTuple):
    """How many steps a round has.

    Attributes:
      steps: the steps of most rounds.
      warmup_steps: before this global step, a round has one step.
      train_steps: a round that begins before this global step has no steps beyond it, and in async a round that begins
        later has none. Other workers' rounds may still raise the global step above it.
    """

    steps: int = 1
    warmup_steps: int = 0
    train_steps: int | None = None

    def round_steps(self, begun: tf.Tensor) -> tf.Tensor:
        """Returns the steps of an asynchronous round that begins at this global step; both are int64 scalars."""
        steps = tf.where(begun < self.warmup_steps, tf.ones_like(begun), self.steps)
        if self.train_steps is not None:
            steps = tf.clip_by_value(self.train_steps - begun, 0, steps)
        return steps

    def sync_round_steps(self, begun: tf.Tensor) -> tf.Tensor:
        """Returns the same for a synchronous round, which has at least one step."""
        # Workers wait for the global step to rise.
        return tf.maximum(self.round_steps(begun), 1)
