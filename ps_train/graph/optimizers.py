"""The optimizer that the flags and `make_optimizer` define, and where a rule may change its updates.

    plan.make(global_step)               the optimizer, whose slots are in a checkpoint
    plan.wrap(optimizer, global_step)    the same, with what the rule does before
    plan.factor(global_step)             the factor of the rule for the learning rates of embedding tables

An `OptimizerPlan` makes the optimizer as often as an update mode needs one. `global_step` is the variable on ps 0, or
the count of a worker in a round of local steps. A part may set the rule: then the learning rate is a function of that
count, gradients are clipped, and variables decay.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
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
            if (slot := whole_optimizer.get_slot(whole, name)) is not None:
                pairs.append((slot, [parts_optimizer.get_slot(part, name) for part in parts]))
    return pairs


def pair_non_slots(first: tf.train.Optimizer, second: tf.train.Optimizer) -> list[tuple[tf.Variable, tf.Variable]]:
    """Pairs the variables of two optimizers with the same rule that are no slots, such as Adam's powers."""
    return list(zip(first._non_slot_variables(), second._non_slot_variables()))  # noqa: SLF001 (no public name)


def judges_gradients(optimizer: tf.train.Optimizer) -> bool:
    """Returns whether an optimizer leaves out updates with NaN or infinity, from which it learns to scale the loss."""
    is_dynamic = isinstance(getattr(optimizer, "_loss_scale", None), tf.train.experimental.DynamicLossScale)
    return is_dynamic or getattr(optimizer, "judges_gradients", False)


class UpdateRule:
    """What an update does besides the optimizer's own formula with a constant rate; this rule does nothing.

    Attributes:
      options: keyword arguments of the optimizer's class, such as momentum.
      is_constant: whether the learning rate is the same at each step.
      flags: the names of the flags of the rule on the command line.
    """

    options: Mapping[str, Any] = MappingProxyType({})
    is_constant = True
    flags: Sequence[str] = ()

    def rate(self, learning_rate: float, global_step: tf.Variable) -> tf.Tensor | float:
        """Returns the rate of an update at this global step, float32 [], on the current device; given the flag's."""
        return learning_rate

    def clipped(
        self, pairs: Sequence[transfer.Pair], of_rows: Mapping[str, tf.Tensor]
    ) -> tuple[list[transfer.Pair], dict[str, tf.Tensor]]:
        """Returns the gradients of variables and of rows after clipping by the norm of both."""
        return list(pairs), dict(of_rows)

    def wrap(
        self, optimizer: tf.train.Optimizer, learning_rate: float, global_step: tf.Variable, *, is_clipped: bool
    ) -> tf.train.Optimizer:
        """Returns an optimizer that clips gradients, if they are not, and decays variables, and applies this one."""
        return optimizer


class OptimizerPlan(NamedTuple):
    """How to make the optimizer.

    Attributes:
      name: of --optimizer.
      learning_rate: the rate that the schedule starts from.
      decays_all_rows: whether Adam decays the moments of every row of a table in each update.
      rule: what an update does besides.
      make_model_optimizer: the model's `make_optimizer`, called with the global step; None to use the flags.
    """

    name: str
    learning_rate: float
    decays_all_rows: bool = False
    rule: UpdateRule = UpdateRule()
    make_model_optimizer: Callable[[tf.Variable], Any] | None = None

    def make(self, global_step: tf.Variable) -> tf.train.Optimizer:
        """Returns a new optimizer, without slots yet; refuses what else `make_optimizer` of a model returns."""
        # The rate is computed on the device of the step: on a worker it would cost a transfer in each step.
        with tf.device(global_step.device):
            if self.make_model_optimizer is None:
                return make_optimizer(self.name, self.rule.rate(self.learning_rate, global_step),
                                      decays_all_rows=self.decays_all_rows, **self.rule.options)
            optimizer = self.make_model_optimizer(global_step)
        _check(optimizer)
        if not self.decays_all_rows:
            adam.make_row_sparse(optimizer)
        apply = optimizer.apply_gradients
        if getattr(apply, "__func__", None) is not tf.train.Optimizer.apply_gradients:
            optimizer.apply_gradients = functools.partial(_apply_and_count, apply)
        return optimizer

    def is_elementwise(self, optimizer: tf.train.Optimizer) -> bool:
        """Returns whether variables may be packed for an optimizer that `make` returned."""
        return self.make_model_optimizer is None or type(optimizer) in ELEMENTWISE

    def wrap(
        self, optimizer: tf.train.Optimizer, global_step: tf.Variable, *, is_clipped: bool = False
    ) -> tf.train.Optimizer:
        """Returns an optimizer that does what the rule adds, and then applies this one; see `UpdateRule.wrap`."""
        return self.rule.wrap(optimizer, self.learning_rate, global_step, is_clipped=is_clipped)

    def factor(self, global_step: tf.Variable) -> tf.Tensor | None:
        """Returns the factor of the learning rates of embedding tables, a float32 scalar; None for 1."""
        if self.make_model_optimizer is not None or self.rule.is_constant:
            return None
        with tf.device(global_step.device):
            return self.rule.rate(self.learning_rate, global_step) / self.learning_rate


def _apply_and_count(apply: Callable, pairs: Any, global_step: Any = None, name: str | None = None) -> tf.Operation:
    """Applies gradients; counts what the optimizer leaves out or does not count, too, as all workers wait for that."""
    with tf.control_dependencies([tf.group(apply(pairs, None))]):
        return tf.no_op(name) if global_step is None else global_step.assign_add(1, read_value=False)


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
