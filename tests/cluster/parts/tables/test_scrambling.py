"""The keys of hash tables: never the same for two ids, and in buckets all over the table."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.tables.rows.dealing import scramble, scrambled
from tests.tensorflow_mode import tf


def _scramble(ids):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(scramble(tf.constant(ids, tf.int64)))


def test_the_graph_and_python_agree():
    """So no id becomes one of the two keys that the table reserves, which are those of reserved ids."""
    ids = [-2**63, -2**63 + 1, -2**32, -1, 0, 1, 2**31, 2**32, 2**62 + 12345, 2**63 - 1]
    assert list(_scramble(ids)) == [scrambled(number) for number in ids]


def test_keys_tell_the_ids():
    """Each step is undone in turn, so two ids never have one key."""
    rng = np.random.default_rng(0)
    ids = rng.integers(-2**63, 2**63 - 1, 1000)
    keys = _scramble(ids).view(np.uint64)
    keys ^= keys >> np.uint64(32)
    keys *= np.uint64(pow(0x9E3779B97F4A7C15, -1, 2**64))
    keys ^= keys >> np.uint64(32)
    np.testing.assert_array_equal(keys.view(np.int64), ids)


@pytest.mark.parametrize("shift", [12, 20, 32, 40, 58])
def test_ids_with_a_field_in_their_upper_bits_have_buckets_of_their_own(shift):
    """16 series of 4096 ids in 2^17 buckets: few share one, as with random keys, and runs of full buckets are short."""
    ids = (np.arange(16)[:, np.newaxis] << shift) + np.arange(4096)
    buckets = np.unique(_scramble(ids.ravel()) & (2**17 - 1))
    assert len(buckets) > 0.9 * 2**17 * (1 - np.exp(-0.5))
    gaps = np.flatnonzero(np.diff(buckets) > 1)
    assert np.diff(gaps).max() < 200
