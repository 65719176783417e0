"""Rows with which tables begin: values and slots of each, on other numbers of ps, in several pieces."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

import ps_train
from ps_train.parts.tables import contents, pretrained, store_ops, upkeep
from ps_train.parts.tables.pretrained import Origin
from ps_train.parts.tables.rules import Adagrad, Ftrl, TableSpec
from ps_train.storage.merging_saver import MergingSaver
from tests.cluster.parts.tables.lookups import Model
from tests.cluster.parts.tables.sharded import owners_of
from tests.tensorflow_mode import tf

_IDS = np.array([0, 3, 5, 8, 13, 21, 34, 55, 77])
_RULE = Adagrad(0.5, initial_accumulator=0.25)


class Items(Model):
    """A dynamic table of two floats, with what sets its rows."""

    def __init__(self, num_ps, **spec):
        """Makes it."""
        def build():
            self.ids = tf.placeholder(tf.int64, [None])
            self.values = ps_train.embedding_table("items", 2, **spec).lookup(self.ids)
            return tf.reduce_sum(tf.square(self.values + 1))

        super().__init__(build, num_ps, rule=_RULE)
        with self.graph.as_default():
            self.pretrained = pretrained.PretrainedRows(self.tables)
            self.own_ids = [tf.placeholder(tf.int64, [None]) for _ in range(num_ps)]
            self.whole = [store.read(ids, with_slots=True)
                          for store, ids in zip(self.registry.stores("items"), self.own_ids)]

    def rows(self, ids):
        """Returns values and slots by id."""
        owners = owners_of(ids, len(self.own_ids), is_dynamic=True)
        parts = self.session.run(self.whole, {own: ids[owners == ps] for ps, own in enumerate(self.own_ids)})
        return np.concatenate(parts)[np.argsort(np.argsort(owners, kind="stable"))]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(path of a checkpoint of two ps, values of its rows); it has small pieces."""
    items = Items(2)
    with pytest.MonkeyPatch.context() as patch, items:
        patch.setattr(store_ops, "_PIECE_BYTES", 60)
        items.session.run(items.train_op, {items.ids: _IDS})
        with items.graph.as_default():
            step = tf.train.create_global_step()
            items.session.run(step.initializer)
            saver = MergingSaver(tf.train.Saver([step]), [items.tables.begin_save])
        path = str(tmp_path_factory.mktemp("saved") / "model.ckpt-1")
        saver.save(items.session, path)
        return path, items.session.run(items.values, {items.ids: _IDS})


@pytest.mark.parametrize("num_ps", [1, 2, 3])
def test_each_row_has_its_value_and_new_slots(saved, num_ps):
    """On as many ps and on others, also where an id has to come several times to get a row."""
    path, values = saved
    items = Items(num_ps, min_count=3)
    with items:
        items.pretrained.load(items.session, path, {"items": Origin("items", contents.read_tables(path)["items"])})
        np.testing.assert_array_equal(items.rows(_IDS), np.concatenate([values, np.full_like(values, 0.25)], 1))
        counts = items.tables.counts(items.session)["items"]
        assert sum(one["used"] for one in counts) == len(_IDS)
        assert all(one["updates"] == 0 for one in counts)


def test_a_row_of_ftrl_goes_on_from_its_value(saved):
    """The first update moves it by its gradient: rate * gradient / sqrt(sum of squares)."""
    path, values = saved
    items = Items(2, optimizer=Ftrl(0.01))
    with items:
        items.pretrained.load(items.session, path, {"items": Origin("items", contents.read_tables(path)["items"])})
        items.session.run(items.train_op, {items.ids: _IDS})
        gradients = 2 * (values + 1)
        np.testing.assert_allclose(items.session.run(items.values, {items.ids: _IDS}),
                                   values - 0.01 * gradients / np.sqrt(0.1 + gradients**2), rtol=1e-4)


def test_a_table_without_max_rows_has_room_for_all_rows(saved, monkeypatch, caplog):
    """Also if the rows of several ps begin on one, which has room for four of them by itself."""
    path, values = saved
    monkeypatch.setattr(store_ops, "_VIRTUAL_BYTES", 4 * (4 * 4 + 12))
    items = Items(1)
    with items, caplog.at_level(logging.WARNING):
        items.pretrained.load(items.session, path, {"items": Origin("items", contents.read_tables(path)["items"])})
        np.testing.assert_array_equal(items.session.run(items.values, {items.ids: _IDS}), values)
    assert not caplog.text


def test_the_parts_of_a_variable_of_deeprec_come_in_pieces(tmp_path, monkeypatch):
    """Not in one message, which may have no more than 2 GB."""
    monkeypatch.setattr(pretrained, "_PIECE_BYTES", 3 * 2 * 4)  # three rows
    ids, values = np.arange(10) * 2**40, np.arange(20, dtype=np.float32).reshape(10, 2)
    with tf.Graph().as_default(), tf.Session() as session:
        made = [tf.Variable(array[part::2], name=f"emb/part_{part}-{suffix}")
                for part in range(2) for suffix, array in (("keys", ids), ("values", values))]
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver(made).save(session, str(tmp_path / "model.ckpt"))
    pieces = list(Origin("emb", shape=[10, 2], parts=["emb/part_0", "emb/part_1"]).pieces(path))
    assert [len(own) for own, _ in pieces] == [3, 2, 3, 2]
    found = {int(own): row.tolist() for group in pieces for own, row in zip(*group)}
    assert found == dict(zip(ids.tolist(), values.tolist()))


def test_rows_for_which_there_is_no_room_are_counted(saved, caplog):
    """A line of the log says how many."""
    path, _ = saved
    items = Items(1, max_rows=4)
    with items, caplog.at_level(logging.WARNING):
        items.pretrained.load(items.session, path, {"items": Origin("items", contents.read_tables(path)["items"])})
    assert f"no room for {len(_IDS) - 4} rows" in caplog.text


def test_a_full_table_drops_a_tenth_of_them(tmp_path):
    """Not all rows that no update has touched yet: as dropping goes, all are as old as each other."""
    with tf.Graph().as_default(), tf.Session() as session:
        made = tf.Variable(np.ones([1000, 2], np.float32), name="items")
        session.run(made.initializer)
        path = tf.train.Saver([made]).save(session, str(tmp_path / "model.ckpt"))
    items = Items(1, max_rows=1000)
    with items:
        items.pretrained.load(items.session, path, {"items": Origin("items", shape=[1000, 2])})
        for _ in range(2):
            items.session.run(items.train_op, {items.ids: [7]})
        upkeep.drop_old_rows(items.session, items.tables)
        assert 60 < items.tables.counts(items.session)["items"][0]["evicted"] < 140


def test_what_does_not_fit_is_said():
    """Another width, a fixed table that is too small, or rows of any id for it, and a variable of another rank."""
    saved = contents.SavedTable(dim=2, num_slots=0, num_rows=50, rule="sgd", updates=1, pieces=[[]])
    assert Origin("old", saved).problem(TableSpec("items", 2)) is None
    assert Origin("old", saved).problem(TableSpec("items", 2, num_rows=50)) is None
    assert Origin("old", shape=[30, 2]).problem(TableSpec("items", 2, num_rows=50)) is None
    assert Origin("old", saved).problem(TableSpec("items", 2, num_rows=50, num_hashes=2)) is None
    for origin, spec in ((Origin("old", saved), TableSpec("items", 3)),
                         (Origin("old", saved), TableSpec("items", 2, num_rows=49)),
                         (Origin("old", dataclasses.replace(saved, num_rows=None)), TableSpec("items", 2, num_rows=9)),
                         (Origin("old", saved), TableSpec("items", 2, num_rows=60, num_hashes=2)),
                         (Origin("old", shape=[51, 2]), TableSpec("items", 2, num_rows=50)),
                         (Origin("old", shape=[2]), TableSpec("items", 2))):
        assert origin.problem(spec).startswith("table items")
