"""Rows with values in bfloat16: how they are rounded, stored, updated and saved."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import ps_train
from ps_train.parts.tables import contents, hashing, rules
from ps_train.parts.tables.rules import BFLOAT16, RowFormat
from ps_train.updates.update import Period
from tests.cluster.parts.tables import test_update_modes
from tests.cluster.parts.tables.sharded import ShardedTable
from tests.errors import raises
from tests.tensorflow_mode import tf

_NUM = 20_000
_IDS = np.arange(60)


def _below(values):
    """Returns the bfloat16 that is next to each float32 in the direction of 0, in float32."""
    return (np.asarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def _rounded(values, number=1):
    """Returns float32 [n, m] rounded as the values of ids 0 to n - 1 in the update of this number."""
    with tf.Graph().as_default(), tf.Session() as session:
        rounded = RowFormat(values.shape[1], 0, BFLOAT16).rounded(
            tf.constant(values, tf.float32), tf.range(len(values), dtype=tf.int64), seed="items",
            number=tf.constant(number, tf.int64))
        return session.run(rounded)


def test_a_rounded_value_is_one_of_two_neighbours_and_its_mean_is_the_exact_one():
    """For values of all sizes and both signs, next to a power of two too; another update draws other numbers."""
    exact = np.array([1 + 1 / 512, 1.002, -0.3333, 1e-30, -7.77e20, 1.99999], np.float32)
    rounded = _rounded(np.tile(exact, [_NUM, 1]))
    below = _below(exact)
    above = (below.view(np.uint32) + 0x10000).view(np.float32)
    assert ((rounded == below) | (rounded == above)).all()
    share = ((exact.astype(np.float64) - below) / (above.astype(np.float64) - below))
    standard_errors = np.sqrt(share * (1 - share) / _NUM)
    np.testing.assert_array_less(np.abs((rounded == above).mean(0) - share), 5 * standard_errors + 1e-9)
    assert (_rounded(np.tile(exact, [_NUM, 1]), number=2) != rounded).any()


def test_what_is_a_bfloat16_or_not_finite_is_rounded_to_itself():
    """Zeros, powers of two, infinities and NaN of every kind."""
    odd_nan = np.array([0x7FFFFFFF, 0xFF800001], np.uint32).view(np.float32)
    values = np.concatenate([np.array([0, -0.0, 1, -2.0**-126, 1.5, np.inf, -np.inf], np.float32), odd_nan])
    np.testing.assert_array_equal(_rounded(np.tile(values, [100, 1])), np.tile(values, [100, 1]))


@pytest.mark.parametrize(("dim", "num_slots", "width"), [(1, 0, 1), (3, 2, 4), (4, 4, 6), (16, 1, 9)])
def test_a_stored_row_has_two_values_in_a_float_and_its_slots_as_they_are(dim, num_slots, width):
    """Values are the nearest bfloat16, by numpy's arithmetic on bits; slots keep all 32 bits."""
    row_format = RowFormat(dim, num_slots, BFLOAT16)
    rows = np.random.default_rng(0).normal(size=[50, dim + num_slots]).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        packed = row_format.pack(tf.constant(rows))
        stored, unpacked, values = session.run([packed, row_format.unpack(packed), row_format.values_in(packed)])
    bits = rows[:, :dim].copy().view(np.uint32)
    nearest = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    assert stored.shape == (50, width) == (50, row_format.stored_width)
    np.testing.assert_array_equal(unpacked, np.concatenate([nearest, rows[:, dim:]], 1))
    np.testing.assert_array_equal(values, nearest)


def test_small_updates_of_a_row_add_up():
    """Each is a tenth of what the nearest bfloat16 would need to move; after 400, the mean of all rows has moved."""
    step, ids = 2.0**-8 / 20, np.arange(300)
    with ShardedTable(rules.Sgd(1.0), dim=4, dtype=BFLOAT16, initial=hashing.Initial("constant", 1.0)) as table:
        table.reset()
        for _ in range(400):
            table.update(ids, np.full([300, 4], -step))
        values = table.values(ids)
        np.testing.assert_array_equal(values, _below(values))
        # A step of 2^-7 with probability p has the variance p (1 - p) 2^-14.
        p = step * 2**7
        standard_error = np.sqrt(400 * p * (1 - p) / values.size) * 2**-7
        assert abs(values.mean() - (1 + 400 * step)) < 5 * standard_error


@pytest.mark.parametrize(("rule", "kind"), [
    (rules.Adagrad(0.5), {"num_rows": 60}), (rules.Momentum(0.1), {}), (rules.RowwiseAdagrad(0.5), {})])
def test_each_update_is_that_of_float32_but_for_the_rounding(rule, kind):
    """From the same rows, on 2 ps: slots are equal, and values are a neighbour of the exact ones."""
    random = np.random.default_rng(1)
    with ShardedTable(rule, 2, dim=3, dtype=BFLOAT16, **kind) as table, ShardedTable(rule, 2, dim=3, **kind) as exact:
        table.reset(), exact.reset()
        for number in range(3):
            gradients = random.normal(size=[60, 3])
            before = table.rows(_IDS) if number else None
            table.update(_IDS, gradients)
            exact.update(_IDS, gradients)
            rows, same = table.rows(_IDS), exact.rows(_IDS)
            np.testing.assert_array_equal(rows[:, :3], _below(rows[:, :3]))
            np.testing.assert_allclose(rows[:, :3], same[:, :3], rtol=2**-7, atol=1e-30)
            np.testing.assert_allclose(rows[:, 3:], same[:, 3:], rtol=1e-5)
            assert before is None or (rows[:, :3] != before[:, :3]).any()
            slots = rows[:, 3:] if rule.slot_merging == rules.REPLACE else 0 * rows[:, 3:]
            exact.merge(_IDS, np.concatenate([rows[:, :3] - same[:, :3], slots], 1))  # both go on from the same rows


def test_a_training_keeps_its_rows_in_bfloat16_with_local_steps_too(tmp_path, start_servers):
    """The checkpoint has values of which half the bits are 0, and a worker's change of a round is rounded as it comes.

    A training of another type goes on from it, and rounds what it reads.
    """
    options = {"single": {}, "rounds": {"period": Period(3)}}
    for name, more in options.items():
        model = test_update_modes.model(dtype=tf.bfloat16)
        _, rows, _ = test_update_modes.train(start_servers(2, 1), tmp_path / name, 6, model=model, **more)
        values = np.array([row[:2] for row in rows["items"].values()])
        np.testing.assert_array_equal(values, _below(values))
        assert len(np.unique(values)) > 20
        others = np.array(list(rows["others"].values()))[:, :1]
        assert (others != _below(others)).any()
    path = tf.train.latest_checkpoint(str(tmp_path / "single"))
    shutil.copytree(tmp_path / "single", tmp_path / "next")
    _, rows, _ = test_update_modes.train(start_servers(1, 1), tmp_path / "next", 7)
    before = dict(zip(*map(np.concatenate, zip(*contents.read_table(path, "items")))))
    is_same = [np.array_equal(row[:2], before[id_]) for id_, row in rows["items"].items() if id_ in before]
    assert 0 < sum(is_same) < len(is_same)


@pytest.mark.parametrize("dtype", [tf.float16, "int8", "no type", None, 3])
def test_another_type_is_refused(dtype):
    """The message names what was given, and both types."""
    with tf.Graph().as_default(), raises("bad_table_argument") as caught:
        ps_train.embedding_table("items", 4, dtype=dtype)
    assert str(caught.value).endswith(f"got dtype={dtype!r}; allowed: tf.float32 and tf.bfloat16")


def test_the_memory_of_a_ps_is_that_of_the_stored_rows():
    """A row of 16 values takes 32 bytes less; the room of a table without max_rows counts in these bytes."""
    with ShardedTable(rules.Sgd(1.0), dim=16, dtype=BFLOAT16) as small, ShardedTable(rules.Sgd(1.0), dim=16) as large:
        assert [table.ops[0].row_bytes for table in (small, large)] == [32 + 12, 64 + 12]
        assert small.ops[0].capacity > 1.7 * large.ops[0].capacity
        assert small.ops[0].rows_per_piece == large.ops[0].rows_per_piece
