"""Tables in checkpoints: saved by some ps, restored by others, and what happens when they do not fit."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

import ps_train
from ps_train.embeddings import rules
from ps_train.embeddings.files import contents, read_only, store_ops, upkeep
from ps_train.embeddings.rules import Adagrad, Frozen
from ps_train.embeddings.spec import TableSpec
from ps_train.errors import CheckpointError
from ps_train.inference import predictor, serving
from ps_train.plugins import contracts
from ps_train.storage import checkpoints, deltas
from ps_train.training import evaluation
from tests import clusters
from tests.cluster.embeddings.lookups import Model
from tests.tensorflow_mode import tf

_IDS = np.array([0, 1, 5, 8, 13, 14, 15, 31, 44])
_DIMS = {"a/b": 2, "a-b": 3, "items": 2}
_KINDS = {"a/b": {}, "a-b": {"num_rows": 60}}
_ITEMS = {"items": {"initial_limit": 0.5}}
_RULE = Adagrad(0.5)


class Tables(Model):
    """Two tables, dynamic and fixed, whose names differ in little, and a dense variable."""

    def __init__(self, num_ps=1, rule=_RULE, kinds=_KINDS):
        """Makes them, empty."""
        def build():
            self.step = tf.train.create_global_step()
            self.ids = tf.placeholder(tf.int64, [None])
            tables = {name: ps_train.embedding_table(name, _DIMS[name], **options)
                      for name, options in kinds.items()}
            self.rows = {name: table.lookup(self.ids) for name, table in tables.items()}
            self.factor = tf.placeholder_with_default(1.0, [])
            return self.factor * tf.add_n([tf.reduce_sum(tf.square(rows + 1)) for rows in self.rows.values()])

        super().__init__(build, num_ps, rule=rule)
        with self.graph.as_default():
            self.saver = tf.train.Saver([self.step])
            self.session.run(self.step.initializer)
            stores = {name: self.registry.stores(name) for name in kinds}
            self.own_ids = [tf.placeholder(tf.int64, [None]) for _ in range(num_ps)]
            self.whole = {name: [store.read(ids, with_slots=True) for store, ids in zip(found, self.own_ids)]
                          for name, found in stores.items()}

    def train(self, ids=_IDS, factor=1.0):
        """Takes a step on these ids."""
        self.session.run(self.train_op, {self.ids: ids, self.factor: factor})

    def values(self, ids=_IDS):
        """Returns name -> values by id."""
        return self.session.run(self.rows, {self.ids: ids})

    def values_and_slots(self, ids=_IDS):
        """Returns name -> rows by id."""
        num_ps = len(self.own_ids)
        feed = {own: ids[ids % num_ps == ps] for ps, own in enumerate(self.own_ids)}
        order = np.argsort(np.concatenate([np.flatnonzero(ids % num_ps == ps) for ps in range(num_ps)]))
        found = self.session.run(self.whole, feed)
        return {name: np.concatenate(parts)[order] for name, parts in found.items()}

    def save(self, folder, step=1):
        """Returns the path of a checkpoint of everything."""
        path = checkpoints.path_of(str(folder), step)
        self.tables.save(self.session, path, self.saver)
        return path

    def save_delta(self, step=2):
        """Returns the path of a delta to the last checkpoint."""
        path = deltas.delta_path(self.tables.base, step)
        self.tables.save_delta(self.session, path, self.saver)
        return path


def _ids_in(path):
    """Returns the ids of all rows in a checkpoint or delta."""
    reader = tf.train.load_checkpoint(path)
    return sorted(int(one) for part in reader.get_variable_to_shape_map() if part.endswith("/ids")
                  for one in reader.get_tensor(part))


def _assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.fixture
def small_pieces(monkeypatch):
    """Tables are saved in pieces of two rows or so."""
    monkeypatch.setattr(store_ops, "_PIECE_BYTES", 60)
    monkeypatch.setattr(store_ops, "_COUNTED_ROWS", 8)


def test_what_two_ps_have_saved_is_the_same_on_any_number(tmp_path, small_pieces):
    """Values and slots by id, and those of ids without a row; restored in place of what was there."""
    saving = Tables(num_ps=2)
    with saving:
        for ids in (_IDS, _IDS[:4], _IDS[2:7]):
            saving.train(ids)
        everywhere = np.arange(60)
        expected, updates = saving.values_and_slots(everywhere), 3
        path = saving.save(tmp_path)
    checkpoints.verify(path)
    assert not os.path.exists(f"{path}_temp")
    saved = contents.read_tables(path)
    assert all(len(pieces) > 1 for table in saved.values() for pieces in table.pieces)
    for num_ps in (1, 2, 3):
        restored = Tables(num_ps)
        with restored:
            restored.train(np.arange(0, 60, 7))
            restored.tables.restore(restored.session, path)
            _assert_same(restored.values_and_slots(everywhere), expected)
            counts = restored.tables.counts(restored.session)
            assert {one["updates"] for stores in counts.values() for one in stores} == {updates}
            assert {sum(one["used"] for one in stores) for stores in counts.values()} == {len(_IDS)}
            restored.train()
            after = restored.values_and_slots()
            if num_ps == 1:
                first = after
            for name, value in after.items():
                np.testing.assert_allclose(value, first[name], rtol=1e-5)


def test_an_evaluation_reads_values_only(tmp_path):
    """Tables that are only read have no slots, whatever the rule was."""
    saving = Tables(num_ps=2)
    with saving:
        saving.train()
        expected, path = saving.values(), saving.save(tmp_path)
    frozen = Tables(rule=Frozen(0.0))
    with frozen:
        contents.check_tables_fit(path, frozen.tables.specs)
        frozen.tables.restore(frozen.session, path)
        _assert_same(frozen.values(), expected)
        assert {store.store.width for stores in frozen.tables.stores.values() for store in stores} == {2, 3}


def _sum_model(kinds):
    """Returns a model whose loss is the mean of the sums of its rows, which it predicts."""
    def model_fn(features, labels, mode, params):
        sums = tf.reduce_sum(ps_train.embedding_table("items", 2, **kinds).lookup(features), axis=1)
        return ps_train.ModelSpec(loss=None if labels is None else tf.reduce_mean(sums), predictions=sums)

    return contracts.Model("sums", model_fn, {})


@pytest.mark.parametrize("kinds", [{}, {"max_rows": 10}], ids=["no limit", "max_rows"])
def test_evaluation_and_prediction_have_room_for_the_rows_of_all_ps(tmp_path, monkeypatch, caplog, kinds):
    """Without max_rows, each of the three ps has room of its own; with it, four rows, which are 12 together."""
    monkeypatch.setattr(store_ops, "_VIRTUAL_BYTES", 4 * (4 * 4 + 12))  # four rows of two floats and two slots
    ids = np.arange(12)
    saving = Tables(num_ps=3, kinds={"items": kinds})
    with saving:
        saving.train(ids)
        assert saving.tables.counts(saving.session)["items"][0]["used"] == 4
        expected, path = np.sum(saving.values(ids)["items"], axis=1), saving.save(tmp_path)
    model, params = _sum_model(kinds), {"batch_size": 5, "seed": 1}
    found = evaluation.Evaluator(model, params, clusters.array_dataset(ids, ids), params).evaluate(path)
    assert found.num_examples == 12
    np.testing.assert_allclose(found.loss_sum, np.sum(expected), rtol=1e-5)

    def made():
        given = tf.placeholder(tf.int64, [None])
        return serving.ServingInput(given, {"ids": given}, {})

    reading = predictor.of_checkpoint(path, model, params, made, num_threads=1)
    np.testing.assert_allclose(reading.predict({"ids": ids})["predictions"], expected, rtol=1e-5)
    reading.close()
    assert "no room" not in caplog.text


def test_more_rows_than_a_process_can_hold_are_one_line(tmp_path, monkeypatch):
    """As many as the ps of a training may have together."""
    monkeypatch.setattr(read_only, "MAX_ROWS_PER_PS", 8)
    saving = Tables(num_ps=2, kinds=_ITEMS)
    with saving:
        saving.train()
        path = saving.save(tmp_path)
    frozen = Tables(rule=Frozen(0.0), kinds=_ITEMS)
    with frozen, frozen.graph.as_default(), pytest.raises(
            CheckpointError, match=f"table items: {path} has 9 rows; allowed: at most 8 in one process; evaluate with"):
        read_only.ReadOnlyTables(frozen.registry).restore(frozen.session, path)


def test_rows_changed_since_a_save_are_a_delta(tmp_path, small_pieces):
    """A checkpoint and its delta give the state of the delta; the delta has only the rows that were touched.

    A checkpoint of an empty table gives every id its first value again.
    """
    saving = Tables(num_ps=2, kinds=_ITEMS)
    with saving:
        assert saving.tables.base == ""
        empty, first = saving.save(tmp_path, 0), saving.values_and_slots()
        saving.train()
        path = saving.save(tmp_path)
        assert saving.tables.base == path
        saving.train(np.array([5, 8, 50]))
        expected = saving.values_and_slots(np.arange(60))
        delta = saving.save_delta()
    assert _ids_in(delta) == [5, 8, 50]
    restored = Tables(num_ps=1, kinds=_ITEMS)
    with restored:
        restored.tables.restore(restored.session, path, delta)
        _assert_same(restored.values_and_slots(np.arange(60)), expected)
        restored.tables.restore(restored.session, empty)
        _assert_same(restored.values_and_slots(), first)


def test_after_a_restart_a_delta_follows_the_checkpoint_that_was_restored(tmp_path):
    """On another number of ps, too; the next run need not save everything first."""
    saving, restored, again = Tables(num_ps=2, kinds=_ITEMS), Tables(num_ps=1, kinds=_ITEMS), Tables(kinds=_ITEMS)
    with saving:
        saving.train()
        path = saving.save(tmp_path)
    with restored:
        restored.tables.restore(restored.session, path)
        assert restored.tables.base == path
        restored.train(np.array([5, 8, 50]))
        expected, delta = restored.values_and_slots(np.arange(60)), restored.save_delta()
    assert _ids_in(delta) == [5, 8, 50]
    with again:
        again.tables.restore(again.session, path, delta)
        _assert_same(again.values_and_slots(np.arange(60)), expected)
        assert again.tables.base == ""  # what is new since the checkpoint is not known


def test_rows_that_were_dropped_leave_the_room_to_those_of_the_delta(tmp_path, caplog):
    """A full table whose rows have changed since the checkpoint: none of the delta's is refused."""
    tables = Tables(kinds={"items": {"max_rows": 4}})
    with tables:
        for one in (1, 2, 3, 4):
            tables.train(np.array([one]))
        path = tables.save(tmp_path)
        for new in (5, 6, 7):
            upkeep.drop_old_rows(tables.session, tables.tables)
            tables.train(np.array([new]))
        kept = np.array([5, 6, 7])
        expected, delta = tables.values_and_slots(kept), tables.save_delta()
        assert _ids_in(delta) == [5, 6, 7]
        tables.tables.restore(tables.session, path, delta)
        _assert_same(tables.values_and_slots(kept), expected)
        assert tables.tables.counts(tables.session)["items"][0]["used"] == 4
    assert "found no room" not in caplog.text


def _spec(**fields):
    return {"items": dataclasses.replace(TableSpec("items", 2, rule=Adagrad(0.5)), **fields)}


_MISFITS = {
    "dim": (_spec(dim=3), "table items has dim 2 there, and 3 in the model"),
    "fixed": (_spec(num_rows=7), "table items has num_rows None there, and 7 in the model"),
    "rule": (_spec(rule=rules.Adam(0.1)), "table items has optimizer adagrad there, and adam in the model"),
    "missing": ({"users": TableSpec("users", 2, rule=Adagrad(0.5))}, "table users is missing"),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The path of a checkpoint of a table."""
    saving = Tables(kinds=_ITEMS)
    with saving:
        saving.train()
        return saving.save(tmp_path_factory.mktemp("checkpoint"))


@pytest.mark.parametrize("specs, expected", _MISFITS.values(), ids=_MISFITS)
def test_tables_of_another_model_are_one_line(checkpoint, specs, expected):
    """It says what differs, with both values, and what to do; another rate is no difference."""
    contents.check_tables_fit(checkpoint, _spec(rule=Adagrad(0.1)))
    with pytest.raises(CheckpointError) as caught:
        contents.check_tables_fit(checkpoint, specs)
    assert expected in str(caught.value) and "give another --train_dir" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_without_tables_fits_a_model_without(tmp_path):
    """And a model with one misses it there."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, f"{tmp_path}/model.ckpt", 1)
    contents.check_tables_fit(path, {})
    with pytest.raises(CheckpointError, match="table items is missing"):
        contents.check_tables_fit(path, _spec())


def test_rows_that_find_no_room_are_told(tmp_path, caplog):
    """A table whose max_rows is smaller than its checkpoint keeps as many rows as it has room for."""
    saving = Tables(kinds={"items": {}})
    with saving:
        saving.train()
        path = saving.save(tmp_path)
    small = Tables(kinds={"items": {"max_rows": 4}})
    with small:
        small.tables.restore(small.session, path)
        assert small.tables.counts(small.session)["items"][0]["used"] == 4
    assert f"table items: 5 rows of {path} have found no room" in caplog.text


def test_a_full_table_drops_the_rows_that_were_not_touched_for_the_longest_time():
    """Enough for new ids, and never those of the last update, even where all rows are as old as each other."""
    full = Tables(kinds={"items": {"max_rows": 10}})
    with full:
        full.train(np.arange(10))
        upkeep.drop_old_rows(full.session, full.tables)
        assert full.tables.counts(full.session)["items"][0]["evicted"] == 0
        for first in (2, 4, 6):
            full.train(np.arange(first, 10))
        upkeep.drop_old_rows(full.session, full.tables)
        kept = full.tables.counts(full.session)["items"][0]
        assert (kept["evicted"], kept["used"] - kept["free"]) == (2, 8)


def test_rows_that_no_update_has_touched_for_long_are_dropped():
    """ttl_steps=2: the id of the first update goes after the fourth."""
    aging = Tables(kinds={"items": {"ttl_steps": 2}})
    with aging:
        for ids in ([1], [2], [2], [3]):
            aging.train(np.array(ids))
        upkeep.drop_old_rows(aging.session, aging.tables)
        (counts,) = aging.tables.counts(aging.session)["items"]
        assert (counts["evicted"], counts["used"] - counts["free"]) == (1, 2)
