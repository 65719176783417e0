"""Tables outside of training: their rows as arrays, and a SavedModel that needs no ps_train."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import ps_train
from ps_train.parts.inference import serving
from ps_train.parts.live.exporting import write_live
from ps_train.parts.tables import connection, registry, store_ops
from ps_train.parts.tables.rules import Adagrad, Frozen
from ps_train.parts.tables.table_files import TableFiles
from ps_train.plugins.contracts import Model
from ps_train.storage import checkpoints
from ps_train.storage.merging_saver import MergingSaver
from tests.errors import raises
from tests.processes import GUARD_SECS
from tests.tensorflow_mode import tf

_WORDS = [f"word {number}" for number in range(30)]
_LOADER = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
assert "ps_train" not in sys.modules
with tf.Session() as session:
    meta = tf.saved_model.load(session, ["serve"], sys.argv[1])
    signature = meta.signature_def["serving_default"]
    given = np.load(sys.argv[2])
    feed = {signature.inputs[name].name: given[name].tolist() for name in signature.inputs}
    np.save(sys.argv[3], session.run(signature.outputs["scores"].name, feed))
assert "ps_train" not in sys.modules
"""


def _model_fn(features, labels, mode, params):
    """Adds what a fixed table, a dynamic one and dense weights have; a second table is not used to predict."""
    items = ps_train.embedding_table("items", 3, num_rows=50, initial_limit=0.5).lookup(features["items"])
    words = ps_train.embedding_table("words", 2, initial_limit=0.5).lookup(features["words"])
    bias = tf.get_variable("bias", [], initializer=tf.constant_initializer(params["bias"]))
    scores = tf.reduce_sum(items, -1) + tf.reduce_sum(words, [1, 2]) * 10 + bias
    if mode == ps_train.PREDICT:
        assert labels is None
        return ps_train.ModelSpec(predictions={"scores": scores} if params["predicts"] else None)
    return ps_train.ModelSpec(loss=tf.reduce_mean(scores), predictions={"scores": scores})


_MODEL = Model("clicks", _model_fn, {})
_PARAMS = {"bias": 0.25, "predicts": True}
_SPECS = {"items": tf.TensorSpec([None], tf.int64, name="items"),
          "words": tf.TensorSpec([None, 2], tf.string, name="words")}
# The first rows are trained, the others have first values.
_FEATURES = {"items": np.arange(0, 50, 2), "words": np.array([_WORDS[number:number + 2] for number in range(25)])}


def _graph(num_ps, rule):
    found = registry.install_registry([""] * num_ps, rule)
    found.begin_build()
    tf.train.create_global_step()
    features = {name: tf.constant(values) for name, values in _FEATURES.items()}
    spec = _model_fn(features, None, ps_train.EVAL, {**_PARAMS, "bias": 0.0})
    return found, spec, connection.connect_lookups()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A checkpoint of 2 ps after some updates of the first half of the rows, in small pieces; and its predictions."""
    folder = tmp_path_factory.mktemp("trained")
    path = str(folder / "model.ckpt-3")
    with pytest.MonkeyPatch.context() as patch, tf.Graph().as_default() as graph:
        patch.setattr(store_ops, "_PIECE_BYTES", 100)
        found, _, _ = _graph(2, Adagrad(0.5))
        ids = {"items": tf.range(25, dtype=tf.int64), "words": tf.strings.to_hash_bucket_fast(_WORDS[:12], 2**63 - 1)}
        exchange = connection.RowExchange(found, ids, sorts_ids=False)
        pulled = exchange.pull()
        pairs = exchange.push({name: tf.sin(1000 * rows) for name, rows in pulled.items()})
        stores = {store.rows.ref(): store for store in found.all_stores()}
        train_op = tf.group(*(stores[rows.ref()].update(one.indices, one.values) for one, rows in pairs))
        tables = TableFiles(found)
        with tf.Session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            session.run(tf.global_variables()[-1].assign(0.75))
            tables.reset(session)
            for _ in range(3):
                session.run(train_op)
            MergingSaver(tf.train.Saver(), [tables.begin_save]).save(session, path)
            rows = session.run([exchange.ids, exchange.pull()])
    with tf.Graph().as_default() as graph:
        found, spec, _ = _graph(1, Frozen(learning_rate=0.0))
        tables = TableFiles(found)
        with tf.Session(graph=graph) as session:
            tf.train.Saver().restore(session, path)
            tables.restore(session, path)
            scores = session.run(spec.predictions["scores"])
    return path, rows, scores


def test_the_rows_of_a_checkpoint_are_read_in_pieces(trained):
    """Each id once, with the value that a lookup gives; only rows that were updated."""
    path, (ids, values), _ = trained
    for name in ids:
        pieces = list(ps_train.read_table(path, name))
        assert len(pieces) > 2
        found = {number: row for piece in pieces for number, row in zip(piece[0].tolist(), piece[1])}
        assert len(found) == sum(len(piece[0]) for piece in pieces) == len(ids[name])
        for number, row in found.items():
            np.testing.assert_array_equal(row, values[name][np.flatnonzero(ids[name] == number)[0]])


def test_a_table_that_is_not_there_is_one_line(trained):
    """At the call, not at the first piece; with the names of the tables in the checkpoint."""
    with raises("table_not_in_checkpoint") as caught:
        ps_train.read_table(trained[0], "users")
    assert str(caught.value).endswith("items, words")


def test_an_exported_model_predicts_what_an_evaluation_does_in_a_process_without_ps_train(trained, tmp_path):
    """Fixed and dynamic tables, strings, ids with a row and ids without, dense variables."""
    path, _, scores = trained
    serving.export_model(path, str(tmp_path / "exported"), _MODEL, _PARAMS, _SPECS)
    np.savez(tmp_path / "features.npz", **_FEATURES)
    done = subprocess.run(
        [sys.executable, "-c", _LOADER, "exported", "features.npz", "scores.npy"], cwd=tmp_path, timeout=GUARD_SECS,
        env={"PATH": "", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True,
        check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), scores, atol=1e-6, rtol=1e-6)
    assert len(np.unique(scores)) == len(scores)
    assert {file.name.split("-")[0] for file in (tmp_path / "exported/variables").iterdir()} == {
        "variables.index", "variables.data"}


def _two_tables(features, labels, mode, params):
    items = ps_train.embedding_table("items", 3, num_rows=50, initial_limit=0.5).lookup(features["items"])
    words = ps_train.embedding_table("words", 2, initial_limit=0.5).lookup(features["words"])
    return ps_train.ModelSpec(predictions={"items": items, "words": words})


def _counting(features, labels, mode, params):
    kinds = {"hash": lambda: tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1, name="seen"),
             "dense": lambda: tf.lookup.experimental.DenseHashTable(tf.string, tf.int64, -1, "", "-", name="seen")}
    seen = kinds[params["kind"]]()
    bias = tf.get_variable("bias", [], tf.int64, initializer=tf.constant_initializer(7))
    predictions = {"counts": bias + seen.lookup(features["words"])}
    if mode == ps_train.PREDICT:
        return ps_train.ModelSpec(predictions=predictions)
    return seen.insert(tf.constant(["a", "b"]), tf.constant([3, 4], tf.int64))


@pytest.mark.parametrize("export", [serving.export_model, write_live])
@pytest.mark.parametrize("kind", ["hash", "dense"])
def test_entries_of_a_mutable_table_are_exported(tmp_path, kind, export):
    """Such as counts or a vocabulary that training has collected."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        insert = _counting({"words": tf.constant(["a"])}, None, ps_train.TRAIN, {"kind": kind})
        session.run(tf.global_variables_initializer())
        session.run(insert)
        path = tf.train.Saver(checkpoints.saved_objects()).save(session, str(tmp_path / "model.ckpt"), 5)
    export(path, str(tmp_path / "exported"), Model("counts", _counting, {}), {"kind": kind},
           {"words": tf.TensorSpec([None], tf.string, name="words")})
    with tf.Graph().as_default(), tf.Session() as session:
        signature = tf.saved_model.load(session, ["serve"], str(tmp_path / "exported")).signature_def["serving_default"]
        found = session.run(signature.outputs["counts"].name, {signature.inputs["words"].name: ["b", "c", "a"]})
    assert found.tolist() == [11, 6, 10]


@pytest.mark.parametrize("wrong", [-2**63, -2**63 + 1])
def test_one_id_that_its_table_cannot_have_does_not_fail_a_request_of_ten(trained, tmp_path, wrong):
    """It has a first value, in a dynamic and a fixed table; the other nine have what they have without it."""
    path, (ids, _), _ = trained
    specs = {name: tf.TensorSpec([None], tf.int64, name=name) for name in ("items", "words")}
    serving.export_model(path, str(tmp_path / "exported"), Model("two", _two_tables, {}), {}, specs)
    good = {"items": np.arange(20, 30), "words": ids["words"][:10]}
    bad = {name: np.where(np.arange(10) == 4, wrong, own) for name, own in good.items()}
    bad["items"][5] = 50  # more than the last row number
    with tf.Graph().as_default(), tf.Session() as session:
        signature = tf.saved_model.load(session, ["serve"], str(tmp_path / "exported")).signature_def["serving_default"]
        expected, found = (session.run(
            {name: info.name for name, info in signature.outputs.items()},
            {info.name: given[name] for name, info in signature.inputs.items()}) for given in (good, bad))
    for name, rows in found.items():
        is_good = bad[name] == good[name]
        assert is_good.sum() == (8 if name == "items" else 9)
        np.testing.assert_array_equal(rows[is_good], expected[name][is_good])
        assert (np.abs(rows[~is_good]) <= 0.5).all() and (rows[~is_good] != 0).all()


_WRONG = {
    "a folder that exists": ({"output_dir": ""}, "export_exists", ""),
    "no predictions": ({"model_params": {**_PARAMS, "predicts": False}}, "model_without_predictions", "clicks"),
    "another dim": ({"dim": 4}, "checkpoint_of_another_model", "table items has dim 3 there, and 4 "),
    "another variable": ({"variable": "more"}, "checkpoint_of_another_model", " more "),
}


@pytest.mark.parametrize("changed, code, values", _WRONG.values(), ids=_WRONG)
def test_what_cannot_be_exported_is_one_line(trained, tmp_path, changed, code, values):
    """And leaves no folder."""
    def model_fn(features, labels, mode, params):
        if "dim" in changed:
            rows = ps_train.embedding_table("items", changed["dim"], num_rows=50).lookup(features["items"])
            return ps_train.ModelSpec(predictions=rows)
        if "variable" in changed:
            tf.get_variable(changed["variable"], [])
        return _model_fn(features, labels, mode, params)

    output_dir = tmp_path / changed.get("output_dir", "exported")
    before = output_dir.exists()
    with raises(code) as caught:
        serving.export_model(trained[0], str(output_dir), Model("clicks", model_fn, {}),
                            changed.get("model_params", _PARAMS), _SPECS)
    assert "\n" not in str(caught.value) and values in str(caught.value)
    assert output_dir.exists() == before
