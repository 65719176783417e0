"""Rows of checkpoints, by id and compared, against numpy."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

import ps_train
from ps_train import __main__ as command_line
from ps_train.parts.rows import looking
from ps_train.parts.rows.flags import RowsConfig
from ps_train.parts.tables import contents, store_ops
from ps_train.parts.tables.rules import Adagrad
from ps_train.storage import checkpoints
from ps_train.storage.merging_saver import MergingSaver
from tests.cluster.parts.tables.lookups import Model
from tests.cluster.parts.tables.owners import owners_of
from tests.errors import raises
from tests.tensorflow_mode import tf

_IDS = np.arange(0, 40, 2)
_NUM_PS = 2


class Trained(Model):
    """A dynamic table `items` and a fixed one on two ps, each id's gradient being its factor."""

    def __init__(self):
        """Makes them."""
        def build():
            self.step = tf.train.create_global_step()
            self.ids = tf.placeholder(tf.int64, [None])
            self.factors = tf.placeholder(tf.float32, [None])
            rows = [ps_train.embedding_table("items", 3, history=True).lookup(self.ids),
                    ps_train.embedding_table("fixed", 2, num_rows=100).lookup(self.ids)]
            self.values = rows[0]
            return tf.add_n([tf.reduce_sum(self.factors[:, tf.newaxis] * one) for one in rows])

        super().__init__(build, _NUM_PS, rule=Adagrad(0.5))
        with self.graph.as_default():
            self.saver = MergingSaver(tf.train.Saver([self.step]), [self.tables.begin_save])
            self.to_step = tf.placeholder(tf.int64, [])
            self.set_step = self.step.assign(self.to_step)
        self.session.run(self.step.initializer)

    def train(self, ids, factors):
        """Takes a step."""
        self.session.run(self.train_op, {self.ids: ids, self.factors: factors})

    def now(self, ids):
        """Returns the values of the items."""
        return self.session.run(self.values, {self.ids: ids})

    def save(self, folder, step, is_delta=False):
        """Saves a checkpoint, or a delta to the last one."""
        self.session.run(self.set_step, {self.to_step: step})
        path = contents.delta_path(self.tables.base, step) if is_delta else checkpoints.path_of(str(folder), step)
        self.saver.save(self.session, path, is_delta=is_delta)
        return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(folder, ids, values in checkpoint 10, values now): 10, then 20 with new ids, then a delta to that at 25."""
    folder = tmp_path_factory.mktemp("train")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_ops, "_VIRTUAL_BYTES", 400_000)
        patch.setattr(store_ops, "_PIECE_BYTES", 36 * 4)  # several pieces
        random, trained = np.random.default_rng(0), Trained()
        with trained:
            trained.train(_IDS, random.normal(size=len(_IDS)))
            trained.save(folder, 10)
            before = trained.now(_IDS)
            more = np.concatenate([_IDS[:12], [51, 53]])
            trained.train(more, random.normal(size=len(more)))
            trained.save(folder, 20)
            trained.train([2, 4, 55], [5.0, 1.0, 1.0])
            trained.save(folder, 25, is_delta=True)
            ids = np.concatenate([_IDS, [51, 53, 55]])
            return str(folder), ids, before, trained.now(ids)


def _written(folder, step, pieces):
    """Writes a checkpoint of a table `items` of one ps with these (ids, values)."""
    names = [f"items/ps_0_of_1/{number:06d}" for number in range(len(pieces))]
    saved = contents.SavedTable(dim=3, num_slots=0, num_rows=None, rule="sgd", updates=5, pieces=[names], dealt="mixed")
    tensors = {"global_step": np.int64(step), contents.KEY: contents.to_text({"items": saved})}
    for name, (ids, values) in zip(names, pieces):
        tensors |= {f"{name}/ids": ids, f"{name}/marks": np.ones(len(ids), np.int32), f"{name}/values": values,
                    f"{name}/slots": np.zeros([len(ids), 0], np.float32)}
    path = checkpoints.path_of(str(folder), step)
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.raw_ops.SaveV2(prefix=path, tensor_names=[*tensors], shape_and_slices=[""] * len(tensors),
                                      tensors=[tf.constant(value) for value in tensors.values()]))
    return path


def _printed(capsys, folder, table, ids=(), **flags):
    looking.print_rows(RowsConfig(train_dir=folder, json=True, **flags), table, ids)
    return json.loads(capsys.readouterr().out)


def test_rows_are_those_of_the_checkpoint_and_its_delta(saved, capsys):
    """Value, norm, ps and updates; an id without a row has none."""
    folder, ids, _, now = saved
    answer = _printed(capsys, folder, "items", [*map(str, ids), "7"])
    assert (answer["global_step"], answer["updates"], answer["num_ps"]) == (25, 3, _NUM_PS)
    assert answer["checkpoint"].endswith("model.ckpt-20") and answer["delta"].endswith(".delta-25")
    rows = answer["rows"]
    np.testing.assert_allclose([row["values"] for row in rows[:-1]], now, rtol=1e-6)
    np.testing.assert_allclose([row["norm"] for row in rows[:-1]], np.linalg.norm(now, axis=1), rtol=1e-6)
    assert [row["ps"] for row in rows[:-1]] == list(owners_of(ids, _NUM_PS, is_dynamic=True))
    marks = {**dict.fromkeys(_IDS, 1), **dict.fromkeys([*_IDS[:12], 51, 53], 2), **dict.fromkeys([2, 4, 55], 3)}
    assert [row["last_update"] for row in rows[:-1]] == [marks[own] for own in ids]
    updates = [[1 if own in _IDS else marks[own], sum(own in touched for touched in (
        _IDS, [*_IDS[:12], 51, 53], [2, 4, 55]))] for own in ids]
    assert [[row["first_update"], row["num_updates"]] for row in rows[:-1]] == updates
    assert rows[-1] == {"id": "7", "row_id": 7, "ps": None, "last_update": None, "first_update": None,
                        "num_updates": None, "norm": None, "values": None}


def test_a_delta_that_is_removed_while_the_checkpoint_is_read_was_read_before(saved, tmp_path, monkeypatch, capsys):
    """As by a training that writes many. Issue: an error, each time where the checkpoint is large."""
    folder = shutil.copytree(saved[0], tmp_path / "train")
    find_rows = contents.find_rows

    def slowly(path, *arguments):
        found = find_rows(path, *arguments)
        if not contents.base_of(path):
            for delta in contents.deltas_of(path):
                checkpoints.remove(delta)
        return found

    monkeypatch.setattr(contents, "find_rows", slowly)
    answer = _printed(capsys, str(folder), "items", ["2", "55", "6", "7"])
    assert [row["last_update"] for row in answer["rows"]] == [3, 3, 2, None]


def test_a_named_checkpoint_is_looked_at_without_its_delta(saved, capsys):
    """Also one that is not the newest."""
    folder, _, before, _ = saved
    answer = _printed(capsys, folder, "items", ["2", "55"], checkpoint="10")
    assert (answer["global_step"], answer["delta"], answer["rows"][1]["ps"]) == (10, None, None)
    np.testing.assert_allclose(answer["rows"][0]["values"], before[1], rtol=1e-6)


@pytest.mark.parametrize("group_bytes", [10**9, 50])
def test_the_rows_that_moved_most_are_those_of_numpy(saved, group_bytes):
    """In one group of ids and in many; new and dropped ids are counted, not compared."""
    folder, ids, before, now = saved
    paths = [checkpoints.path_of(folder, step) for step in (10, 20)]
    source = looking.Source(paths[1], contents.delta_path(paths[1], 25))
    moved = looking.compare(paths[0], source, "items", 5, group_bytes)
    assert moved[:4] == (len(_IDS), len(ids), 3, 0)
    distances = np.linalg.norm(now[:len(_IDS)] - before, axis=1)
    farthest = np.argsort(-distances)[:5]
    assert [row[0] for row in moved.rows] == list(_IDS[farthest])
    np.testing.assert_allclose([row[1] for row in moved.rows], distances[farthest], rtol=1e-5)
    np.testing.assert_allclose([row[2:] for row in moved.rows], np.stack(
        [np.linalg.norm(values, axis=1) for values in (before[farthest], now[farthest])], 1), rtol=1e-5)
    assert looking.compare(paths[1], looking.Source(paths[0]), "items", 5, group_bytes)[2:4] == (0, 2)


@pytest.mark.parametrize("group_bytes", [10**9, 50])
def test_rows_with_nan_come_first(tmp_path, group_bytes):
    """They are what a user looks for, and leave the order of the others as it is, over all pieces and groups."""
    before = np.random.default_rng(0).uniform(1, 2, [len(_IDS), 3]).astype(np.float32)
    after = before + np.random.default_rng(1).permutation(len(_IDS))[:, np.newaxis].astype(np.float32)
    after[[3, 7, 12], 1], after[9, 0] = np.nan, np.inf
    paths = []
    for step, values in enumerate([before, after], 1):
        pieces = [(_IDS[begin:begin + 4], values[begin:begin + 4]) for begin in range(0, len(_IDS), 4)]
        paths.append(_written(tmp_path, step, pieces))
    moved = looking.compare(paths[0], looking.Source(paths[1]), "items", 8, group_bytes)
    distances = np.linalg.norm(after - before, axis=1)
    others = [row for row in np.argsort(-distances, kind="stable") if np.isfinite(distances[row])]
    assert {row[0] for row in moved.rows[:3]} == {*_IDS[[3, 7, 12]]}
    assert [row[0] for row in moved.rows[3:]] == list(_IDS[[9, *others[:4]]])


def test_a_table_without_rows_has_only_new_ids_later(saved, tmp_path):
    """As that of a checkpoint at step 0."""
    empty = Trained()
    with empty:
        path = empty.save(tmp_path, 0)
    assert looking.compare(path, looking.Source(checkpoints.path_of(saved[0], 10)), "items", 5) == (0, 20, 20, 0, [])


def test_strings_are_hashed_as_the_model_hashes_them(saved, capsys):
    """A string of digits only with --strings; a fixed table takes row numbers only."""
    folder = saved[0]
    hashes = [row["row_id"] for row in _printed(capsys, folder, "items", ["user-a", "17"], strings=True)["rows"]]
    with tf.Graph().as_default(), tf.Session() as session:
        expected = session.run(tf.strings.to_hash_bucket_fast(["user-a", "17"], 2**63 - 1))
    assert hashes == list(expected)
    assert [row["row_id"] for row in _printed(capsys, folder, "items", ["user-a", "17"])["rows"]] == [expected[0], 17]
    row = _printed(capsys, folder, "fixed", ["2"])["rows"][0]
    assert (row["last_update"], row["first_update"], row["num_updates"]) == (3, None, None)
    for word in ("100", "-1", "a"):
        with raises("bad_id_word"):
            _printed(capsys, folder, "fixed", [word])
    with raises("bad_id_word"):
        _printed(capsys, folder, "items", [str(2**63)])


def test_a_string_that_is_no_text_is_hashed_by_its_bytes(saved, capsys):
    """Python has these as half of a surrogate in the words of a command line."""
    assert command_line.main(["rows", "items", os.fsdecode(b"\xffa"), "\u00fc", saved[0], "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    with tf.Graph().as_default(), tf.Session() as session:
        expected = session.run(tf.strings.to_hash_bucket_fast([b"\xffa", b"\xc3\xbc"], 2**63 - 1))
    assert [row["row_id"] for row in rows] == list(expected)
    assert command_line.main(["rows", "items", os.fsdecode(b"\xffa"), saved[0]]) == 0
    assert f"(hash {expected[0]}): no row" in capsys.readouterr().out


def test_the_text_has_a_line_for_each_row_and_for_each_that_moved(saved, capsys):
    """With the step and the update of each."""
    looking.print_rows(RowsConfig(train_dir=saved[0], since="10", top=2), "items", ["2", "7"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 + 2 + 2 and "at step 25, after 3 updates" in lines[0]
    assert "2: on ps:" in lines[1] and "last touched in update 3, first in 1, 3 times in all;" in lines[1]
    assert lines[2].startswith("7: no row")
    assert lines[3] == "since step 10: 20 rows then, 23 now; 3 new, 0 dropped"


@pytest.mark.parametrize(("table", "flags", "code"), [
    ("users", {}, "table_not_in_checkpoint"), ("items", {"checkpoint": "7"}, "no_checkpoint"),
    ("items", {"since": "7"}, "no_checkpoint"),
])
def test_what_does_not_exist_is_one_line(saved, capsys, table, flags, code):
    """It says what there is."""
    with raises(code):
        _printed(capsys, saved[0], table, ["1"], **flags)


def test_the_verb_takes_its_words_in_their_order(saved, capsys):
    """Exit code 0 with the table, an id and the folder; 2 with a checkpoint that does not exist."""
    assert command_line.main(["rows", "items", "2", saved[0], "--since=10", "--top=1"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("2: on ps:")
    assert command_line.main(["rows", "items", "2", f"--train_dir={saved[0]}", "--checkpoint=3"]) == 2
    assert "[no_checkpoint]" in capsys.readouterr().err
