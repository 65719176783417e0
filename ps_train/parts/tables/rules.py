"""The rules by which a row of an embedding table is updated: a row holds its value and its slots side by side.

    row [value | slots] + gradient of the value --> new row

A row is read once and written once, whatever the rule: 2 to 3 times as fast as a table with its slots in tables of
their own (docs/decisions/embeddings.md). Each rule computes what TensorFlow's optimizer of that name does, with two
exceptions: the moments of Adam decay only in updates that touch the row (lazy Adam), and TensorFlow has no row-wise
Adagrad.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError

ADD, REPLACE = "add", "replace"
FROZEN = "frozen"  # the name of the rule of tables that are only read


@dataclasses.dataclass(frozen=True)
class RowRule:
    """How rows are updated.

    Attributes:
      learning_rate: None for --embedding_learning_rate.
    """

    learning_rate: Optional[float] = None

    # How the ps merges the slots of a worker's local steps: to a sum, it adds what the worker has added; an average, it
    # replaces. If it added the changes of two workers to an average of squares, that could become negative.
    slot_merging = ADD

    @property
    def name(self) -> str:
        """The name that --embedding_optimizer has for it; of another rule, that of its class."""
        return next((name for name, rule in RULES.items() if type(self) is rule), type(self).__name__.lower())

    def num_slots(self, dim: int) -> int:
        """Returns the floats of a row's slots."""
        raise NotImplementedError

    def first_slots(self, count: tf.Tensor, dim: int) -> tf.Tensor:
        """Returns the slots of new rows, float32 [count, num_slots]."""
        return tf.zeros(tf.stack([count, self.num_slots(dim)]))

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Returns the new rows.

        Args:
          rows: float32 [n, dim + num_slots].
          gradients: float32 [n, dim].
          number: float32 scalar, the number of this update of the table, from 1.
        """
        raise NotImplementedError

    def with_defaults(self, learning_rate: float) -> RowRule:
        """Returns the rule with this learning rate if it has none of its own."""
        return self if self.learning_rate is not None else dataclasses.replace(self, learning_rate=learning_rate)

    def scaled(self, factor: tf.Tensor | None) -> RowRule:
        """Returns the rule with its learning rate multiplied by a float32 scalar; None for 1."""
        if factor is None or self.learning_rate is None:
            return self
        return dataclasses.replace(self, learning_rate=self.learning_rate * factor)

    def settle(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns rows that several workers have changed, after recomputing what follows from their slots."""
        return rows


def _split(rows: tf.Tensor, *widths: int) -> list[tf.Tensor]:
    # Not `rows[:, :dim]`: the gradient of a strided slice took a third of a step.
    return tf.split(rows, list(widths), axis=1)


@dataclasses.dataclass(frozen=True)
class Sgd(RowRule):
    """Gradient descent."""

    def num_slots(self, dim: int) -> int:
        """Returns 0."""
        return 0

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """See `RowRule.update`."""
        return rows - self.learning_rate * gradients


@dataclasses.dataclass(frozen=True)
class Momentum(RowRule):
    """Gradient descent with momentum, which decays only in updates that touch the row."""

    momentum: float = 0.9
    slot_merging = REPLACE

    def num_slots(self, dim: int) -> int:
        """Returns dim, the momentum of each element."""
        return dim

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """See `RowRule.update`."""
        dim = int(gradients.shape[1])
        value, velocity = _split(rows, dim, dim)
        velocity = self.momentum * velocity + gradients
        return tf.concat([value - self.learning_rate * velocity, velocity], 1)


@dataclasses.dataclass(frozen=True)
class Adagrad(RowRule):
    """Adagrad: each element has its own sum of squared gradients."""

    initial_accumulator: float = 0.1

    def num_slots(self, dim: int) -> int:
        """Returns dim, the sum of each element."""
        return dim

    def first_slots(self, count: tf.Tensor, dim: int) -> tf.Tensor:
        """See `RowRule.first_slots`."""
        return tf.fill(tf.stack([count, self.num_slots(dim)]), self.initial_accumulator)

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """See `RowRule.update`."""
        dim = int(gradients.shape[1])
        value, total = _split(rows, dim, self.num_slots(dim))
        total = total + self._squares(gradients)
        return tf.concat([value - self.learning_rate * gradients * tf.math.rsqrt(total), total], 1)

    def _squares(self, gradients: tf.Tensor) -> tf.Tensor:
        return tf.square(gradients)


@dataclasses.dataclass(frozen=True)
class RowwiseAdagrad(Adagrad):
    """Adagrad with one sum per row, of the mean squared gradient: half the memory and the traffic."""

    def num_slots(self, dim: int) -> int:
        """Returns 1, the sum of the row."""
        return 1

    def _squares(self, gradients: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.square(gradients), 1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class Ftrl(RowRule):
    """Follow the regularised leader, with learning rate power -1/2 (McMahan et al. 2013).

    Attributes:
      l1: strength of the L1 penalty, which makes values exactly 0.
      l2: strength of the L2 penalty.
    """

    l1: float = 0.0
    l2: float = 0.0
    initial_accumulator: float = 0.1

    def num_slots(self, dim: int) -> int:
        """Returns 2 * dim, the sum of squares and the linear term of each element."""
        return 2 * dim

    def first_slots(self, count: tf.Tensor, dim: int) -> tf.Tensor:
        """See `RowRule.first_slots`."""
        shape = tf.stack([count, dim])
        return tf.concat([tf.fill(shape, self.initial_accumulator), tf.zeros(shape)], 1)

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """See `RowRule.update`."""
        dim = int(gradients.shape[1])
        value, total, linear = _split(rows, dim, dim, dim)
        new_total = total + tf.square(gradients)
        linear = linear + gradients - (tf.sqrt(new_total) - tf.sqrt(total)) / self.learning_rate * value
        return self._joined(new_total, linear)

    def scaled(self, factor: tf.Tensor | None) -> RowRule:
        """Returns the rule as it is: `settle` computes values from the sums, which fits a constant rate only."""
        return self

    def settle(self, rows: tf.Tensor) -> tf.Tensor:
        """See `RowRule.settle`: the value follows from the two sums."""
        dim = int(rows.shape[1]) // 3
        _, total, linear = _split(rows, dim, dim, dim)
        return self._joined(total, linear)

    def _joined(self, total: tf.Tensor, linear: tf.Tensor) -> tf.Tensor:
        strength = tf.sqrt(total) / self.learning_rate + 2 * self.l2
        shrunk = tf.clip_by_value(linear, -self.l1, self.l1) - linear
        # Without an initial sum, the strength of an element that never had a gradient is 0.
        return tf.concat([tf.math.divide_no_nan(shrunk, strength), total, linear], 1)


@dataclasses.dataclass(frozen=True)
class Adam(RowRule):
    """Lazy Adam: the moments of a row decay only in updates that touch the row."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    slot_merging = REPLACE

    def num_slots(self, dim: int) -> int:
        """Returns 2 * dim, the two moments of each element."""
        return 2 * dim

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """See `RowRule.update`."""
        dim = int(gradients.shape[1])
        value, mean, square = _split(rows, dim, dim, dim)
        mean = self.beta1 * mean + (1 - self.beta1) * gradients
        square = self.beta2 * square + (1 - self.beta2) * tf.square(gradients)
        rate = self.learning_rate * tf.sqrt(1 - self.beta2 ** number) / (1 - self.beta1 ** number)
        return tf.concat([value - rate * mean / (tf.sqrt(square) + self.epsilon), mean, square], 1)


@dataclasses.dataclass(frozen=True)
class Frozen(RowRule):
    """The rule of tables that are only read, as in an evaluation: they have no slots, and no update."""

    def num_slots(self, dim: int) -> int:
        """Returns 0."""
        return 0

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Returns the rows as they are."""
        return rows


RULES = {"sgd": Sgd, "momentum": Momentum, "adagrad": Adagrad, "rowwise_adagrad": RowwiseAdagrad, "ftrl": Ftrl,
         "adam": Adam}


def make_rule(name: str) -> RowRule:
    """Returns the rule of this name, with its defaults.

    Raises:
      ConfigError: there is no such rule.
    """
    if name not in RULES:
        raise ConfigError(f"unknown embedding optimizer {name!r}; allowed: {', '.join(RULES)}")
    return RULES[name]()
