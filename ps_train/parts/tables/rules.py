"""What a model says about a table: its shape, how its rows are stored, and the rule by which a row is updated.

    row [value | slots] + gradient of the value --> new row

A row holds its value and its slots side by side. It is read once and written once under any rule: 2 to 3 times as
fast as with slots in separate tables (docs/decisions/embeddings.md). Each rule computes what TensorFlow's optimizer
of that name does, except that the moments of Adam and momentum decay only in updates that touch the row. TensorFlow has
no row-wise Adagrad.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf

from ps_train.parts.tables import hashing

FLOAT32, BFLOAT16 = "float32", "bfloat16"
ADD, REPLACE = "add", "replace"
FROZEN = "frozen"  # the name of the rule of tables that are only read
# Keys that a hash table on the ps reserves: no id may have them.
EMPTY_KEY, DELETED_KEY = -2**63, -2**63 + 1
MAX_ROWS_PER_PS = 2**31 - 1  # TensorFlow's `Empty` takes a shape of int32
LAST_MARK = 2**31 - 1  # of an int32; updates with a larger number share it


@dataclasses.dataclass(frozen=True)
class RowRule:
    """How rows are updated.

    Attributes:
      learning_rate: None for --embedding_learning_rate.
    """

    learning_rate: Optional[float] = None

    # How the ps merges the slots of a worker's local steps: it adds the changes of a sum, and replaces an average. If
    # it added the changes of two workers to an average of squares, that could become negative.
    slot_merging = ADD
    # Whether slots may be rounded on their way to a worker's local steps, and the changes of them on the way back. A
    # sum may: only its changes come back. An average that is replaced would stay where it is, as bfloat16 has no number
    # that lies nearer than 1/256 of it.
    rounds_slots = False

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

    def slots_for(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the slots of new rows that begin with these values float32 [n, dim]."""
        return self.first_slots(tf.shape(values)[0], int(values.shape[1]))

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Returns the new rows.

        Args:
          rows: float32 [n, dim + num_slots].
          gradients: float32 [n, dim].
          number: float32 scalar, the number of this update of the table, from 1.
        """
        raise NotImplementedError

    def with_defaults(self, learning_rate: float) -> RowRule:
        """Returns the rule, with this learning rate if it has none."""
        return self if self.learning_rate is not None else dataclasses.replace(self, learning_rate=learning_rate)

    def scaled(self, factor: tf.Tensor | None) -> RowRule:
        """Returns the rule with its learning rate multiplied by a float32 scalar; None for 1."""
        if factor is None or self.learning_rate is None:
            return self
        return dataclasses.replace(self, learning_rate=self.learning_rate * factor)

    def settle(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns rows that several workers have changed, after recomputing what follows from their slots."""
        return rows


def mark_of(number: tf.Tensor) -> tf.Tensor:
    """Returns the mark that rows get in the update with a number, int64 scalar: int32."""
    return tf.cast(tf.minimum(number, LAST_MARK), tf.int32)


def _split(rows: tf.Tensor, *widths: int) -> list[tf.Tensor]:
    # Not `rows[:, :dim]`: the gradient of a strided slice took a third of a step.
    return tf.split(rows, list(widths), axis=1)


@dataclasses.dataclass(frozen=True)
class Sgd(RowRule):
    """Gradient descent."""

    def num_slots(self, dim: int) -> int:
        return 0

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        return rows - self.learning_rate * gradients


@dataclasses.dataclass(frozen=True)
class Momentum(RowRule):
    """Gradient descent with momentum, which decays only in updates that touch the row."""

    momentum: float = 0.9
    slot_merging = REPLACE

    def num_slots(self, dim: int) -> int:
        return dim  # the momentum of each element

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        dim = int(gradients.shape[1])
        value, velocity = _split(rows, dim, dim)
        velocity = self.momentum * velocity + gradients
        return tf.concat([value - self.learning_rate * velocity, velocity], 1)


@dataclasses.dataclass(frozen=True)
class Adagrad(RowRule):
    """Adagrad: each element has a sum of squared gradients."""

    initial_accumulator: float = 0.1
    rounds_slots = True

    def num_slots(self, dim: int) -> int:
        return dim

    def first_slots(self, count: tf.Tensor, dim: int) -> tf.Tensor:
        return tf.fill(tf.stack([count, self.num_slots(dim)]), float(self.initial_accumulator))

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
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
        return 2 * dim  # the sum of squares and the linear term of each element

    def first_slots(self, count: tf.Tensor, dim: int) -> tf.Tensor:
        shape = tf.stack([count, dim])
        return tf.concat([tf.fill(shape, float(self.initial_accumulator)), tf.zeros(shape)], 1)

    def slots_for(self, values: tf.Tensor) -> tf.Tensor:
        # An update computes values from these two alone, as `_joined` does; from sums of 0, it cannot.
        total = tf.fill(tf.shape(values), float(self.initial_accumulator or 1e-12))
        linear = -values * (tf.sqrt(total) / self.learning_rate + 2 * self.l2) - self.l1 * tf.sign(values)
        return tf.concat([total, linear], 1)

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        dim = int(gradients.shape[1])
        value, total, linear = _split(rows, dim, dim, dim)
        new_total = total + tf.square(gradients)
        linear = linear + gradients - (tf.sqrt(new_total) - tf.sqrt(total)) / self.learning_rate * value
        return self._joined(new_total, linear)

    def scaled(self, factor: tf.Tensor | None) -> RowRule:
        """Returns the rule as it is: `settle` computes values from the sums, which fits a constant rate only."""
        return self

    def settle(self, rows: tf.Tensor) -> tf.Tensor:
        dim = int(rows.shape[1]) // 3
        _, total, linear = _split(rows, dim, dim, dim)
        return self._joined(total, linear)

    def _joined(self, total: tf.Tensor, linear: tf.Tensor) -> tf.Tensor:
        """Returns rows whose values follow from their two sums."""
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
        return 2 * dim  # the two moments of each element

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        dim = int(gradients.shape[1])
        value, mean, square = _split(rows, dim, dim, dim)
        mean = self.beta1 * mean + (1 - self.beta1) * gradients
        square = self.beta2 * square + (1 - self.beta2) * tf.square(gradients)
        rate = self.learning_rate * tf.sqrt(1 - self.beta2 ** number) / (1 - self.beta1 ** number)
        return tf.concat([value - rate * mean / (tf.sqrt(square) + self.epsilon), mean, square], 1)


@dataclasses.dataclass(frozen=True)
class Frozen(RowRule):
    """The rule of tables that are only read, as in an evaluation."""

    def num_slots(self, dim: int) -> int:
        return 0

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        return rows


RULES = {"sgd": Sgd, "momentum": Momentum, "adagrad": Adagrad, "rowwise_adagrad": RowwiseAdagrad, "ftrl": Ftrl,
         "adam": Adam}


class RowFormat(NamedTuple):
    """How a row is stored on a ps: its value in float32 or bfloat16, then its slots, float32 in either case.

        float32     [v0 | v1 | v2 | slots]       dim + number of slots floats
        bfloat16    [v0 v1 | v2 0 | slots]       two values in the bits of one float

    So a row is one piece of memory. In messages, rules and files, values are float32.

    A bfloat16 has 8 significant bits. Rounded to the nearest one, a change below 1/512 of a value would be lost each
    time. So an update rounds at random, to one of the two neighbours, the nearer one more often: the mean of the
    rounded value is the exact one (Gupta et al. 2015, arxiv.org/abs/1502.02551).

    Attributes:
      dim: floats in a value.
      num_slots: floats in the slots.
      dtype: of values, FLOAT32 or BFLOAT16.
    """

    dim: int
    num_slots: int
    dtype: str

    @property
    def is_rounded(self) -> bool:
        """Whether values are bfloat16."""
        return self.dtype == BFLOAT16

    @property
    def _stored_dim(self) -> int:
        """The float32 that a value takes."""
        return -(-self.dim // 2) if self.is_rounded else self.dim

    @property
    def stored_width(self) -> int:
        """The float32 that a row takes."""
        return self._stored_dim + self.num_slots

    @property
    def stored_bytes(self) -> int:
        """The bytes that a row takes."""
        return tf.float32.size * self.stored_width

    def values_in(self, stored: tf.Tensor) -> tf.Tensor:
        """Returns the values float32 [n, dim] of rows as they are stored, [n, stored_width]."""
        values = tf.slice(stored, [0, 0], [-1, self._stored_dim])  # a split would copy the slots, too
        return self._widened(values) if self.is_rounded else values

    def unpack(self, stored: tf.Tensor) -> tf.Tensor:
        """Returns the values and slots float32 [n, dim + num_slots] of rows as they are stored."""
        if not self.is_rounded:
            return stored
        values, slots = tf.split(stored, [self._stored_dim, self.num_slots], axis=1)
        return tf.concat([self._widened(values), slots], 1)

    def _widened(self, pairs: tf.Tensor) -> tf.Tensor:
        values = tf.reshape(tf.bitcast(pairs, tf.bfloat16), [-1, 2 * self._stored_dim])
        return tf.cast(values[:, :self.dim], tf.float32)

    def pack(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns values and slots float32 [n, dim + num_slots] as they are stored; values become the nearest ones."""
        if not self.is_rounded:
            return rows
        values, slots = tf.split(rows, [self.dim, self.num_slots], axis=1)
        values = tf.pad(tf.cast(values, tf.bfloat16), [[0, 0], [0, 2 * self._stored_dim - self.dim]])
        pairs = tf.bitcast(tf.reshape(values, [-1, self._stored_dim, 2]), tf.float32)
        return tf.concat([pairs, slots], 1)

    def rounded(self, rows: tf.Tensor, ids: tf.Tensor, *, seed: str, number: tf.Tensor) -> tf.Tensor:
        """Returns rows float32 [n, dim + num_slots] whose values are rounded at random, so that `pack` keeps them.

        The numbers follow from the ids int64 [n], the table and the update, so they are the same on any number of ps.

        Args:
          seed: of the table.
          number: int64 scalar, of the update.
        """
        if not self.is_rounded:
            return rows
        values, slots = tf.split(rows, [self.dim, self.num_slots], axis=1)
        drawn = hashing.random_bits(ids, self.dim, hashing.CUT_BITS, seed=seed, number=number)
        return tf.concat([hashing.round_at_random(values, drawn), slots], 1)


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """What a model says about a table.

    Attributes:
      name: unique in the model; part of the names in a checkpoint.
      dim: floats in the value of a row.
      num_rows: of a fixed table; None for a dynamic one.
      rule: how rows are updated; None for --embedding_optimizer.
      initial_limit: first values are uniform in [-initial_limit, initial_limit).
      initial: another distribution of first values, or None.
      l2: strength of an L2 penalty on the rows that an update touches: l2 * value is added to their gradients.
      num_hashes: how many rows of a fixed table an id is hashed to; its value is their sum. 0: an id is a row number.
      min_count: the update with an id, counted from 1, in which a dynamic table makes its row.
      ttl_steps: updates of the table without the id after which a dynamic table drops its row; None keeps all.
      ttl_secs: seconds of training without the id after which a dynamic table drops its row; None keeps all.
      max_rows: rows of a dynamic table on all ps together; None for as many as 4 GB on each ps hold.
      expected_rows: rows on all ps together for which the index of a dynamic table initially has room; None for the
        minimum, from which it grows.
      dtype: in which a ps stores the values of rows, "float32" or "bfloat16"; see `RowFormat`.
      has_history: whether a row has the number of its first update, and their count; see `row_history`.
      unseen: what all floats of an id without a row are read as; None for its first value.
    """

    name: str
    dim: int
    num_rows: Optional[int] = None
    rule: Optional[RowRule] = None
    initial_limit: float = 0.01
    initial: Optional[hashing.Initial] = None
    l2: float = 0.0
    num_hashes: int = 0
    min_count: int = 1
    ttl_steps: Optional[int] = None
    ttl_secs: Optional[float] = None
    max_rows: Optional[int] = None
    expected_rows: Optional[int] = None
    dtype: str = FLOAT32
    has_history: bool = False
    unseen: Optional[float] = None

    @property
    def is_dynamic(self) -> bool:
        """Whether rows are made as ids come."""
        return self.num_rows is None

    @property
    def row_format(self) -> RowFormat:
        """How its rows are stored."""
        return RowFormat(self.dim, self.rule.num_slots(self.dim), self.dtype)

    def first_values(self, ids: tf.Tensor, seed: str | hashing.Draws = "") -> tf.Tensor:
        """Returns the first values float32 [n, dim] of ids int64 [n]; the seed is by default the name."""
        initial = self.initial or hashing.Initial(hashing.UNIFORM, 0.0, self.initial_limit)
        return hashing.initial_values(ids, self.dim, initial=initial, seed=seed or self.name)

    def unseen_values(self, ids: tf.Tensor, seed: str | hashing.Draws = "") -> tf.Tensor:
        """Returns what ids without a row are read as, as `first_values` does."""
        if self.unseen is None:
            return self.first_values(ids, seed)
        return tf.fill(tf.stack([tf.size(ids), self.dim]), self.unseen)

    def with_l2(self, rows: tf.Tensor, gradients: tf.Tensor) -> tf.Tensor:
        """Returns the gradients float32 [n, dim] with those of the L2 penalty of rows float32 [n, dim + slots]."""
        return gradients + self.l2 * tf.slice(rows, [0, 0], [-1, self.dim]) if self.l2 else gradients

    def rows_on_each(self, num_ps: int) -> Optional[int]:
        """Returns the rows that each ps must have room for; None for a dynamic table without max_rows."""
        limit = self.max_rows if self.is_dynamic else self.num_rows
        return None if limit is None else -(-limit // num_ps)
