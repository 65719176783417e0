"""Which ps has which rows: all ps alike, whatever the ids; against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.tables.rows import dealing
from ps_train.parts.tables.rows.dealing import scramble
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
        found = _run(dealing.owner_of(tf.constant(ids), num_ps, is_dynamic=True))
    np.testing.assert_array_equal(found, owners_of(ids, num_ps, is_dynamic=True))
    _assert_even(np.bincount(found, minlength=num_ps), len(ids), num_ps)


@pytest.mark.parametrize("num_ps", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("ids", _FIXED.values(), ids=_FIXED)
def test_all_ps_have_as_many_rows_of_a_fixed_table(ids, num_ps):
    """Each has room for its share and no row more; no two ids have one row, and a row says its id."""
    with tf.Graph().as_default():
        found, rows = _run([dealing.owner_of(tf.constant(ids), num_ps, is_dynamic=False),
                            dealing.fixed_row_of(tf.constant(ids), num_ps)])
    np.testing.assert_array_equal(found, owners_of(ids, num_ps, is_dynamic=False))
    _assert_even(np.bincount(found, minlength=num_ps), len(ids), num_ps)
    assert rows.max() < -(-(ids.max() + 1) // num_ps)
    assert len(set(zip(found, rows))) == len(ids)
    with tf.Graph().as_default():
        known = _run([dealing.fixed_id_of(tf.constant(rows[found == ps]), ps, num_ps) for ps in range(num_ps)])
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
