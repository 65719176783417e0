"""Hashes of ids: rows are spread evenly over the ps, and keys over the buckets of a hash table; against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.tables import hashing
from ps_train.parts.tables.hashing import scramble, scrambled
from tests.cluster.parts.tables.owners import owners_of
from tests.tensorflow_mode import tf

_NUMBERS = np.arange(40_000)
_RANDOM = np.random.default_rng(0)
_DYNAMIC = {
    "random": _RANDOM.integers(-2**63 + 2, 2**63 - 1, len(_NUMBERS)),
    "in a row": _NUMBERS,
    "2 mod 3": 3 * _NUMBERS + 2,
    "snowflake": (1_700_000_000_000 + 7 * _NUMBERS) << 22 | 5 << 12,  # a time in ms, a machine, a number in the ms
    "snowflake of 8 machines": (1_700_000_000_000 + _NUMBERS) << 22 | (_NUMBERS % 8) << 12 | _NUMBERS % 3,
    "a field in the upper bits": (_NUMBERS % 26) << 58 | _NUMBERS,
}
_FIXED = {name: _DYNAMIC[name] for name in ("in a row", "2 mod 3")} | {
    "random": _RANDOM.choice(10**7, len(_NUMBERS), replace=False), "multiples of 12": 12 * _NUMBERS}


def _run(tensor):
    with tf.Session() as session:
        return session.run(tensor)


def _assert_even(counts, total, num_ps):
    np.testing.assert_allclose(counts, total / num_ps, rtol=0.05)


@pytest.mark.parametrize("num_ps", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("ids", _DYNAMIC.values(), ids=_DYNAMIC)
def test_all_ps_have_as_many_rows_of_a_dynamic_table(ids, num_ps):
    """Within 5 %, where `id % num_ps` puts all ids of a pattern on one ps; the owners are numpy's."""
    with tf.Graph().as_default():
        found = _run(hashing.owner_of(tf.constant(ids), num_ps, is_dynamic=True))
    np.testing.assert_array_equal(found, owners_of(ids, num_ps, is_dynamic=True))
    _assert_even(np.bincount(found, minlength=num_ps), len(ids), num_ps)


@pytest.mark.parametrize("num_ps", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("ids", _FIXED.values(), ids=_FIXED)
def test_all_ps_have_as_many_rows_of_a_fixed_table(ids, num_ps):
    """Each has room for its share and no row more; no two ids have one row, and a row says its id."""
    with tf.Graph().as_default():
        found, rows = _run([hashing.owner_of(tf.constant(ids), num_ps, is_dynamic=False),
                            hashing.fixed_row_of(tf.constant(ids), num_ps)])
    np.testing.assert_array_equal(found, owners_of(ids, num_ps, is_dynamic=False))
    _assert_even(np.bincount(found, minlength=num_ps), len(ids), num_ps)
    assert rows.max() < -(-(ids.max() + 1) // num_ps)
    assert len(set(zip(found, rows))) == len(ids)
    with tf.Graph().as_default():
        known = _run([hashing.fixed_id_of(tf.constant(rows[found == ps]), ps, num_ps) for ps in range(num_ps)])
    for ps, own in enumerate(known):
        np.testing.assert_array_equal(own, ids[found == ps])


@pytest.mark.parametrize("num_ps", [2, 3, 4, 7])
@pytest.mark.parametrize("ids", _DYNAMIC.values(), ids=_DYNAMIC)
def test_the_ids_of_one_ps_have_buckets_all_over_its_index(ids, num_ps):
    """As many as a random part of all keys: an owner that was taken from the keys would leave buckets empty."""
    with tf.Graph().as_default():
        keys = _run(scramble(tf.constant(ids)))
    found = owners_of(ids, num_ps, is_dynamic=True)
    for ps in range(num_ps):
        own = keys[found == ps]
        others = np.random.default_rng(ps).choice(keys, len(own), replace=False)
        for num_buckets in (2**14, 2**16, 2**18):
            filled, expected = (len(np.unique(some & (num_buckets - 1))) for some in (own, others))
            assert filled > 0.97 * expected


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


_MILLION = np.arange(250_000)


def _first(initial, ids=_MILLION, seed="items"):
    with tf.Graph().as_default():
        return _run(hashing.initial_values(tf.constant(ids, tf.int64), 4, initial=hashing.Initial(*initial), seed=seed))


@pytest.mark.parametrize(("initial", "least", "most", "mean", "deviation"), [
    (("uniform", 0.0, 0.5), -0.5, 0.5, 0.0, 0.5 / np.sqrt(3)),
    (("uniform", 2.0, 0.5), 1.5, 2.5, 2.0, 0.5 / np.sqrt(3)),
    # The standard deviation of a normal distribution that is cut off at two of its own is 0.8796 of them.
    (("truncated_normal", 1.0, 0.1), 0.8, 1.2, 1.0, 0.08796),
])
def test_first_values_have_their_distribution(initial, least, most, mean, deviation):
    """A million values: limits, mean and deviation; the same for each id alone, and other ones in another table."""
    found = _first(initial)
    assert found.dtype == np.float32
    assert least <= found.min() < least + 0.001 and most - 0.001 < found.max() <= most
    np.testing.assert_allclose([found.mean(), found.std()], [mean, deviation], atol=1e-3)
    np.testing.assert_allclose(_first(initial, _MILLION[7:8]), found[7:8], rtol=1e-6)
    assert not np.isclose(_first(initial, _MILLION[:50], "users"), found[:50]).all(axis=1).any()


def test_a_truncated_normal_distribution_is_that_of_numpy():
    """The counts in 40 bins, against the same number of drawn values."""
    found = _first(("truncated_normal", 0.0, 1.0)).ravel()
    drawn = np.random.default_rng(0).normal(size=2 * found.size)
    drawn = drawn[np.abs(drawn) < 2][:found.size]
    counts, expected = (np.histogram(values, 40, (-2, 2))[0] for values in (found, drawn))
    np.testing.assert_allclose(counts, expected, rtol=0.05)


def test_constant_first_values_are_the_constant():
    """In every element."""
    np.testing.assert_array_equal(_first(("constant", -3.0)), np.full([len(_MILLION), 4], -3.0, np.float32))
