"""DeepRec's optimizers, and the rule by which the rows of an embedding variable follow an optimizer of the script.

A row that an update does not touch stays as it is, moments and all, as in DeepRec.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.legacy.deeprec.layout import Slot
from ps_train.parts.legacy.names.optimizers import LazyAdamOptimizer, apply_adam
from ps_train.parts.tables.rules import Adagrad, Adam, Ftrl, Momentum, RowRule, Sgd


class AdamAsyncOptimizer(LazyAdamOptimizer):
    """Adam whose powers of beta belong to each variable, so that no two ps wait for each other's."""

    def __init__(self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
                 use_locking: bool = False, apply_sparse_rmsprop: bool = False, name: str = "AdamAsync") -> None:
        """Takes Adam's arguments.

        Raises:
          UserCodeError: `apply_sparse_rmsprop` is true.
        """
        if apply_sparse_rmsprop:
            raise UserCodeError("bad_embedding_option", "tf.train.AdamAsyncOptimizer: got apply_sparse_rmsprop=True; "
                                "allowed: False; use tf.train.RMSPropOptimizer")
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)
            self._get_or_make_slot(var, tf.constant(self._beta1, dtype), "beta1_power", self._name)
            self._get_or_make_slot(var, tf.constant(self._beta2, dtype), "beta2_power", self._name)

    def powers(self, var: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
        return self.get_slot(var, "beta1_power"), self.get_slot(var, "beta2_power")

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._then_raise_powers(apply_adam(self, grad, var, powers=self.powers(var)), var)

    def _apply_rows(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        return self._then_raise_powers(super()._apply_rows(grad, var, indices), var)

    def _then_raise_powers(self, update: tf.Operation, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies([update]):
            return tf.group(*[power.assign(power * tf.cast(beta, power.dtype.base_dtype))
                              for power, beta in zip(self.powers(var), (self._beta1_t, self._beta2_t))])

    def _finish(self, update_ops: Sequence[tf.Operation], name_scope: str) -> tf.Operation:
        return tf.group(*update_ops, name=name_scope)  # Adam's own raises the powers that all variables share


class AdagradDecayOptimizer(tf.train.Optimizer):
    """Adagrad whose sums of squares decay every `accumulator_decay_step` global steps, not below their first value."""

    has_count_per_row = False  # whether the slot that counts decays has one number for a row, not for each element

    def __init__(self, learning_rate: Any, global_step: Any, initial_accumulator_value: float = 0.1,
                 accumulator_decay_step: int = 100000, accumulator_decay_rate: float = 0.9, use_locking: bool = False,
                 name: str = "AdagradDecay") -> None:
        """Takes Adagrad's arguments, the global step, and when and by what the sums are multiplied.

        Raises:
          ValueError: a number is out of its range.
        """
        for argument, value, is_good in (
                ("initial_accumulator_value", initial_accumulator_value, initial_accumulator_value > 0),
                ("accumulator_decay_step", accumulator_decay_step, accumulator_decay_step > 0),
                ("accumulator_decay_rate", accumulator_decay_rate, 0 < accumulator_decay_rate < 1)):
            if not is_good:
                raise ValueError(f"AdagradDecayOptimizer: got {argument}={value}; allowed: numbers above 0, and a rate "
                                 "below 1")
        super().__init__(use_locking, name)
        self._learning_rate, self._global_step = learning_rate, global_step
        self.initial_accumulator_value = initial_accumulator_value
        self.accumulator_decay_step, self.accumulator_decay_rate = accumulator_decay_step, accumulator_decay_rate

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for var in var_list:
            self._get_or_make_slot(
                var, tf.fill(var.shape, tf.cast(self.initial_accumulator_value, var.dtype.base_dtype)), "accumulator",
                self._name)
            shape = var.shape[:1] if self.has_count_per_row else var.shape
            self._get_or_make_slot(var, tf.zeros(shape, tf.int64), "accumulator_decay_power", self._name)

    def _prepare(self) -> None:
        rate = self._learning_rate() if callable(self._learning_rate) else self._learning_rate
        self._rate = tf.convert_to_tensor(rate, name="learning_rate")
        self._due = (tf.cast(self._global_step, tf.int64) + 1) // self.accumulator_decay_step

    def _updated(self, grad: tf.Tensor, total: tf.Tensor, power: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the new sums and counts of decays, and what is taken from the variable."""
        is_due = self._due > power
        ones = tf.ones_like(tf.shape(total)[tf.rank(power):])
        per_element = tf.reshape(is_due, tf.concat([tf.shape(power), ones], 0))
        decayed = tf.maximum(total * self.accumulator_decay_rate, self.initial_accumulator_value)
        total = tf.where(tf.broadcast_to(per_element, tf.shape(total)), decayed, total) + tf.square(grad)
        return total, power + tf.cast(is_due, tf.int64), tf.cast(self._rate, grad.dtype) * grad * tf.math.rsqrt(total)

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        slots = self.get_slot(var, "accumulator"), self.get_slot(var, "accumulator_decay_power")
        *new, step = self._updated(grad, *map(tf.convert_to_tensor, slots))
        return tf.group(*[slot.assign(value) for slot, value in zip(slots, new)], var.assign_sub(step))

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        slots = self.get_slot(var, "accumulator"), self.get_slot(var, "accumulator_decay_power")
        *new, step = self._updated(grad, *[tf.gather(slot, indices) for slot in slots])
        return tf.group(*[tf.scatter_update(slot, indices, value) for slot, value in zip(slots, new)],
                        tf.scatter_sub(var, indices, step))


class AdagradDecayOptimizerV2(AdagradDecayOptimizer):
    """The same, with one count of decays for a row of a variable."""

    has_count_per_row = True


@dataclasses.dataclass(frozen=True)
class AdagradDecay(Adagrad):
    """The rule of AdagradDecayOptimizer; the updates of the table take the place of the global step.

    Attributes:
      decay_step: updates of the table between two decays.
      decay_rate: what a row's sums are multiplied by, in the next update that touches it.
    """

    decay_step: int = 100000
    decay_rate: float = 0.9

    def num_slots(self, dim: int) -> int:
        return dim + 1  # the sum of each element, and how often they have decayed

    def first_slots(self, count: tf.Tensor, dim: int) -> tf.Tensor:
        return tf.concat([tf.fill(tf.stack([count, dim]), self.initial_accumulator), tf.zeros(tf.stack([count, 1]))], 1)

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        dim = int(gradients.shape[1])
        value, total, power = tf.split(rows, [dim, dim, 1], axis=1)
        is_due = tf.floor(number / self.decay_step) > power
        decayed = tf.maximum(total * self.decay_rate, self.initial_accumulator)
        total = tf.where(tf.broadcast_to(is_due, tf.shape(total)), decayed, total) + tf.square(gradients)
        step = self.learning_rate * gradients * tf.math.rsqrt(total)
        return tf.concat([value - step, total, power + tf.cast(is_due, tf.float32)], 1)


@dataclasses.dataclass(frozen=True)
class ShrinkingFtrl(Ftrl):
    """The rule of FtrlOptimizer with a penalty on the size of a row, which each update adds to the linear term.

    Attributes:
      shrinkage: its strength.
    """

    shrinkage: float = 0.0

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        value, total, linear = tf.split(rows, 3, axis=1)
        return super().update(tf.concat([value, total, linear + 2 * self.shrinkage * value], 1), gradients, number)


class RuleOfOptimizer(NamedTuple):
    """How rows follow an optimizer.

    Attributes:
      rule: updates a row; its learning rate is 1 if that of the optimizer is a tensor.
      slots: those of the rule, in their order in a row, as DeepRec's checkpoints name them.
      factor: float32 scalar by which the rule's learning rate is multiplied; None for 1.
    """

    rule: RowRule
    slots: Sequence[Slot]
    factor: tf.Tensor | None


def row_rule(optimizer: tf.train.Optimizer) -> RuleOfOptimizer:
    """Returns the rule by which rows follow an optimizer.

    Raises:
      UserCodeError: there is none; the text says which optimizers have one.
    """
    make = next((make for kind, make in _RULES if isinstance(optimizer, kind) and _updates_as(optimizer, kind)), None)
    if make is None:
        kinds = ", ".join(kind.__name__ for kind, _ in _RULES)
        raise UserCodeError("bad_embedding_optimizer", f"embedding variables: got {type(optimizer).__name__}; allowed: "
                            f"{kinds}")
    rate = getattr(optimizer, "_lr", None)
    rate = getattr(optimizer, "_learning_rate", None) if rate is None else rate
    rate = rate() if callable(rate) else rate
    is_number = not (tf.is_tensor(rate) or isinstance(rate, tf.Variable))
    rule, widths = make(optimizer, float(rate) if is_number else 1.0)
    if isinstance(rule, Ftrl) and not is_number:
        raise UserCodeError("bad_embedding_optimizer", "embedding variables: got FtrlOptimizer with a learning rate "
                            "that is a tensor; allowed: a number, of which FTRL makes the values")
    names = [optimizer.get_name() + (f"_{number}" if number else "") for number in range(len(widths))]
    slots = [Slot(name, width, tf.float32 if width is None else tf.int64) for name, width in zip(names, widths)]
    return RuleOfOptimizer(rule, slots, None if is_number else tf.cast(rate, tf.float32))


def _updates_as(optimizer: tf.train.Optimizer, kind: type) -> bool:
    """Returns whether a subclass, such as AdamWOptimizer, changes nothing in how a class updates variables."""
    return all(getattr(type(optimizer), name, None) is getattr(kind, name, None) for name in _UPDATES)


def _adagrad(optimizer: Any, rate: float) -> tuple[RowRule, list]:
    return Adagrad(rate, optimizer._initial_accumulator_value), [None]  # noqa: SLF001 (no public name, as below)


def _adagrad_decay(optimizer: Any, rate: float) -> tuple[RowRule, list]:
    return AdagradDecay(rate, optimizer.initial_accumulator_value, optimizer.accumulator_decay_step,
                        optimizer.accumulator_decay_rate), [None, 1]


def _adam(optimizer: Any, rate: float) -> tuple[RowRule, list]:
    settings = optimizer._beta1, optimizer._beta2, optimizer._epsilon  # noqa: SLF001
    return Adam(rate, *map(float, settings)), [None, None]


def _ftrl(optimizer: Any, rate: float) -> tuple[RowRule, list]:
    if optimizer._learning_rate_power != -0.5:  # noqa: SLF001
        raise UserCodeError("bad_embedding_optimizer", "embedding variables: got FtrlOptimizer with "
                            f"learning_rate_power={optimizer._learning_rate_power}; allowed: -0.5")  # noqa: SLF001
    l2 = optimizer._l2_regularization_strength + optimizer._beta / (2 * rate)  # noqa: SLF001 (as TensorFlow adds it)
    rule = Ftrl(rate, optimizer._l1_regularization_strength, l2, optimizer._initial_accumulator_value)  # noqa: SLF001
    if shrinkage := optimizer._l2_shrinkage_regularization_strength:  # noqa: SLF001
        rule = ShrinkingFtrl(**dataclasses.asdict(rule), shrinkage=shrinkage)
    return rule, [None, None]


def _momentum(optimizer: Any, rate: float) -> tuple[RowRule, list]:
    if optimizer._use_nesterov:  # noqa: SLF001
        raise UserCodeError("bad_embedding_optimizer", "embedding variables: got MomentumOptimizer with "
                            "use_nesterov=True; allowed: False")
    return Momentum(rate, float(optimizer._momentum)), [None]  # noqa: SLF001


# The methods by which TensorFlow asks an optimizer for an update of one variable.
_UPDATES = ("_apply_dense", "_resource_apply_dense", "_apply_sparse", "_resource_apply_sparse", "_apply_sparse_shared")
_RULES: Sequence[tuple[type, Callable[[Any, float], tuple[RowRule, list]]]] = (
    (AdagradDecayOptimizer, _adagrad_decay),
    (AdamAsyncOptimizer, _adam),
    (LazyAdamOptimizer, _adam),
    (tf.train.AdamOptimizer, _adam),
    (tf.train.AdagradOptimizer, _adagrad),
    (tf.train.FtrlOptimizer, _ftrl),
    (tf.train.MomentumOptimizer, _momentum),
    (tf.train.GradientDescentOptimizer, lambda optimizer, rate: (Sgd(rate), [])),
)
