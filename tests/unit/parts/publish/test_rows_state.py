"""What differs between two states of a table, against a dict of rows."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.publish.rows_state import Comparison, PublishedTable, hash_rows


def _rows(rng, ids):
    return {int(key): rng.normal(size=3).astype(np.float32) for key in ids}


def _compare(published, rows, pieces, has_all=True):
    """Returns the changed ids, the dropped ids, and what is published then."""
    comparison, changed = Comparison(published), []
    for ids in np.array_split(np.array(list(rows), np.int64), pieces):
        values = np.array([rows[key] for key in ids], np.float32).reshape(-1, 3)
        changed += ids[comparison.changed(ids, values)].tolist()
    dropped = comparison.missing() if has_all else np.zeros([0], np.int64)
    return set(changed), set(dropped.tolist()), comparison.finished().without(dropped)


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_that_are_new_or_differ_and_those_that_are_gone_are_found(seed):
    """Over several states, in pieces, the same as a dict says."""
    rng = np.random.default_rng(seed)
    published, before = PublishedTable(), {}
    for _ in range(6):
        kept = {key: row for key, row in before.items() if rng.random() < 0.8}
        now = {**kept, **_rows(rng, rng.integers(-2**63, 2**63, rng.integers(0, 30)))}
        now.update(_rows(rng, [key for key in kept if rng.random() < 0.3]))
        now = dict(rng.permutation(np.array(list(now.items()), object)).tolist()) if now else now
        changed, dropped, published = _compare(published, now, pieces=int(rng.integers(1, 5)))
        assert changed == {key for key, row in now.items() if key not in before or (row != before[key]).any()}
        assert dropped == before.keys() - now.keys()
        assert published.ids.tolist() == sorted(now)
        assert published.hashes.tolist() == [int(hash_rows(now[key][np.newaxis])[0]) for key in sorted(now)]
        before = now


def test_rows_of_a_delta_leave_the_others_as_they_are():
    """Ids that do not come are published still."""
    rng = np.random.default_rng(0)
    rows = _rows(rng, range(10))
    _, _, published = _compare(PublishedTable(), rows, 1)
    changed, dropped, published = _compare(published, {**_rows(rng, [3, 50]), 4: rows[4]}, 1, has_all=False)
    assert (changed, dropped) == ({3, 50}, set())
    assert published.ids.tolist() == [*range(10), 50]


def test_nothing_differs_where_nothing_came():
    """A table without rows, and one whose rows are the same."""
    assert _compare(PublishedTable(), {}, 1)[:2] == (set(), set())
    rows = _rows(np.random.default_rng(0), range(5))
    assert _compare(_compare(PublishedTable(), rows, 1)[2], rows, 2)[:2] == (set(), set())


def test_a_hash_depends_on_each_bit_of_a_row_and_on_the_order_of_its_columns():
    """Neighbouring floats, zeros of both signs, swapped columns, and a row of zeros have different hashes."""
    rows = np.array([[1, 2], [2, 1], [1, np.nextafter(np.float32(2), np.float32(3))], [0, 0], [0, -0.0]], np.float32)
    assert len(set(hash_rows(rows).tolist())) == len(rows)
    many = np.random.default_rng(0).integers(0, 2**32, (100_000, 1), np.uint32).view(np.float32)
    assert len(np.unique(hash_rows(many))) == len(np.unique(many.view(np.uint32)))
