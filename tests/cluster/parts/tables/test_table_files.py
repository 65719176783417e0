"""Tables in checkpoints: saved by some ps, restored by others, and what happens when they do not fit."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import threading
import types
import unittest.mock

import numpy as np
import pytest

import ps_train
from ps_train.parts.inference import predictor, serving
from ps_train.parts.tables import (
    connection,
    contents,
    folder_probe,
    hashing,
    index,
    part,
    rules,
    store_ops,
    table_files,
    upkeep,
)
from ps_train.parts.tables.rules import Adagrad, Frozen, TableSpec
from ps_train.plugins import contracts
from ps_train.storage import checkpoints
from ps_train.storage.merging_saver import MergingSaver, PartWriter
from ps_train.training import evaluation
from tests import clusters
from tests.cluster.parts.tables.lookups import Model
from tests.cluster.parts.tables.owners import owners_of
from tests.errors import raises
from tests.tensorflow_mode import tf

_IDS = np.array([0, 1, 5, 8, 13, 14, 15, 31, 44])
_DIMS = {"a/b": 2, "a-b": 3, "items": 2}
_KINDS = {"a/b": {}, "a-b": {"num_rows": 60, "dtype": tf.bfloat16}}
_ITEMS = {"items": {"initial_limit": 0.5}}
_RULE = Adagrad(0.5)
_made = {}


class Tables(Model):
    """Two tables, dynamic and fixed, whose names differ in little, and a dense variable; empty at each `with`."""

    def __init__(self, num_ps, rule, kinds, local_device):
        """Makes them."""
        def build():
            self.step = tf.train.create_global_step()
            self.ids = tf.placeholder(tf.int64, [None])
            tables = {name: ps_train.embedding_table(name, _DIMS[name], **options)
                      for name, options in kinds.items()}
            self.rows = {name: table.lookup(self.ids) for name, table in tables.items()}
            self.factor = tf.placeholder_with_default(1.0, [])
            return self.factor * tf.add_n([tf.reduce_sum(tf.square(rows + 1)) for rows in self.rows.values()])

        super().__init__(build, num_ps, rule=rule, local_device=local_device)
        with self.graph.as_default():
            self.saver = tf.train.Saver([self.step])
            self.prefix = tf.placeholder(tf.string, [])
            self.extra_op = tf.raw_ops.SaveV2(
                prefix=self.prefix, tensor_names=["extra"], shape_and_slices=[""], tensors=[tf.constant(7)])
            stores = {name: self.registry.stores(name) for name in kinds}
            self.own_ids = {name: [tf.placeholder(tf.int64, [None]) for _ in found] for name, found in stores.items()}
            self.whole = {name: [store.read(ids, with_slots=True) for store, ids in zip(found, self.own_ids[name])]
                          for name, found in stores.items()}

    def __enter__(self):
        """Empties the tables, of which others may have left something."""
        self.tables.reset(self.session)
        self.session.run(self.step.initializer)
        return self.session

    def __exit__(self, *_):
        """Keeps the session for the next one."""

    def train(self, ids=_IDS, factor=1.0):
        """Takes a step on these ids."""
        self.session.run(self.train_op, {self.ids: ids, self.factor: factor})

    def values(self, ids=_IDS):
        """Returns name -> values by id."""
        return self.session.run(self.rows, {self.ids: ids})

    def values_and_slots(self, ids=_IDS):
        """Returns name -> rows by id."""
        owners = {name: owners_of(ids, len(own), is_dynamic=self.registry.specs[name].is_dynamic)
                  for name, own in self.own_ids.items()}
        feed = {one: ids[owners[name] == ps] for name, own in self.own_ids.items() for ps, one in enumerate(own)}
        found = self.session.run(self.whole, feed)
        return {name: np.concatenate(parts)[np.argsort(np.argsort(owners[name], kind="stable"))]
                for name, parts in found.items()}

    def write_extra(self, prefix):
        """Writes a tensor to another file."""
        self.session.run(self.extra_op, {self.prefix: prefix})

    def save(self, folder, step=1):
        """Returns the path of a checkpoint of everything."""
        path = checkpoints.path_of(str(folder), step)
        self.merging().save(self.session, path)
        return path

    def save_delta(self, step=2):
        """Returns the path of a delta to the last checkpoint."""
        path = contents.delta_path(self.tables.base, step)
        self.merging().save(self.session, path, is_delta=True)
        return path

    def merging(self, *parts):
        """Returns what saves everything, and these parts last."""
        with self.graph.as_default():
            return MergingSaver(self.saver, [self.tables.begin_save, *parts])


def _tables(num_ps=1, rule=_RULE, kinds=_KINDS, local_device=""):
    """Returns Tables, which are made once for all tests: most of their time goes into graphs."""
    key = num_ps, rule, repr(kinds), local_device
    if key not in _made:
        _made[key] = Tables(num_ps, rule, kinds, local_device)
    return _made[key]


@pytest.fixture(scope="module", autouse=True)
def small_tables():
    """Dynamic tables have room for some 10,000 rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_ops, "_VIRTUAL_BYTES", 400_000)
        yield


def _ids_in(path):
    """Returns the ids of all rows in a checkpoint or delta."""
    reader = tf.train.load_checkpoint(path)
    return sorted(int(one) for part in reader.get_variable_to_shape_map() if part.endswith("/ids")
                  for one in reader.get_tensor(part))


def _ids_in_pieces(path, pieces):
    reader = tf.train.load_checkpoint(path)
    return sorted(int(one) for piece in pieces for one in reader.get_tensor(f"{piece}/ids"))


def _assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def _make_pieces_small(patch):
    patch.setattr(store_ops, "_PIECE_BYTES", 60)
    patch.setattr(store_ops, "_COUNTED_ROWS", 8)


@pytest.fixture
def small_pieces(monkeypatch):
    """Tables are saved in pieces of two rows or so."""
    _make_pieces_small(monkeypatch)


@pytest.fixture
def local_device(request, monkeypatch):
    """The device of the chief, where the ps do not see its folder; "" where each ps uses the files itself."""
    monkeypatch.setattr(folder_probe.FolderProbe, "_read", lambda probe, session, path: [])
    return request.param


@pytest.mark.parametrize("local_device", ["", "/cpu:0"], ids=["by the ps", "by the chief"], indirect=True)
def test_what_two_ps_have_saved_is_the_same_on_any_number(tmp_path, small_pieces, local_device):
    """Values and slots by id, and those of ids without a row; restored over other rows."""
    saving = _tables(num_ps=2, local_device=local_device)
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
        restored = _tables(num_ps, local_device=local_device)
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
            used = {store.uses_ps_files for stores in restored.tables.stores.values() for store in stores}
            assert used == {not local_device}


def test_the_ps_use_files_that_they_share_with_the_chief(tmp_path):
    folder, path = str(tmp_path), f"{tmp_path}/model.ckpt-1"
    with tf.Graph().as_default(), tf.Session() as session:
        probe = folder_probe.FolderProbe(["/cpu:0", "/cpu:0"])
        assert probe.can_write(session, folder)
        pathlib.Path(f"{path}.index").write_text("an index")
        assert probe.can_read(session, path)
        # On a machine that does not have the folder, and on one that has a checkpoint of another training there.
        for content in (tf.errors.NotFoundError(None, None, "no file"), [b"an index", b"another one"]):
            stand_in = unittest.mock.Mock(run=unittest.mock.Mock(side_effect=[content, content]))
            assert not probe.can_read(stand_in, path)
        stand_in = unittest.mock.Mock(run=unittest.mock.Mock(side_effect=[tf.errors.NotFoundError(None, None, "no")]))
        assert not probe.can_write(stand_in, folder)
        stand_in.run.assert_called_once()  # a write would make the folder there
    assert os.listdir(tmp_path) == ["model.ckpt-1.index"]


def test_an_evaluation_reads_values_only(tmp_path):
    """Tables that are only read have no slots under any rule."""
    saving = _tables(num_ps=2)
    with saving:
        saving.train()
        expected, path = saving.values(), saving.save(tmp_path)
    frozen = _tables(rule=Frozen(0.0))
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
    """Without max_rows, each of the three ps has room for four rows; with it, four rows, which are 12 together."""
    monkeypatch.setattr(store_ops, "_VIRTUAL_BYTES", 4 * (4 * 4 + 12))  # four rows of two floats and two slots
    everywhere = np.arange(100)
    owners = owners_of(everywhere, 3, is_dynamic=True)
    ids = np.concatenate([everywhere[owners == ps][:4] for ps in range(3)])
    saving = _tables(num_ps=3, kinds={"items": kinds})
    with saving:
        saving.train(ids)
        assert [one["used"] for one in saving.tables.counts(saving.session)["items"]] == [4, 4, 4]
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
    monkeypatch.setattr(table_files, "MAX_ROWS_PER_PS", 8)
    saving = _tables(num_ps=2, kinds=_ITEMS)
    with saving:
        saving.train()
        path = saving.save(tmp_path)
    frozen = _tables(rule=Frozen(0.0), kinds=_ITEMS)
    with frozen, frozen.graph.as_default(), raises("table_too_large") as caught:
        table_files.ReadOnlyTables(frozen.registry).restore(frozen.session, path)
    assert f"table items: {path} has 9 rows; allowed: at most 8 " in str(caught.value)


@pytest.mark.parametrize(("kinds", "state", "advice"), [
    ({}, {}, "; give the table max_rows"), ({"max_rows": 10}, {}, "; use more ps, or a smaller max_rows"),
    ({"num_rows": 10}, {}, "; use more ps, or a smaller num_rows"),
    ({}, {"num_coming": 10**9}, "; use more ps, or give them more memory"),
    ({}, {"num_saved": 10}, "; evaluate with --evaluate_with=workers")])
def test_a_ps_without_room_is_one_line_with_what_helps(monkeypatch, kinds, state, advice):
    """Issue: without max_rows it advised more ps, each of which makes as much room."""
    def fail(store, session):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    made = _tables(kinds={"items": kinds})
    monkeypatch.setattr(store_ops.StoreOps, "reset", fail)
    for store in made.tables.stores["items"]:
        for name, value in state.items():
            monkeypatch.setattr(store, name, value)  # other tests use these tables, too
    with made.graph.as_default(), raises("table_too_large") as caught:
        made.tables.reset(made.session)
    assert advice in str(caught.value)


def test_rows_changed_since_a_save_are_a_delta(tmp_path, small_pieces):
    """A checkpoint and its delta give the state of the delta; the delta has only the rows that were touched.

    A checkpoint of an empty table gives every id its first value again.
    """
    saving = _tables(num_ps=2, kinds=_ITEMS)
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
    restored = _tables(num_ps=1, kinds=_ITEMS)
    with restored:
        restored.tables.restore(restored.session, path, delta)
        _assert_same(restored.values_and_slots(np.arange(60)), expected)
        restored.tables.restore(restored.session, empty)
        _assert_same(restored.values_and_slots(), first)


def _save_while_training(tables, folder, *, is_delta=False):
    """Saves while others train: at the cut on three ids, of which 50 is new, and then no more.

    Returns:
      the path, and the rows of the ids 0 to 59 at the cut.
    """
    at_cut = []

    def cut():
        tables.train(np.array([5, 8, 50]))
        at_cut.append(tables.values_and_slots(np.arange(60)))
        return contents.delta_path(tables.tables.base, 9) if is_delta else checkpoints.path_of(str(folder), 9)

    tables.merging().save(tables.session, checkpoints.path_of(str(folder), 1), cut, is_delta=is_delta)
    (expected,) = at_cut
    return contents.delta_path(tables.tables.base, 9) if is_delta else tables.tables.base, expected


def test_a_checkpoint_has_the_rows_of_its_cut(tmp_path, small_pieces):
    """Rows that were touched after they were written are written again; every reader takes the last ones."""
    saving = _tables(num_ps=2)
    with saving:
        saving.train()
        path, expected = _save_while_training(saving, tmp_path)
    assert path == checkpoints.path_of(str(tmp_path), 9) == checkpoints.newest_sound(str(tmp_path))
    assert not any(name.endswith("_temp") for name in os.listdir(tmp_path))
    saved = contents.read_tables(path)
    assert all(table.has_repeated for table in saved.values())
    assert _ids_in(path) == sorted(2 * [*_IDS, 5, 8, 50])  # of two tables, the three twice
    for num_ps in (2, 3):
        restored = _tables(num_ps)
        with restored:
            restored.tables.restore(restored.session, path)
            _assert_same(restored.values_and_slots(np.arange(60)), expected)
            counts = restored.tables.counts(restored.session)
            assert sum(one["used"] for one in counts["a/b"]) == len(_IDS) + 1
    for name, values in expected.items():
        rows = [(one, value) for ids, values in ps_train.read_table(path, name) for one, value in zip(ids, values)]
        assert sorted(one for one, _ in rows) == sorted([*_IDS, 50])
        for one, value in rows:
            np.testing.assert_array_equal(value, values[one, :_DIMS[name]])
        assert contents.count_rows(path, name) == len(rows)


def test_a_delta_has_the_rows_of_its_cut(tmp_path, small_pieces):
    """What the checkpoint before has missed, too: what was touched from its last pass on."""
    saving = _tables(num_ps=2, kinds=_ITEMS)
    with saving:
        saving.train()
        path = saving.save(tmp_path)
        saving.train(np.arange(0, 20))
        delta, expected = _save_while_training(saving, tmp_path, is_delta=True)
    assert set(_ids_in(delta)) == {*range(20), 50}
    restored = _tables(num_ps=3, kinds=_ITEMS)
    with restored:
        restored.tables.restore(restored.session, path, delta)
        _assert_same(restored.values_and_slots(np.arange(60)), expected)


def test_the_last_part_is_written_after_all_rows(tmp_path, small_pieces):
    """What is touched while it is written is in the next delta, not in the checkpoint."""
    saving = _tables(num_ps=1, kinds=_ITEMS)
    with saving:
        saving.train()
        before = saving.values_and_slots()

        class Last(PartWriter):
            def __init__(self, _, folder, is_delta):
                self.prefix = f"{folder}/last"

            def write(self):
                saving.train(np.array([13, 51]))
                saving.write_extra(self.prefix)
                return [self.prefix]

        path = saving.merging(Last).save(saving.session, checkpoints.path_of(str(tmp_path), 1))
        delta = saving.save_delta()
    assert tf.train.load_checkpoint(path).get_tensor("extra") == 7
    assert _ids_in(path) == sorted(_IDS) and _ids_in(delta) == [13, 51]
    restored = _tables(kinds=_ITEMS)
    with restored:
        restored.tables.restore(restored.session, path)
        _assert_same(restored.values_and_slots(), before)


@pytest.mark.parametrize("is_delta, local_device, numbers", [(False, "", (2, 3)), (True, "/cpu:0", (1, 2))],
                         indirect=["local_device"], ids=["checkpoint", "delta by the chief"])
def test_how_often_an_id_was_seen_outlives_a_restart(tmp_path, is_delta, local_device, numbers):
    """On another number of ps, too: an id seen twice needs one more time of three, others three."""
    kinds = {"items": {"min_count": 3}}
    saving = _tables(num_ps=2, kinds=kinds, local_device=local_device)
    with saving:
        saving.train(np.array([1, 2, 3]))
        path, delta = saving.save(tmp_path), None
        saving.train(np.array([1, 2, 9]))
        if is_delta:
            delta = saving.save_delta()
        else:
            path = saving.save(tmp_path, step=2)
    for num_ps in numbers:
        restored = _tables(num_ps, kinds=kinds, local_device=local_device)
        with restored:
            restored.train(np.array([9]))  # is forgotten
            restored.tables.restore(restored.session, path, delta)
            for ids, known in (([2, 3, 4], [2]), ([3, 4], [2, 3]), ([4], [2, 3, 4]), ([1], [1, 2, 3, 4])):
                restored.train(np.array(ids))
                again = restored.save(tmp_path / str(num_ps), step=3 + len(known))
                assert _ids_in(again) == known, num_ps


def test_counts_by_the_hash_of_an_earlier_version_are_left_out(tmp_path, monkeypatch, caplog):
    """They would admit ids that were never seen. A line says so."""
    tables = _tables(kinds={"items": {"min_count": 3}})
    with tables:
        for _ in range(2):
            tables.train(np.array([1, 2]))
        monkeypatch.setattr(contents, "SIGHTINGS", "seen")
        path = tables.save(tmp_path)
        monkeypatch.undo()
        tables.tables.restore(tables.session, path)
        tables.train(np.array([1, 2]))
        assert tables.tables.counts(tables.session)["items"][0]["used"] == 0
    assert f"table items: checkpoint {path} is of an earlier ps_train" in caplog.text


def test_a_checkpoint_without_these_counts_restores(tmp_path):
    """Of a table that admitted all ids when it was saved, or of an older ps_train."""
    saving, restored = _tables(kinds={"items": {}}), _tables(kinds={"items": {"min_count": 2}})
    with saving:
        saving.train()
        expected, path = saving.values_and_slots(), saving.save(tmp_path)
    with restored:
        restored.tables.restore(restored.session, path)
        _assert_same(restored.values_and_slots(), expected)


def test_a_row_that_was_dropped_during_a_save_leaves_its_room(tmp_path, small_pieces, caplog):
    """It is in the checkpoint, as it was written first; the row that took its place is there, too."""
    tables = _tables(kinds={"items": {"max_rows": 4}})
    with tables:
        for one in (1, 2, 3, 4):
            tables.train(np.array([one]))

        def cut():
            for new in (5, 6, 7):
                upkeep.drop_old_rows(tables.session, tables.tables)
                tables.train(np.array([new]))
            return checkpoints.path_of(str(tmp_path), 1)

        path = tables.merging().save(tables.session, checkpoints.path_of(str(tmp_path), 1), cut)
        kept = np.array([5, 6, 7])
        expected = tables.values_and_slots(kept)
        assert {5, 6, 7} < set(_ids_in(path)) and len(_ids_in(path)) > 4
        tables.tables.restore(tables.session, path)
        _assert_same(tables.values_and_slots(kept), expected)


def _deal_as_before(patch):
    """Saves as versions did whose rows were dealt by `id % num_ps`, which no checkpoint says."""
    def modulo(ids, num_ps, *, is_dynamic):
        del is_dynamic
        return tf.cast(ids % num_ps, tf.int32) if tf.is_tensor(ids) else ids % num_ps

    for module in (connection, store_ops):
        patch.setattr(module, "owner_of", modulo)
    patch.setattr("tests.cluster.parts.tables.test_table_files.owners_of", modulo)
    patch.setattr(index, "fixed_id_of", lambda rows, ps, num_ps: rows * num_ps + ps)
    patch.setattr(contents, "to_text", lambda tables, _real=contents.to_text: _real(tables).replace(
        f', "dealt": "{hashing.MIXED}"', ""))


@pytest.fixture(scope="module")
def old_files(tmp_path_factory):
    """A checkpoint and its delta by 2 ps that dealt their rows by `id % num_ps`, and the rows that both give."""
    everywhere, tmp_path = np.arange(60), tmp_path_factory.mktemp("old")
    with pytest.MonkeyPatch.context() as patch:
        _deal_as_before(patch)
        _make_pieces_small(patch)
        patch.setattr("tests.cluster.parts.tables.test_table_files._made", {})
        saving = _tables(num_ps=2)
        with saving:
            saving.train()
            path, of_path = saving.save(tmp_path), saving.values_and_slots(everywhere)
            saving.train(np.array([5, 8, 50]))
            delta, of_delta = saving.save_delta(), saving.values_and_slots(everywhere)
    assert b'"dealt"' not in tf.train.load_checkpoint(path).get_tensor(contents.KEY)
    ids = [_ids_in_pieces(path, pieces) for pieces in contents.read_tables(path)["a/b"].pieces]
    assert ids == [[one for one in _IDS if one % 2 == ps] for ps in (0, 1)]
    return path, of_path, delta, of_delta


@pytest.mark.parametrize("num_ps", [1, 2, 3])
def test_rows_that_were_dealt_by_a_remainder_are_dealt_again(old_files, small_pieces, num_ps):
    """From checkpoints and deltas of before, on as many ps and on others: each ps gets its rows and no other."""
    path, of_path, delta, of_delta = old_files
    everywhere = np.arange(60)
    for one, expected, ids in ((None, of_path, _IDS), (delta, of_delta, np.union1d(_IDS, [5, 8, 50]))):
        restored = _tables(num_ps)
        with restored:
            restored.tables.restore(restored.session, path, one)
            _assert_same(restored.values_and_slots(everywhere), expected)
            for name, counts in restored.tables.counts(restored.session).items():
                owners = owners_of(ids, num_ps, is_dynamic=restored.registry.specs[name].is_dynamic)
                assert [own["used"] for own in counts] == list(np.bincount(owners, minlength=num_ps))
            restored.train()
            assert not np.array_equal(restored.values()["a/b"], expected["a/b"][_IDS, :2])


def test_a_delta_may_be_dealt_otherwise_than_its_checkpoint(old_files, small_pieces):
    """The first training of a new version saves deltas to a checkpoint of the last one."""
    path, everywhere = old_files[0], np.arange(60)
    going_on, restored = _tables(num_ps=2), _tables(num_ps=2)
    with going_on:
        going_on.tables.restore(going_on.session, path)
        going_on.train(np.array([1, 5, 52]))
        expected, delta = going_on.values_and_slots(everywhere), going_on.save_delta(3)
    assert _ids_in(delta) == sorted(2 * [1, 5, 52])
    assert {one.dealt for one in contents.read_tables(delta).values()} == {hashing.MIXED}
    with restored:
        restored.tables.restore(restored.session, path, delta)
        _assert_same(restored.values_and_slots(everywhere), expected)


def test_an_evaluation_reads_rows_that_were_dealt_by_a_remainder(old_files):
    """In one process, as export and predict do."""
    path, expected, _, _ = old_files
    frozen = _tables(rule=Frozen(0.0))
    with frozen, frozen.graph.as_default():
        table_files.ReadOnlyTables(frozen.registry).restore(frozen.session, path)
        for name, rows in frozen.values(np.arange(60)).items():
            np.testing.assert_array_equal(rows, expected[name][:, :_DIMS[name]])


def test_after_a_restart_a_delta_follows_the_checkpoint_that_was_restored(tmp_path):
    """On another number of ps, too; the next run need not save everything first."""
    saving, restored, again = _tables(num_ps=2, kinds=_ITEMS), _tables(num_ps=1, kinds=_ITEMS), _tables(kinds=_ITEMS)
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


def test_after_a_restart_from_a_delta_the_next_one_has_the_rows_of_both(tmp_path, small_pieces):
    """Though no checkpoint comes first if there is one of this step already."""
    tables, everywhere = _tables(num_ps=2, kinds=_ITEMS), np.arange(60)
    with tables:
        tables.train()
        path = tables.save(tmp_path)
        for ids, known in (([5, 50], [5, 50]), ([8], [5, 8, 50]), ([51], [5, 8, 50, 51])):
            tables.train(np.array(ids))
            expected, delta = tables.values_and_slots(everywhere), tables.save_delta()
            assert _ids_in(delta) == known
            tables.tables.restore(tables.session, path, delta)
            assert tables.tables.base == path
            _assert_same(tables.values_and_slots(everywhere), expected)


def test_a_delta_without_rows_is_followed_by_one_with_the_new_rows(tmp_path):
    """As of a training that has not begun yet."""
    tables = _tables(kinds=_ITEMS)
    with tables:
        path = tables.save(tmp_path)
        tables.tables.restore(tables.session, path, tables.save_delta(1))
        assert tables.tables.base == path
        tables.train(np.array([5, 50]))
        assert _ids_in(tables.save_delta(2)) == [5, 50]


def test_rows_that_were_dropped_leave_the_room_to_those_of_the_delta(tmp_path, caplog):
    """A full table whose rows have changed since the checkpoint: none of the delta's is refused."""
    tables = _tables(kinds={"items": {"max_rows": 4}})
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
    assert "no room" not in caplog.text


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
    saving = _tables(kinds=_ITEMS)
    with saving:
        saving.train()
        return saving.save(tmp_path_factory.mktemp("checkpoint"))


def test_a_checkpoint_that_is_removed_while_it_is_read_is_one_line(tmp_path):
    """Which says what TensorFlow found, not where in the graph."""
    tables = _tables(kinds=_ITEMS)
    with tables:
        tables.train()
        path = tables.save(tmp_path)
        saved = contents.read_tables(path)
        checkpoints.remove(path)
        with raises("checkpoint_unreadable") as caught:
            tables.tables._load_rows(tables.session, path, saved)
    assert "Unsuccessful TensorSliceReader" in str(caught.value)


@pytest.mark.parametrize("specs, expected", _MISFITS.values(), ids=_MISFITS)
def test_tables_of_another_model_are_one_line(checkpoint, specs, expected):
    """It says what differs, with both values; another rate is no difference."""
    contents.check_tables_fit(checkpoint, _spec(rule=Adagrad(0.1)))
    with raises("checkpoint_of_another_model") as caught:
        contents.check_tables_fit(checkpoint, specs)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_without_tables_fits_a_model_without(tmp_path):
    """And a model with one misses it there."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, f"{tmp_path}/model.ckpt", 1)
    contents.check_tables_fit(path, {})
    with raises("checkpoint_of_another_model"):
        contents.check_tables_fit(path, _spec())


def test_rows_without_room_are_logged(tmp_path, caplog):
    """A table whose max_rows is smaller than its checkpoint keeps as many rows as it has room for."""
    saving = _tables(kinds={"items": {}})
    with saving:
        saving.train()
        path = saving.save(tmp_path)
    small = _tables(kinds={"items": {"max_rows": 4}})
    with small:
        small.tables.restore(small.session, path)
        assert small.tables.counts(small.session)["items"][0]["used"] == 4
    assert f"table items: no room for 5 rows of {path}; " in caplog.text


@pytest.mark.parametrize("with_delta", [False, True])
def test_a_restore_on_fewer_ps_has_room_for_all_rows(tmp_path, monkeypatch, caplog, with_delta):
    """Of a table without max_rows, of which each of the three ps had room for four rows."""
    saving, restored = _tables(num_ps=3, kinds={"items": {}}), _tables(num_ps=1, kinds={"items": {}})
    monkeypatch.setattr(store_ops, "_VIRTUAL_BYTES", 4 * saving.tables.stores["items"][0].row_bytes)
    everywhere = np.arange(100)
    owners = owners_of(everywhere, 3, is_dynamic=True)
    ids = np.concatenate([everywhere[owners == ps][:4] for ps in range(3)])
    with saving:
        saving.train(ids[1:] if with_delta else ids)
        path, delta = saving.save(tmp_path), None
        if with_delta:
            saving.train(ids[:2])
            delta = saving.save_delta()
        expected = saving.values_and_slots(ids)
    with restored:
        restored.tables.restore(restored.session, path, delta)
        _assert_same(restored.values_and_slots(ids), expected)
        (counts,) = restored.tables.counts(restored.session)["items"]
        assert counts["used"] == 12 and counts["refused"] == 0 and counts["capacity"] >= 18
    assert "no room" not in caplog.text


def test_a_table_without_max_rows_says_that_it_drops_rows(monkeypatch, caplog):
    """Nobody has asked it for that: it has no more room."""
    full = _tables(kinds={"items": {}})
    monkeypatch.setattr(store_ops, "_VIRTUAL_BYTES", 1100 * full.tables.stores["items"][0].row_bytes)
    monkeypatch.setattr(full.tables.stores["items"][0], "num_coming", 0)
    with full:
        for first in range(0, 1100, 500):
            full.train(np.arange(first, 1100))
            upkeep.drop_old_rows(full.session, full.tables)
        assert 60 < full.tables.counts(full.session)["items"][0]["evicted"] < 160
    [warning] = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "ps:0 has nearly as many rows as a table without max_rows has room for, 1,100; " in warning


@pytest.mark.parametrize(("is_answered", "problem"), [
    (True, "no memory"), (False, "waited 0.2 s for the ps to count and drop rows of tables")])
def test_what_does_not_end_the_session_does_not_end_the_upkeep(monkeypatch, caplog, is_answered, problem):
    """A ps without memory for a moment, or a lost answer: rows are dropped at a later look, and one line says so."""
    calls, release = [], threading.Event()

    def counts(session):
        calls.append(session)
        if len(calls) in (2, 3):
            assert is_answered or release.wait(60)
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
        if len(calls) == 6:
            raise tf.errors.CancelledError(None, None, "the session is closed")
        return {}

    monkeypatch.setattr(part, "UPKEEP_SECS", 0.0)
    part.TablesPart._drop_regularly(
        types.SimpleNamespace(_save_timeout_secs=60.0 if is_answered else 0.2), "session",
        types.SimpleNamespace(counts=counts, stores={}, clocks={}), threading.Event())
    release.set()
    assert len(calls) == 6  # a look that succeeds counts twice
    [warning] = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"cannot drop old rows of tables: {problem}; trying again")


def test_a_full_table_drops_the_rows_that_were_not_touched_for_the_longest_time(tmp_path):
    """A tenth of all, even of many rows that are as old as each other, and never those of the last update."""
    full = _tables(kinds={"items": {"max_rows": 1000}})
    with full:
        full.train(np.arange(1000))
        upkeep.drop_old_rows(full.session, full.tables)
        assert full.tables.counts(full.session)["items"][0]["evicted"] == 0
        for first in (40, 600):  # of the tenth, 40 rows are older than 560 others
            full.train(np.arange(first, 1000))
        upkeep.drop_old_rows(full.session, full.tables)
        kept = full.tables.counts(full.session)["items"][0]
        assert 60 < kept["evicted"] < 140 and kept["used"] - kept["free"] == 1000 - kept["evicted"]
        ids = _ids_in(full.save(tmp_path))
        assert min(ids) >= 40 and set(range(600, 1000)) <= set(ids)


def test_rows_that_no_update_has_touched_for_long_are_dropped():
    """ttl_steps=2: the id of the first update goes after the fourth."""
    aging = _tables(kinds={"items": {"ttl_steps": 2}})
    with aging:
        for ids in ([1], [2], [2], [3]):
            aging.train(np.array(ids))
        upkeep.drop_old_rows(aging.session, aging.tables)
        (counts,) = aging.tables.counts(aging.session)["items"]
        assert (counts["evicted"], counts["used"] - counts["free"]) == (1, 2)


def test_rows_that_no_update_has_touched_for_some_time_are_dropped(tmp_path, monkeypatch):
    """ttl_secs=100: seconds with updates count, those of a pause do not; the count goes on from a checkpoint."""
    aging, now_secs = _tables(kinds={"items": {"ttl_secs": 100.0}}), [0.0]
    monkeypatch.setattr(upkeep, "time", types.SimpleNamespace(monotonic=lambda: now_secs[0]))

    def rows_after(secs, ids):
        now_secs[0] += secs
        if ids:
            aging.train(np.array(ids))
        upkeep.drop_old_rows(aging.session, aging.tables)
        (counts,) = aging.tables.counts(aging.session)["items"]
        return counts["used"] - counts["free"]

    with aging:
        assert rows_after(5, [1]) == 1
        assert rows_after(50, [2]) == 2
        assert rows_after(1000, []) == 2  # nothing was updated
        path = aging.save(tmp_path)
        now_secs[0] += 1000  # it was down
        aging.tables.restore(aging.session, path)
        assert rows_after(0, []) == 2
        assert rows_after(40, [3]) == 3
        assert rows_after(15, [3]) == 2  # 105 s after the only update of the first
        assert rows_after(60, [3]) == 1  # 115 s after that of the second


def test_a_clock_notes_few_moments():
    """About a hundred in the time after which rows are dropped, however often it is asked; it is never early."""
    clock, moments = table_files.TableClock(1000.0), []
    for secs in range(5000):
        oldest = clock.oldest(updates=3 * secs, now_secs=float(secs))
        moments.append((secs, oldest))
    assert len(clock.noted()) < 105
    for secs, oldest in moments:
        late_secs = secs - 1000 - (oldest - 1) / 3  # how long after its time a row of the last dropped update goes
        assert oldest == 0 if secs < 1000 else 0 <= late_secs <= 11
    resumed = table_files.TableClock(1000.0, clock.noted())
    assert resumed.oldest(updates=15_000, now_secs=77.0) == moments[-1][1]


@pytest.mark.parametrize("gap_secs", [5, 20, 60])
def test_a_clock_counts_the_time_between_updates(gap_secs):
    """Also if it is asked every 5 s, and most times has seen none since. A pause counts as three such times at most."""
    clock = table_files.TableClock(1000.0)
    for secs in range(0, 900, 5):
        clock.oldest(updates=1 + secs // gap_secs, now_secs=float(secs))
    counted_secs, updates = clock.noted()[-1]
    assert 900 - 3 * gap_secs <= counted_secs <= 900
    for secs in range(900, 20_000, 5):
        clock.oldest(updates, now_secs=float(secs))
    clock.oldest(updates + 1, now_secs=20_000.0)
    assert counted_secs < clock.noted()[-1][0] <= counted_secs + 3 * gap_secs


def test_the_rows_of_each_ps_are_counted(caplog):
    """With their bytes: two floats of value, two of slots, id and mark; in the line of the log, and as JSON."""
    tables = _tables(num_ps=2, kinds={"items": {}})
    with tables, caplog.at_level("INFO"):
        tables.train()
        found = upkeep.shares_of(tables.tables, tables.tables.counts(tables.session))
        upkeep.log_use(tables.session, tables.tables)
    rows = [int(count) for count in np.bincount(owners_of(_IDS, 2, is_dynamic=True))]
    assert found == [{"name": "items", "rows": 9, "ps": [
        {"name": f"ps:{ps}", "rows": own, "bytes": own * (4 * 4 + 8 + 4)} for ps, own in enumerate(rows)]}]
    assert f"table items: 9 rows: {rows[0]} on ps:0 ({rows[0] * 28} B), {rows[1]} on ps:1 ({rows[1] * 28} B); " \
        in caplog.text
