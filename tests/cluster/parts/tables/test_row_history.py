"""The history of rows: the rule computes what it does without one, and each update is counted once."""

from __future__ import annotations

import numpy as np
import pytest

import ps_train
from ps_train.parts.tables import row_history
from ps_train.parts.tables.row_history import WithHistory
from ps_train.parts.tables.rules import RULES, Adagrad, Adam
from tests.cluster.parts.tables.lookups import Model
from tests.cluster.parts.tables.sharded import ShardedTable
from tests.errors import raises

_IDS = np.arange(6)


def _history(table, ids):
    return row_history.read_history(table.rows(ids)).tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rule", sorted(RULES))
def test_rows_are_those_of_the_rule_alone(rule, dtype):
    """Bit by bit, with its slots; of an id that comes later, the first update is that one."""
    alone = RULES[rule](0.1)
    random = np.random.default_rng(0)
    with ShardedTable(alone, dtype=dtype) as plain, ShardedTable(
            WithHistory(0.1, alone), dtype=dtype, has_history=True) as table:
        plain.reset(), table.reset()
        for ids in (_IDS[:4], _IDS[2:], _IDS[:4]):
            gradients = random.normal(size=[len(ids), 2])
            plain.update(ids, gradients), table.update(ids, gradients)
        np.testing.assert_array_equal(table.rows(_IDS)[:, :-2], plain.rows(_IDS))
        assert _history(table, _IDS) == [[1, 2], [1, 2], [1, 3], [1, 3], [2, 1], [2, 1]]


@pytest.mark.parametrize("rule", [Adagrad(0.1), Adam(0.1)], ids=["adds slots", "replaces slots"])
def test_the_push_of_a_round_is_one_update_whatever_a_worker_has_pulled(rule):
    """Another worker has updated the row since."""
    with ShardedTable(WithHistory(0.1, rule), has_history=True) as table:
        table.reset().update([1], [[1.0, 2.0]])
        pulled = table.rows([1])
        table.update([1], [[1.0, 2.0]])
        table.merge([1, 2], np.concatenate([pulled, 0 * pulled]))
        assert _history(table, [1, 2]) == [[1, 3], [3, 1]]


def test_a_row_that_was_dropped_begins_anew(tmp_path):
    """And the rows of two ps keep theirs on three."""
    rule = WithHistory(0.1, Adagrad(0.1))
    with ShardedTable(rule, num_ps=2, has_history=True) as table, ShardedTable(
            rule, num_ps=3, has_history=True) as restored:
        table.reset(), restored.reset()
        for ids in (_IDS, _IDS[:3], _IDS[:3]):
            table.update(ids, np.ones([len(ids), 2]))
        table.drop_before(2)
        table.update(_IDS[2:4], np.ones([2, 2]))
        expected = [[1, 3], [1, 3], [1, 4], [4, 1]]
        assert _history(table, _IDS[:4]) == expected
        for number, ops in enumerate(table.ops):
            path = str(tmp_path / f"piece-{number}")
            table.session.run(*ops.save_call(path, "items", (0, table.counts(number)["used"]), -1))
            for to in restored.ops:
                restored.session.run(*to.load_call(path, "items", keeps_present=False))
        assert _history(restored, _IDS[:4]) == expected
        np.testing.assert_array_equal(restored.rows(_IDS[:4]), table.rows(_IDS[:4]))


def test_history_is_true_or_false():
    """A typing error is no `True`."""
    with raises("bad_table_argument"):
        Model(lambda: ps_train.embedding_table("items", 2, history="yes"))
