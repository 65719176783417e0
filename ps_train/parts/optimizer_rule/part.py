"""Schedules, clipping and weight decay: what an update does besides the formula of its optimizer.

    rate = schedule(step) * min(1, (step + 1) / warmup_steps)

`step` is the global step, or the count of a worker in a round of local steps. The formulas are those of
`tf.compat.v1.train`, without control flow, which a step that is repeated in one session run (--steps_per_execution) may
not have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.config import fields
from ps_train.graph import transfer
from ps_train.graph.optimizers import UpdateRule, judges_gradients
from ps_train.part import Part
from ps_train.parts.optimizer_rule.flags import RuleFlags
from ps_train.runtime.reports import NO_STEP_LIMIT


class OptimizerRulePart(Part):
    """Gives the optimizer the rule that the flags choose."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether any of the flags is given, or has another value than its default."""
        return rule_of(config) != ChosenRule()

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the rule."""
        self._rule = rule_of(config)
        self._decays_to_the_end = config.decay_steps is None and self._rule.schedule.kind in ("cosine", "polynomial")

    def adjust(self, settings: Any) -> Any:
        """Returns the settings with the rule."""
        updates, identity = settings.graph.updates, settings.identity
        updates = updates._replace(plan=updates.plan._replace(rule=self._rule))
        if self._decays_to_the_end:  # so workers with another --train_steps would train at other rates
            decay_steps = f"{self._rule.schedule.decay_steps} (--train_steps)"
            identity = identity._replace(shared_flags={**identity.shared_flags, "decay_steps": decay_steps})
        return settings._replace(graph=settings.graph._replace(updates=updates), identity=identity)


def rule_of(config: Any) -> ChosenRule:
    """Returns the rule that the flags choose."""
    # Without --decay_steps, until the end of training, if that is known.
    last_step = config.train_steps if config.train_steps != NO_STEP_LIMIT else 1
    schedule = Schedule(kind=config.learning_rate_schedule, warmup_steps=config.warmup_steps)
    if not schedule.is_constant:
        schedule = schedule._replace(
            decay_steps=config.decay_steps or last_step, decay_rate=config.decay_rate or 1.0,
            decay_power=config.decay_power or 1.0, end=config.end_learning_rate or 0.0,
            boundaries=config.boundaries, values=config.rates)
    return ChosenRule(
        options=config.optimizer_options, schedule=schedule, clip_norm=config.clip_norm,
        weight_decay=config.weight_decay, flags=tuple(sorted(config.given & {*fields.rules(RuleFlags)})))


class Schedule(NamedTuple):
    """A learning rate schedule.

    Attributes:
      kind: constant, exponential, cosine, piecewise or polynomial.
      warmup_steps: the steps in which the rate rises to its full value.
      decay_steps: exponential: the steps per factor `decay_rate`; cosine, polynomial: the last step of the decay.
      decay_rate: the factor of exponential.
      decay_power: the power of polynomial.
      end: the rate at which cosine and polynomial end.
      boundaries: piecewise: the global steps after which the next value applies.
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
        """Returns whether the rate is the same at each step."""
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


def _share_of_decay(schedule: Schedule, step: tf.Tensor) -> tf.Tensor:
    return tf.minimum(tf.cast(step, tf.float32), float(schedule.decay_steps)) / schedule.decay_steps


def _cosine(schedule: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    share = 0.5 * (1.0 + tf.cos(math.pi * _share_of_decay(schedule, step)))
    return (learning_rate - schedule.end) * share + schedule.end


def _polynomial(schedule: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    share = tf.pow(1.0 - _share_of_decay(schedule, step), schedule.decay_power)
    return (learning_rate - schedule.end) * share + schedule.end


def _piecewise(schedule: Schedule, learning_rate: float, step: tf.Tensor) -> tf.Tensor:
    boundaries = tf.constant(schedule.boundaries, tf.int64, [len(schedule.boundaries)])
    number = tf.reduce_sum(tf.cast(tf.cast(step, tf.int64) > boundaries, tf.int32))
    return tf.gather(tf.constant(schedule.values, tf.float32), number)


_FORMULAS = {"constant": _constant, "exponential": _exponential, "cosine": _cosine, "polynomial": _polynomial,
             "piecewise": _piecewise}


@dataclasses.dataclass(frozen=True)
class ChosenRule(UpdateRule):
    """The rule that the flags choose.

    Attributes:
      options: keyword arguments of the optimizer's class.
      schedule: of the learning rate.
      clip_norm: the largest global norm of the gradients, or None.
      weight_decay: the share of a dense variable that an update with the learning rate 1 subtracts; 0 for none.
      flags: the names of the flags on the command line.
    """

    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    schedule: Schedule = Schedule()
    clip_norm: float | None = None
    weight_decay: float = 0.0
    flags: tuple[str, ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether the rate is the same at each step."""
        return self.schedule.is_constant

    def rate(self, learning_rate: float, global_step: tf.Variable) -> tf.Tensor | float:
        """Returns the learning rate by the schedule."""
        return learning_rate if self.is_constant else rate_at(self.schedule, learning_rate, global_step.read_value())

    def clipped(
        self, pairs: Sequence[transfer.Pair], of_rows: Mapping[str, tf.Tensor]
    ) -> tuple[list[transfer.Pair], dict[str, tf.Tensor]]:
        """Returns the gradients of variables and of rows after clipping by the norm of both."""
        gradients = [*(gradient for gradient, _ in pairs), *of_rows.values()]
        if self.clip_norm is not None:
            gradients = clip_by_norm(gradients, self.clip_norm)
        return ([(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs)],
                dict(zip(of_rows, gradients[len(pairs):])))

    def wrap(
        self, optimizer: tf.train.Optimizer, learning_rate: float, global_step: tf.Variable, *, is_clipped: bool
    ) -> tf.train.Optimizer:
        """Returns a ClippingOptimizer, if there is anything for it to do."""
        clip_norm = None if is_clipped else self.clip_norm
        if clip_norm is None and not self.weight_decay:
            return optimizer
        decay = None
        if self.weight_decay:
            with tf.device(global_step.device):
                decay = self.rate(learning_rate, global_step) * self.weight_decay
        return ClippingOptimizer(optimizer, clip_norm=clip_norm, decay=decay)


class ClippingOptimizer(tf.train.GradientDescentOptimizer):
    """An optimizer whose gradients are clipped together, and whose dense variables decay (decoupled, as AdamW)."""

    def __init__(
        self, inner: tf.train.Optimizer, *, clip_norm: float | None, decay: tf.Tensor | float | None
    ) -> None:
        """Adds nothing to the graph yet.

        Args:
          inner: applies the gradients, and has the slots.
          clip_norm: the largest global norm, or None.
          decay: float32 scalar, the share of a dense variable that an update subtracts: rate * weight decay; or None.
        """
        super().__init__(learning_rate=1.0)  # not used: the inner optimizer applies the gradients
        self._inner = inner
        self._clip_norm = clip_norm
        self._decay_share = decay

    def apply_gradients(
        self, grads_and_vars: Sequence[transfer.Pair], global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients; see `tf.compat.v1.train.Optimizer`."""
        pairs = list(grads_and_vars)
        if self._clip_norm is not None:
            clipped = clip_by_norm([gradient for gradient, _ in pairs], self._clip_norm,
                                   is_judged=judges_gradients(self._inner))
            pairs = [(gradient, variable) for gradient, (_, variable) in zip(clipped, pairs)]
        if self._decay_share is not None:
            pairs = [(self._after_decay(gradient, variable), variable) for gradient, variable in pairs]
        return self._inner.apply_gradients(pairs, global_step, name=name)

    def _after_decay(self, gradient: Any, variable: tf.Variable) -> Any:
        """Returns the gradient, available after its variable has decayed; a sparse gradient unchanged."""
        if gradient is None or isinstance(gradient, tf.IndexedSlices):
            return gradient
        with tf.device(variable.device), tf.control_dependencies([gradient]):
            decay = tf.cast(self._decay_share, variable.dtype.base_dtype) * variable.read_value()
            with tf.control_dependencies([variable.assign_sub(decay, read_value=False)]):
                return tf.identity(gradient)

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        """Returns a slot of the inner optimizer."""
        return self._inner.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots of the inner optimizer."""
        return self._inner.get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Returns the variables of the inner optimizer."""
        return self._inner.variables()


def clip_by_norm(gradients: Sequence[Any], clip_norm: float, *, is_judged: bool = False) -> list[Any]:
    """Returns gradients, on their devices, scaled down to a global norm of at most `clip_norm`.

    A row that occurs several times in a sparse gradient counts once, with the sum of its gradients. A norm that is not
    finite fails the step, as a gradient that is not finite does: the scale would be 0. If the optimizer leaves out
    updates with NaN by itself (`is_judged`), all gradients are NaN then.
    """
    summed = [_each_row_once(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
              for gradient in gradients]
    squares = []
    for gradient in summed:
        if gradient is not None:
            values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
            with tf.colocate_with(values):
                squares.append(tf.cast(tf.nn.l2_loss(_wide(values)), tf.float32))
    if not squares:
        return list(gradients)
    norm = tf.sqrt(2.0 * tf.add_n(squares))
    if not is_judged:  # the step loop knows the error by the words that graph/nan_guard.py begins its own with
        norm = tf.debugging.check_numerics(norm, "ps_train checked the norm of the gradients")
    scale = clip_norm * tf.minimum(1.0 / norm, 1.0 / clip_norm)  # as tf.clip_by_global_norm; for 0 it is 1
    if is_judged:
        scale = tf.where(tf.math.is_finite(norm), scale, math.nan)
    return [None if gradient is None else _scaled(gradient, scale) for gradient in summed]


def _scaled(gradient: Any, scale: tf.Tensor) -> Any:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    with tf.colocate_with(values):
        wide = _wide(values)
        scaled = tf.cast(wide * tf.cast(scale, wide.dtype), values.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
    return scaled


def _wide(values: tf.Tensor) -> tf.Tensor:
    """Returns values of a 16-bit type as float32, others as they are."""
    # In float16 the square of 300 is infinite, and a scale of 1e-8 is 0.
    return tf.cast(values, tf.float32) if values.dtype.size < tf.float32.size else values


def _each_row_once(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    with tf.colocate_with(gradient.values):
        indices, places = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)
