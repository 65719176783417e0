"""The learning rate as a function of the global step.

    rate = schedule(step) * min(1, (step + 1) / warmup_steps)

The formulas are those of `tf.compat.v1.train`. There is no control flow in them: a step that is repeated in one session
run (--steps_per_execution) may have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf


class Schedule(NamedTuple):
    """A learning rate schedule.

    Attributes:
      kind: constant, exponential, cosine, piecewise or polynomial.
      warmup_steps: the steps in which the rate rises to its full value.
      decay_steps: exponential: the steps per factor `decay_rate`; cosine, polynomial: the last step of the decay.
      decay_rate: the factor of exponential.
      decay_power: the power of polynomial.
      end: the rate at which cosine and polynomial end.
      boundaries: the global steps up to which, and including which, a value of piecewise holds.
      values: the rates of piecewise, one more than boundaries.
    """

    kind: str = "constant"
    warmup_steps: int = 0
    decay_steps: int = 1
    decay_rate: float = 1.0
    decay_power: float = 1.0
    end: float = 0.0
    boundaries: Sequence[int] = ()
    values: Sequence[float] = ()

    @property
    def is_constant(self) -> bool:
        """Tells whether the rate is the same at each step."""
        return self.kind == "constant" and not self.warmup_steps


def rate_at(schedule: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    """Returns the learning rate at a global step, a float32 scalar; on the current device.

    Args:
      step: int64 scalar, the updates before this one.
    """
    rate = _FORMULAS[schedule.kind](schedule, learning_rate, step)
    if schedule.warmup_steps:
        rate *= tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / schedule.warmup_steps)
    return rate


def _constant(_: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    return tf.constant(learning_rate)


def _exponential(schedule: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    return learning_rate * tf.pow(schedule.decay_rate, tf.cast(step, tf.float32) / schedule.decay_steps)


def _done(schedule: Schedule, step: tf.Tensor) -> tf.Tensor:
    return tf.minimum(tf.cast(step, tf.float32), float(schedule.decay_steps)) / schedule.decay_steps


def _cosine(schedule: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    share = 0.5 * (1.0 + tf.cos(math.pi * _done(schedule, step)))
    return (learning_rate - schedule.end) * share + schedule.end


def _polynomial(schedule: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    share = tf.pow(1.0 - _done(schedule, step), schedule.decay_power)
    return (learning_rate - schedule.end) * share + schedule.end


def _piecewise(schedule: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    boundaries = tf.constant(schedule.boundaries, tf.int64, [len(schedule.boundaries)])
    number = tf.reduce_sum(tf.cast(tf.cast(step, tf.int64) > boundaries, tf.int32))
    return tf.gather(tf.constant(schedule.values, tf.float32), number)


_FORMULAS = {"constant": _constant, "exponential": _exponential, "cosine": _cosine, "polynomial": _polynomial,
             "piecewise": _piecewise}
