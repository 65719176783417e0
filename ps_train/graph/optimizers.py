"""The optimizer that the flags and `make_optimizer` define: its learning rate, clipping and weight decay.

    plan.make(global_step)               the optimizer, whose slots are in a checkpoint
    plan.wrap(optimizer, global_step)    the same, after clipping by the global norm and weight decay
    plan.factor(global_step)             the factor of the schedule for the learning rates of embedding tables

An `OptimizerPlan` makes the optimizer as often as an update mode needs one. `global_step` is the variable on ps 0, or
the count of a worker in a round of local steps. The learning rate is a function of it:

    rate = schedule(step) * min(1, (step + 1) / warmup_steps)

The formulas are those of `tf.compat.v1.train`, without control flow, which a step that is repeated in one session run
(--steps_per_execution) may not have. docs/optimizers.md has the rules for users.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import adam, transfer
from ps_train.graph.adam import RowSparseAdam

_MOMENTUM = 0.9
_OPTIMIZERS = {
    "sgd": tf.train.GradientDescentOptimizer,
    "momentum": tf.train.MomentumOptimizer,
    "adagrad": tf.train.AdagradOptimizer,
    "adam": RowSparseAdam,
    "rmsprop": tf.train.RMSPropOptimizer,
    "ftrl": tf.train.FtrlOptimizer,
}
# Each element's new value depends on that element only, so variables may be concatenated.
ELEMENTWISE = (
    tf.train.AdadeltaOptimizer, tf.train.AdagradOptimizer, tf.train.AdamOptimizer, tf.train.FtrlOptimizer,
    tf.train.GradientDescentOptimizer, tf.train.MomentumOptimizer, tf.train.ProximalAdagradOptimizer,
    tf.train.ProximalGradientDescentOptimizer, tf.train.RMSPropOptimizer)


def make_optimizer(
    name: str, learning_rate: float | tf.Tensor, *, decays_all_rows: bool = False, **options: Any
) -> tf.train.Optimizer:
    """Returns the optimizer of that name, with TensorFlow's defaults and a momentum of 0.9.

    Args:
      learning_rate: a number, or a float32 scalar.
      decays_all_rows: whether Adam decays the moments of every row of a table in each update, as TensorFlow's does.
      options: keyword arguments of the optimizer's class in place of the defaults.
    """
    if name == "momentum":
        options = {"momentum": _MOMENTUM, **options}
    make = tf.train.AdamOptimizer if name == "adam" and decays_all_rows else _OPTIMIZERS[name]
    return make(learning_rate, **options)


def pair_slots(
    variables: Sequence[tuple[tf.Variable, Sequence[tf.Variable]]], *, whole_optimizer: tf.train.Optimizer,
    parts_optimizer: tf.train.Optimizer,
) -> list[tuple[tf.Variable, list[tf.Variable]]]:
    """Returns (slot, slots of the parts) for each slot of variables that another optimizer updates in parts.

    Args:
      variables: (variable of `whole_optimizer`, the corresponding variables of `parts_optimizer`).
      whole_optimizer, parts_optimizer: two optimizers with the same rule, whose slots exist.
    """
    pairs = []
    for name in whole_optimizer.get_slot_names():
        for whole, parts in variables:
            slot = whole_optimizer.get_slot(whole, name)
            if slot is not None:
                pairs.append((slot, [parts_optimizer.get_slot(part, name) for part in parts]))
    return pairs


def pair_non_slots(first: tf.train.Optimizer, second: tf.train.Optimizer) -> list[tuple[tf.Variable, tf.Variable]]:
    """Pairs the variables of two optimizers with the same rule that are no slots, such as Adam's powers."""
    return list(zip(first._non_slot_variables(), second._non_slot_variables()))  # noqa: SLF001 (no public name)


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
            clipped = clip_by_norm([gradient for gradient, _ in pairs], self._clip_norm)
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


def clip_by_norm(gradients: Sequence[Any], clip_norm: float) -> list[Any]:
    """Returns gradients, on their devices, scaled down to a global norm of at most `clip_norm`.

    A row that occurs several times in a sparse gradient counts once, with the sum of its gradients.
    """
    summed = [_each_row_once(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
              for gradient in gradients]
    squares = []
    for gradient in summed:
        if gradient is not None:
            values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
            with tf.colocate_with(values):
                squares.append(tf.cast(tf.nn.l2_loss(values), tf.float32))
    if not squares:
        return list(gradients)
    norm = tf.sqrt(2.0 * tf.add_n(squares))
    scale = clip_norm * tf.minimum(1.0 / norm, 1.0 / clip_norm)  # as tf.clip_by_global_norm; for 0 it is 1
    return [None if gradient is None else _scaled(gradient, scale) for gradient in summed]


def _scaled(gradient: Any, scale: tf.Tensor) -> Any:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    with tf.colocate_with(values):
        scaled = values * tf.cast(scale, values.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
    return scaled


def _each_row_once(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    with tf.colocate_with(gradient.values):
        indices, places = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


class RuleSettings(NamedTuple):
    """The update rule, besides the optimizer's name and learning rate.

    Attributes:
      options: keyword arguments of the optimizer's class, such as momentum.
      schedule: of the learning rate.
      clip_norm: the largest global norm of the gradients, or None.
      weight_decay: the share of a dense variable that an update with the learning rate 1 subtracts; 0 for none.
      flags: the names of the flags of the rule on the command line.
    """

    options: tuple[tuple[str, Any], ...] = ()
    schedule: Schedule = Schedule()
    clip_norm: float | None = None
    weight_decay: float = 0.0
    flags: tuple[str, ...] = ()


class OptimizerPlan(NamedTuple):
    """How to make the optimizer.

    Attributes:
      name: of --optimizer.
      learning_rate: the rate that the schedule starts from.
      decays_all_rows: whether Adam decays the moments of every row of a table in each update.
      rule: schedule, clipping and decay.
      make_model_optimizer: the model's `make_optimizer`, called with the global step; None to use the flags.
    """

    name: str
    learning_rate: float
    decays_all_rows: bool = False
    rule: RuleSettings = RuleSettings()
    make_model_optimizer: Callable[[tf.Variable], Any] | None = None

    def make(self, global_step: tf.Variable) -> tf.train.Optimizer:
        """Returns a new optimizer, without slots yet.

        Raises:
          UserCodeError: `make_optimizer` of the model returned something else.
        """
        # The rate is computed on the device of the step: on a worker it would cost a transfer in each step.
        with tf.device(global_step.device):
            if self.make_model_optimizer is None:
                return make_optimizer(self.name, self._rate(global_step),
                                      decays_all_rows=self.decays_all_rows, **dict(self.rule.options))
            optimizer = self.make_model_optimizer(global_step)
        _check(optimizer)
        if not self.decays_all_rows:
            adam.make_row_sparse(optimizer)
        return optimizer

    def is_elementwise(self, optimizer: tf.train.Optimizer) -> bool:
        """Returns whether variables may be packed for an optimizer that `make` returned."""
        return self.make_model_optimizer is None or type(optimizer) in ELEMENTWISE

    def wrap(self, optimizer: tf.train.Optimizer, global_step: tf.Variable) -> tf.train.Optimizer:
        """Returns an optimizer that clips gradients and decays variables, and then applies this one."""
        if self.rule.clip_norm is None and not self.rule.weight_decay:
            return optimizer
        decay = None
        if self.rule.weight_decay:
            with tf.device(global_step.device):
                decay = self._rate(global_step) * self.rule.weight_decay
        return ClippingOptimizer(optimizer, clip_norm=self.rule.clip_norm, decay=decay)

    def clipped(
        self, pairs: Sequence[transfer.Pair], of_rows: Mapping[str, tf.Tensor]
    ) -> tuple[list[transfer.Pair], dict[str, tf.Tensor]]:
        """Returns the gradients of variables and of rows after clipping by the norm of both."""
        gradients = [*(gradient for gradient, _ in pairs), *of_rows.values()]
        if self.rule.clip_norm is not None:
            gradients = clip_by_norm(gradients, self.rule.clip_norm)
        return ([(gradient, variable) for gradient, (_, variable) in zip(gradients, pairs)],
                dict(zip(of_rows, gradients[len(pairs):])))

    def without_clipping(self) -> OptimizerPlan:
        """Returns the plan for gradients that are clipped already."""
        return self._replace(rule=self.rule._replace(clip_norm=None))

    def factor(self, global_step: tf.Variable) -> tf.Tensor | None:
        """Returns the factor of the learning rates of embedding tables, a float32 scalar; None for 1."""
        if self.make_model_optimizer is not None or self.rule.schedule.is_constant:
            return None
        with tf.device(global_step.device):
            return self._rate(global_step) / self.learning_rate

    def _rate(self, global_step: tf.Variable) -> tf.Tensor | float:
        schedule = self.rule.schedule
        if schedule.is_constant:
            return self.learning_rate
        return rate_at(schedule, self.learning_rate, global_step.read_value())


def _check(optimizer: Any) -> None:
    """Raises UserCodeError if this is no optimizer of TensorFlow 1."""
    kind = type(optimizer).__name__
    if not isinstance(optimizer, tf.train.Optimizer):
        raise UserCodeError("plugin_returned_wrong_type", f"make_optimizer(params, global_step) returned {kind}; it "
                            "must return a tf.compat.v1.train.Optimizer, such as "
                            "tf.compat.v1.train.AdamOptimizer(1e-3)")
    if isinstance(optimizer, tf.train.SyncReplicasOptimizer) or kind == "SyncReplicasOptimizer":
        raise UserCodeError("sync_optimizer_in_plugin", "make_optimizer(params, global_step) returned a "
                            "SyncReplicasOptimizer; return the optimizer inside it, and give --sync_replicas")
