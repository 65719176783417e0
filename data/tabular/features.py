"""The features of click data: numbers, and categories as ids. They are the same in every dataset of this kind.

    features = {"numbers": float32 [batch, num_numbers], "ids": int64 [batch, num_categories]}
    labels = float32 [batch], 0 or 1

An id is a hash of 63 bits of the number of the field (0, 1, ...) and the string, so all fields can share one table, and
one string has different ids in different fields. A missing category is the empty string, which has an id, too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import tensorflow.compat.v1 as tf

NUM_HASHES = 2**63 - 1  # FarmHash's Fingerprint64 modulo this
_SEED = 63


def field_keys(num_fields: int) -> np.ndarray:
    """Returns int64 [num_fields], random numbers below 2^63, of which each tells a field from the others."""
    rng = random.Random(_SEED)
    return np.array([rng.getrandbits(63) for _ in range(num_fields)], np.int64)


def category_ids(categories: Sequence[tf.Tensor], hash_buckets: int) -> tf.Tensor:
    """Returns the ids of categories: int64 [n, num_fields] for string [n] of each field.

    Args:
      hash_buckets: ids are in [0, hash_buckets); in [0, 2^63) if it is 0.
    """
    # Stacking strings, or joining them with the number of the field, would take longer than hashing them.
    hashes = [tf.strings.to_hash_bucket_fast(field, NUM_HASHES) for field in categories]
    ids = tf.bitwise.bitwise_xor(tf.stack(hashes, axis=1), field_keys(len(hashes))[np.newaxis])
    return ids % hash_buckets if hash_buckets else ids


def log_numbers(numbers: tf.Tensor) -> tf.Tensor:
    """Returns log(1 + x), elementwise; negative numbers count as 0."""
    return tf.math.log1p(tf.maximum(numbers, 0.0))
