"""The first value of a row: a hash of its id, so that a row need not exist before its first update.

    id, table, column --> 24 bits --> uniform in [-limit, limit)

The value does not depend on who computes it, nor on the number of ps. A table of 10^8 rows therefore starts at once.
"""

from __future__ import annotations

import zlib

import numpy as np
import tensorflow.compat.v1 as tf

_BITS = 24  # a float32 has as many


def first_values(ids: tf.Tensor, dim: int, *, limit: float, seed: str) -> tf.Tensor:
    """Returns float32 [n, dim], uniform in [-limit, limit), for ids int64 [n].

    Args:
      seed: tables with another seed have other values.
    """
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    # Odd 64-bit factors. The top bits of a product with a well mixed number are again well mixed.
    factors = random.integers(-2**63, 2**63 - 1, size=[1, dim], dtype=np.int64) | 1
    mixed = _mix(ids + int(random.integers(0, 2**62)))
    top = tf.bitwise.right_shift(mixed[:, tf.newaxis] * factors, tf.constant(64 - _BITS, tf.int64))  # sign included
    return tf.cast(top, tf.float32) * np.float32(limit / 2**(_BITS - 1))


def _mix(numbers: tf.Tensor) -> tf.Tensor:
    """Mixes the bits of int64 numbers (splitmix64; Steele et al. 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        factor = factor - 2**64 if factor >= 2**63 else factor
        numbers = tf.bitwise.bitwise_xor(numbers, _shift(numbers, shift)) * tf.constant(factor, tf.int64)
    return tf.bitwise.bitwise_xor(numbers, _shift(numbers, 31))


def _shift(numbers: tf.Tensor, bits: int) -> tf.Tensor:
    """Shifts int64 numbers to the right, with zeros from the left, as for uint64."""
    shifted = tf.bitwise.right_shift(numbers, tf.constant(bits, tf.int64))
    return tf.bitwise.bitwise_and(shifted, tf.constant(2**(64 - bits) - 1, tf.int64))
