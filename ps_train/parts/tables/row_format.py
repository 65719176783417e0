"""How a row is stored on a ps: its value in float32 or bfloat16, then its slots, which are float32 in either case.

    float32     [v0 | v1 | v2 | slots]       dim + number of slots floats
    bfloat16    [v0 v1 | v2 0 | slots]       two values in the bits of one float

So a row is one piece of memory, read and written at once. Elsewhere, in messages, rules and files, values are float32.

A bfloat16 has 8 significant bits. Rounded to the nearest one, a change below 1/512 of a value would be lost each time.
So an update rounds at random, to one of the two neighbours, the nearer one more often: the mean of the rounded value
is the exact one (Gupta et al. 2015, arxiv.org/abs/1502.02551).
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.tables import hashing

FLOAT32, BFLOAT16 = "float32", "bfloat16"
_CUT_BITS = 16  # of a float32, which a bfloat16 lacks


class RowFormat(NamedTuple):
    """The format of the rows of a table.

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
        drawn = hashing.random_bits(ids, self.dim, _CUT_BITS, seed=seed, number=number)
        return tf.concat([round_at_random(values, drawn), slots], 1)


def round_at_random(values: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
    """Returns each of the values float32 [n, m] as one of the two bfloat16 next to it, in float32.

    It is the upper one with the probability by which the value is above the lower one. What is a bfloat16 stays, as
    does what is not finite.

    Args:
      drawn: int64 [n, m], uniform in [0, 2^16).
    """
    # The bits of a float are in the order of its magnitude: a carry into the upper bits makes the next bfloat16.
    bits = tf.bitcast(values, tf.int32) + tf.cast(drawn, tf.int32)
    cut = tf.bitcast(tf.bitwise.bitwise_and(bits, tf.constant(-2**_CUT_BITS, tf.int32)), tf.float32)
    return tf.where(tf.math.is_finite(values), cut, values)
