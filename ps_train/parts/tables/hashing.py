"""Hashes of ids: which ps has the row of an id, keys of hash tables, first values, random numbers for rounding.

    dynamic   a hash of the id says which ps
    fixed     each num_ps ids are a block, which has one row on each ps; its number is the row number on all of them.
              A hash of that number says on which ps a block begins:

                  ids     0 1 2   3 4 5   6 7 8   9 10 11
                  on ps   0 1 2   1 2 0   0 1 2   0  1  2

So ids with a pattern, such as those with a time in their upper bits, are spread evenly over the ps.

Ids are also scrambled before they become keys of a hash table, whose own hash is the id plus a constant. Unscrambled,
ids 0, 1, 2, ... fill neighbouring buckets. Another series of ids that meets them there, such as those of a second field
with its number in the upper bits, then has to search for their end. With 10^6 ids in each of two such series, reading
5,600 rows of the second took 56 ms, and now takes 4.

The first value of a row is a hash of its id, table and column. It does not depend on the process that computes it, nor
on the number of ps, so a row need not exist before its first update, and a table of 10^8 rows starts at once.
"""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

# How a checkpoint's rows were dealt. Another way needs another name, or its rows would be looked for on the wrong ps.
MODULO, MIXED = "id % num_ps", "mixed"
# Other factors than that of the index's keys: ids of one ps must differ in all bits of their keys, or they would fill a
# part of its buckets only. These two are of splitmix64 (Steele et al. 2014).
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_KEY_FACTOR = 0x9E3779B97F4A7C15  # odd; the golden ratio in 64 bits (Knuth 1973, section 6.4)
_HALF, _ALL = 32, 2**64 - 1
_VALUE_BITS = 24  # of first values; a float32 has as many
CUT_BITS = 16  # of a float32, which a bfloat16 lacks
_CUT = 2.0  # standard deviations at which a truncated normal distribution ends, as TensorFlow's does
UNIFORM, CONSTANT, TRUNCATED_NORMAL = "uniform", "constant", "truncated_normal"


class Initial(NamedTuple):
    """How the first values of a table are distributed.

    Attributes:
      kind: UNIFORM, CONSTANT or TRUNCATED_NORMAL.
      center: the mean; of a constant, the value.
      spread: half the width of a uniform distribution; the standard deviation of a normal one, which is cut off at two
        of them.
    """

    kind: str
    center: float
    spread: float = 0.0


class Draws(NamedTuple):
    """The numbers of a table from which its random numbers are made.

    Attributes:
      offset: int64 scalar.
      factors: int64 [1, dim], odd. The top bits of a product with a well mixed number are again well mixed.
    """

    offset: tf.Tensor | int
    factors: tf.Tensor | np.ndarray


def draws_of(seed: str, dim: int) -> Draws:
    """Returns the numbers of the table with this seed."""
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    factors = random.integers(-2**63, 2**63 - 1, size=[1, dim], dtype=np.int64) | 1
    return Draws(int(random.integers(0, 2**62)), factors)


def owner_of(ids: tf.Tensor, num_ps: int, *, is_dynamic: bool) -> tf.Tensor:
    """Returns the number of the ps that has the row of each id int64 [n] of a table, int32 [n]."""
    if is_dynamic:
        return tf.cast(_share(ids, num_ps), tf.int32)
    block = fixed_row_of(ids, num_ps)
    place = ids - block * num_ps + _share(block, num_ps)
    return tf.cast(tf.where(place < num_ps, place, place - num_ps), tf.int32)


def fixed_row_of(ids: tf.Tensor, num_ps: int) -> tf.Tensor:
    """Returns the row numbers of ids int64 [n] of a fixed table on their ps, int64 [n]."""
    return ids // num_ps if num_ps > 1 else ids  # a division takes as long as a gather


def fixed_id_of(rows: tf.Tensor, ps: int, num_ps: int) -> tf.Tensor:
    """Returns the ids of row numbers int64 [n] of a fixed table on a ps, int64 [n]."""
    place = ps - _share(rows, num_ps)
    return rows * num_ps + tf.where(place < 0, place + num_ps, place)


def _share(numbers: tf.Tensor, count: int) -> tf.Tensor:
    """Returns for each number int64 [n] one from 0 to count - 1, int64 [n], each about equally often."""
    for factor in _FACTORS:
        numbers = _fold(numbers) * tf.constant(factor, tf.int64)
    # Instead of a remainder, whose division takes longer than all of the above (Lemire 2019).
    return tf.bitwise.right_shift(_shift(numbers, _HALF) * count, tf.constant(_HALF, tf.int64))


def scramble(ids: tf.Tensor) -> tf.Tensor:
    """Returns another int64 for each id, never the same for two ids."""
    return _fold(_fold(ids) * tf.constant(_KEY_FACTOR - 2**64, tf.int64))


def scrambled(number: int) -> int:
    """Returns `scramble` of a number from -2^63 to 2^63 - 1."""
    number &= _ALL
    number = (number ^ number >> _HALF) * _KEY_FACTOR & _ALL
    number ^= number >> _HALF
    return number - 2**64 if number >= 2**63 else number


def _fold(numbers: tf.Tensor, bits: int = _HALF) -> tf.Tensor:
    """Returns int64 numbers with their upper bits added to their lower ones without carry, which can be undone."""
    return tf.bitwise.bitwise_xor(numbers, _shift(numbers, bits))


def _shift(numbers: tf.Tensor, bits: int) -> tf.Tensor:
    """Shifts int64 numbers to the right, with zeros from the left, as for uint64."""
    shifted = tf.bitwise.right_shift(numbers, tf.constant(bits, tf.int64))
    return tf.bitwise.bitwise_and(shifted, tf.constant(2**(64 - bits) - 1, tf.int64))


def initial_values(ids: tf.Tensor, dim: int, *, initial: Initial, seed: str | Draws) -> tf.Tensor:
    """Returns the first values float32 [n, dim] of ids int64 [n].

    Args:
      initial: their distribution.
      seed: tables with another seed have other values; or the numbers of it.
    """
    if initial.kind == CONSTANT:
        return tf.fill(tf.stack([tf.size(ids), dim]), np.float32(initial.center))
    numbers = _mixed(ids, dim, seed, _VALUE_BITS)
    if initial.kind == UNIFORM:
        values = tf.cast(numbers, tf.float32) * np.float32(initial.spread / 2**(_VALUE_BITS - 1))
        return values if initial.center == 0 else values + np.float32(initial.center)
    # The inverse of the distribution function, at the middles of 2^24 steps; in double, as the tails need it.
    middles = (tf.cast(numbers, tf.float64) + 0.5) * (math.erf(_CUT / math.sqrt(2)) / 2**_VALUE_BITS) + 0.5
    return tf.cast(initial.center + initial.spread * tf.math.ndtri(middles), tf.float32)


def random_bits(ids: tf.Tensor, dim: int, num_bits: int, *, seed: str, number: tf.Tensor) -> tf.Tensor:
    """Returns int64 [n, dim], uniform in [0, 2^num_bits), for ids int64 [n]: others for each update.

    Args:
      seed: tables with another seed have other numbers.
      number: int64 scalar, of the update.
    """
    signed = _mixed(ids + number * (_KEY_FACTOR - 2**64), dim, seed, num_bits)
    return signed + 2**(num_bits - 1)


def round_at_random(values: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
    """Returns each of the values float32 [n, m] as one of the two bfloat16 next to it, in float32.

    It is the upper one with the probability by which the value is above the lower one. What is a bfloat16 stays, as
    does what is not finite.

    Args:
      drawn: int64 [n, m], uniform in [0, 2^16).
    """
    # The bits of a float are in the order of its magnitude: a carry into the upper bits makes the next bfloat16.
    bits = tf.bitcast(values, tf.int32) + tf.cast(drawn, tf.int32)
    cut = tf.bitcast(tf.bitwise.bitwise_and(bits, tf.constant(-2**CUT_BITS, tf.int32)), tf.float32)
    return tf.where(tf.math.is_finite(values), cut, values)


def _mixed(ids: tf.Tensor, dim: int, seed: str | Draws, num_bits: int) -> tf.Tensor:
    """Returns int64 [n, dim], uniform in [-2^(num_bits - 1), 2^(num_bits - 1)), for ids int64 [n]."""
    offset, factors = seed if isinstance(seed, Draws) else draws_of(seed, dim)
    mixed = ids + offset
    for bits, factor in zip((30, 27), _FACTORS):  # splitmix64
        mixed = _fold(mixed, bits) * tf.constant(factor, tf.int64)
    products = tf.expand_dims(_fold(mixed, 31), 1) * factors
    return tf.bitwise.right_shift(products, tf.constant(64 - num_bits, tf.int64))  # sign included
