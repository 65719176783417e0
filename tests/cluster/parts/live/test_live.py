"""A live model, whose rows and variables change while it is served, against plain exports of the same checkpoints."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ps_train
from ps_train.parts.inference import serving
from ps_train.parts.live import exporting, pushes
from ps_train.parts.live import model as live_model
from ps_train.parts.live import table as live_table
from ps_train.parts.live.exporting import Version
from ps_train.parts.live.model import LiveModel
from ps_train.parts.live.pushes import Begin, Current
from ps_train.parts.tables import contents, id_map
from ps_train.parts.tables.contents import SavedTable
from ps_train.parts.tables.tables import hash_of_strings
from ps_train.plugins.contracts import Model
from tests.errors import raises
from tests.processes import DEADLINE_SECS
from tests.tensorflow_mode import tf

_NUM_IDS = 60
_WORDS = np.array([f"word {number}" for number in range(_NUM_IDS)])
_LOADER = """
import sys
import numpy as np
import tensorflow as tf2, tensorflow.compat.v1 as tf
given = np.load(sys.argv[2])
def keep(call):
    predict = lambda: call("serving_default", {name: given[name] for name in ("items", "words")})["scores"]
    found = [predict()]
    for _ in range(2):  # a repeated call changes nothing
        call("live_rows/items", {name: given["items_" + name] for name in ("number", "ids", "rows", "dropped")})
        call("live_rows/words", {name: given["words_" + name] for name in ("number", "ids", "rows", "dropped")})
    call("live_commit", {name: given["commit_" + name] for name in ("number", "previous", "dense", "step")})
    found.append(predict())
    status = call("live_status", {"probe": np.int64(0)})
    assert (status["number"], status["step"]) == (8, 9), status
    return found
if sys.argv[4] == "session":
    with tf.Graph().as_default(), tf.Session() as session:
        signatures = tf.saved_model.load(session, ["serve"], sys.argv[1]).signature_def
        def call(key, inputs):
            signature = signatures[key]
            return session.run({name: info.name for name, info in signature.outputs.items()},
                               {signature.inputs[name].name: value for name, value in inputs.items()})
        found = keep(call)
else:
    loaded = tf2.saved_model.load(sys.argv[1])
    def call(key, inputs):
        results = loaded.signatures[key](**{name: tf2.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in results.items()}
    found = keep(call)
np.save(sys.argv[3], found)
assert "ps_train" not in sys.modules
"""


def _model_fn(features, labels, mode, params):
    """Fixed rows, rows of strings in bfloat16, hashed rows; dense variables of several types, read in a loop, too."""
    items = ps_train.embedding_table("items", 3, num_rows=50, initial_limit=0.5).lookup(features["items"])
    words = ps_train.embedding_table("words", 2, initial_limit=0.5, dtype=tf.bfloat16).lookup(features["words"])
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    scale = tf.get_variable("scale", [3, 1], tf.float64, initializer=tf.ones_initializer())
    is_on = tf.get_variable("is_on", [5], tf.bool, initializer=tf.zeros_initializer(), trainable=False)
    kinds = tf.get_variable("kinds", [7], initializer=tf.zeros_initializer())
    old = tf.get_variable("old", [2], initializer=tf.zeros_initializer(), use_resource=False)
    _, looped = tf.while_loop(lambda step, _: step < 3, lambda step, total: (step + 1, total + bias),
                              [0, tf.constant(0.0)])
    scores = (tf.reduce_sum(tf.matmul(tf.cast(items, tf.float64), scale), -1) + tf.cast(
        tf.reduce_sum(words, -1) * old[1] + looped + tf.nn.embedding_lookup(kinds, features["items"] % 7), tf.float64))
    scores = tf.where(is_on[3], scores, -scores)
    predictions = {"scores": scores, "words": words, "bias": tf.tile(bias[tf.newaxis], [tf.size(features["items"])]),
                   "old": tf.tile(old[:1], [tf.size(features["items"])])}
    return ps_train.ModelSpec(loss=tf.reduce_mean(scores), predictions=predictions)


_MODEL = Model("live", _model_fn, {})
_SPECS = {"items": tf.TensorSpec([None], tf.int64, name="items"),
          "words": tf.TensorSpec([None], tf.string, name="words")}
_FEATURES = {"items": np.arange(_NUM_IDS) - 4, "words": _WORDS}  # some are no rows of the fixed table
with tf.Graph().as_default(), tf.Session() as _session:
    _WORD_IDS = _session.run(hash_of_strings(tf.constant(_WORDS)))


def _as_bfloat16(values):
    """Returns float32 whose lower half is 0."""
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


class State:
    """The rows and variables of a training at a step."""

    def __init__(self, step, items, words, rng):
        """Has rows for these fixed ids, and for words of these numbers."""
        self.step = step
        self.tables = {
            "items": {int(key): rng.normal(size=3).astype(np.float32) for key in items},
            "words": {int(_WORD_IDS[number]): _as_bfloat16(rng.normal(size=2)) for number in words}}
        self.dense = {"global_step": np.int64(step), "bias": np.float32(step), "scale": rng.normal(size=[3, 1]),
                      "is_on": np.arange(5) == (3 if step % 2 else 1), "kinds": rng.normal(size=7).astype(np.float32),
                      "old": np.full([2], step, np.float32)}

    def save(self, path):
        """Writes a checkpoint of 2 ps."""
        arrays, texts = dict(self.dense), {}
        for name, rows in self.tables.items():
            pieces = []
            for ps in range(2):
                piece = f"{name}/ps_{ps}_of_2/000000"
                ids = np.array([key for key in rows if key % 2 == ps], np.int64)
                arrays[f"{piece}/ids"] = ids
                arrays[f"{piece}/values"] = np.array([rows[key] for key in ids], np.float32).reshape(len(ids), -1)
                pieces.append([piece])
            dim, num_rows = (3, 50) if name == "items" else (2, None)
            texts[name] = SavedTable(dim, 0, num_rows, "sgd", self.step, pieces)
        arrays[contents.KEY] = contents.to_text(texts)
        with tf.Graph().as_default(), tf.Session() as session:
            session.run(tf.raw_ops.SaveV2(prefix=path, tensor_names=list(arrays), shape_and_slices=[""] * len(arrays),
                                          tensors=[tf.constant(array) for array in arrays.values()]))
        return path

    def changes(self, before, name):
        """Returns (ids, rows, dropped) since an earlier state."""
        rows = self.tables[name]
        ids = np.array(list(rows), np.int64)
        dropped = np.array([key for key in before.tables[name] if key not in rows], np.int64)
        return ids, np.array(list(rows.values()), np.float32).reshape(len(ids), -1), dropped

    def plain(self, folder, features=_FEATURES):
        """Returns the predictions of a plain export."""
        serving.export_model(self.save(str(folder / "model.ckpt-1")), str(folder / "plain"), _MODEL, {}, _SPECS)
        with tf.Graph().as_default(), tf.Session() as session:
            signature = tf.saved_model.load(session, ["serve"], str(folder / "plain")).signature_def["serving_default"]
            return session.run({name: info.name for name, info in signature.outputs.items()},
                               {info.name: features[name] for name, info in signature.inputs.items()})


def _export(state, folder, number=7, head_room=None, num_rows=None):
    path = state.save(str(folder / "model.ckpt-1"))
    exporting.write_live(path, str(folder / "live"), _MODEL, {}, _SPECS,
                         Version("training", number, num_rows or {}, head_room))
    return str(folder / "live")


def _packed(state, model_dir):
    value = bytearray()
    for entry in exporting.read_layout(model_dir).dense:
        data = np.asarray(state.dense[entry["name"]]).tobytes()
        value.extend(bytes(entry["offset"] - len(value)))
        value.extend(data)
    return np.frombuffer(bytes(value), np.uint8)


@pytest.fixture
def states(tmp_path):
    """Two states, of which the second lacks rows of the first and has others."""
    rng = np.random.default_rng(1)
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    return (State(8, range(0, 25), range(0, 20), rng), folders[0]), (State(9, range(5, 40), range(9, 45), rng),
                                                                    folders[1])


@pytest.mark.parametrize("name", ["x[1]", "a*b", "a?b", "a["])
def test_a_model_is_read_from_a_folder_whose_name_has_wildcards(states, tmp_path, name):
    """TensorFlow looks for its variables by a pattern."""
    (state, folder), _ = states
    expected = LiveModel(_export(state, folder))
    shutil.copytree(expected.folder, tmp_path / name)
    with expected, LiveModel(str(tmp_path / name)) as model:
        found, wanted = (one.predict(_FEATURES) for one in (model, expected))
        assert found.keys() == wanted.keys()
        for key in found:
            np.testing.assert_array_equal(found[key], wanted[key])


@pytest.mark.parametrize("way", ["session", "saved_model.load"])
def test_a_push_makes_a_loaded_model_predict_as_the_next_checkpoint(states, tmp_path, way):
    """In a process without ps_train: rows that are new, changed and dropped, and dense variables."""
    (first, first_dir), (second, second_dir) = states
    model_dir = _export(first, first_dir)
    given = {"commit_number": 8, "commit_previous": 7, "commit_step": 9, "commit_dense": _packed(second, model_dir)}
    for name in first.tables:
        ids, rows, dropped = second.changes(first, name)
        given |= {f"{name}_number": 8, f"{name}_ids": ids, f"{name}_rows": rows, f"{name}_dropped": dropped}
    np.savez(tmp_path / "given.npz", **_FEATURES, **given)
    done = subprocess.run(
        [sys.executable, "-c", _LOADER, model_dir, "given.npz", "found.npy", way], cwd=tmp_path, timeout=120,
        env={"PATH": "", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True,
        check=False)
    assert done.returncode == 0, done.stderr
    before, after = np.load(tmp_path / "found.npy")
    np.testing.assert_allclose(before, first.plain(first_dir)["scores"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(after, second.plain(second_dir)["scores"], rtol=1e-6, atol=1e-9)
    assert np.abs(before - after).min() > 1e-3


def _push(first, second, model_dir, folder, number=8):
    """Writes the push from a state to the next one."""
    with pushes.writing_push(str(folder), Begin(number, number - 1, "training", second.step, 1e9)) as writer:
        for name in second.tables:
            ids, rows, dropped = second.changes(first, name)
            half = len(ids) // 2
            writer.rows(name, ids[:half], rows[:half], dropped)
            writer.rows(name, ids[half:], rows[half:], dropped[:0])
            writer.rows(name, ids[:0], rows[:0], dropped[:1])
        writer.dense(_packed(second, model_dir).tobytes())


def _assert_equal(found, expected):
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-9)


def test_a_model_follows_a_folder(states, tmp_path):
    """It loads the version that CURRENT names, applies the pushes, and loads another version for another training."""
    (first, first_dir), (second, second_dir) = states
    model_dir = _export(first, first_dir)
    (first_dir / "live").rename(tmp_path / pushes.model_name(7))
    model_dir = str(tmp_path / pushes.model_name(7))
    pushes.write_current(str(tmp_path), Current("training", pushes.model_name(7), 7, 7))
    with LiveModel(str(tmp_path)) as model:
        _assert_equal(model.predict(_FEATURES), first.plain(first_dir))
        _push(first, second, model_dir, tmp_path)
        assert model.update() == 7  # it is not complete before CURRENT says so
        pushes.write_current(str(tmp_path), Current("training", pushes.model_name(7), 7, 8))
        model.follow(poll_secs=0.01)
        deadline = threading.Event()
        while model.status()["number"] < 8 and not deadline.wait(0.01):
            assert not model.problem
        expected = second.plain(second_dir)
        _assert_equal(model.predict(_FEATURES), expected)
        assert (model.status()["step"], model.status()["used"], model.num_loads) == (9, [35, 36], 1)
        _export(second, second_dir, number=20)
        (second_dir / "live").rename(tmp_path / pushes.model_name(20))
        pushes.write_current(str(tmp_path), Current("training", pushes.model_name(20), 20, 20))
        while model.num_loads < 2 and not deadline.wait(0.01):
            assert not model.problem
        _assert_equal(model.predict(_FEATURES), expected)
    with raises("model_closed"):
        model.predict(_FEATURES)


def test_a_model_without_room_for_a_push_loads_the_newer_version(states, tmp_path):
    """Which has the push already; without a newer one, the push is refused."""
    (first, first_dir), (second, second_dir) = states
    path = _publish_first(first, first_dir, tmp_path, head_room=1.0)
    with LiveModel(str(tmp_path)) as model:
        _push(first, second, str(path), tmp_path)
        pushes.write_current(str(tmp_path), Current("training", pushes.model_name(7), 7, 8))
        with raises("push_refused"):
            model.update()
        _export(second, second_dir, number=8)
        (second_dir / "live").rename(tmp_path / pushes.model_name(8))
        pushes.write_current(str(tmp_path), Current("training", pushes.model_name(8), 8, 8))
        assert (model.update(), model.num_loads) == (8, 2)
        _assert_equal(model.predict(_FEATURES), second.plain(second_dir))


def test_a_push_that_is_missing_does_not_load_the_same_version_again(states, tmp_path):
    """Each look loaded it, and until the pushes were applied once more, old rows were served."""
    (first, first_dir), (second, _) = states
    path = _publish_first(first, first_dir, tmp_path)
    with LiveModel(str(tmp_path)) as model:
        _push(first, second, str(path), tmp_path)
        pushes.write_current(str(tmp_path), Current("training", pushes.model_name(7), 7, 9))
        for _ in range(2):
            with raises("push_damaged"):
                model.update()
        assert (model.status()["number"], model.num_loads) == (8, 1)


def _publish_first(state, folder, tmp_path, **options):
    """Writes a folder of a publisher with a model alone; returns the path of that."""
    _export(state, folder, **options)
    (folder / "live").rename(tmp_path / pushes.model_name(7))
    pushes.write_current(str(tmp_path), Current("training", pushes.model_name(7), 7, 7))
    return tmp_path / pushes.model_name(7)


def test_an_update_that_ends_after_close_leaves_it_closed(states, tmp_path):
    """What it has loaded is closed at once."""
    (first, first_dir), _ = states
    path = _publish_first(first, first_dir, tmp_path)
    model = LiveModel(str(tmp_path))
    model.close()
    late = live_model._Loaded(str(path))
    model._replace(late)
    with raises("model_closed"):
        model.predict(_FEATURES)
    with pytest.raises(RuntimeError, match="closed"):
        late.run("live_status", {"probe": 0})


def test_a_version_that_is_replaced_while_it_is_loaded_first_is_followed_by_the_next(states, tmp_path, monkeypatch):
    """Once; a model that stays damaged is one line."""
    (first, first_dir), _ = states
    path = _publish_first(first, first_dir, tmp_path)
    load, failures = live_model._Loaded, []

    def failing(folder):
        if len(failures) < 1:
            failures.append(folder)
            raise tf.errors.NotFoundError(None, None, "variables")
        return load(folder)

    with monkeypatch.context() as patched:
        patched.setattr(live_model, "_Loaded", failing)
        with LiveModel(str(tmp_path)) as model:
            assert model.status()["number"] == 7
    for file in (path / "variables").iterdir():
        file.write_bytes(b"")
    for folder in (tmp_path, path):
        with raises("model_unreadable"):
            LiveModel(str(folder))


def _wait_until(condition):
    end_secs = time.monotonic() + DEADLINE_SECS
    while not condition():
        assert time.monotonic() < end_secs
        time.sleep(0.01)


@pytest.mark.parametrize("content", [b"", b"\x08\x01"], ids=["empty", "its version alone"])
def test_a_new_version_whose_file_is_not_whole_yet_is_loaded_when_it_is(states, tmp_path, content):
    """As while something copies the folder: the thread that follows it ended, and old rows were served silently."""
    (first, first_dir), (second, second_dir) = states
    _publish_first(first, first_dir, tmp_path)
    with LiveModel(str(tmp_path)) as model:
        _export(second, second_dir, number=20)
        (second_dir / "live").rename(tmp_path / pushes.model_name(20))
        file = tmp_path / pushes.model_name(20) / "saved_model.pb"
        whole = file.read_bytes()
        file.write_bytes(content)
        pushes.write_current(str(tmp_path), Current("training", pushes.model_name(20), 20, 20))
        model.follow(poll_secs=0.01)
        _wait_until(lambda: model.problem)
        file.with_suffix(".new").write_bytes(whole)
        file.with_suffix(".new").replace(file)
        _wait_until(lambda: model.num_loads == 2)
        _assert_equal(model.predict(_FEATURES), second.plain(second_dir))
    file.write_bytes(content)
    with raises("model_unreadable"):
        LiveModel(str(tmp_path))


def _rows(model, number, ids, dropped=(), name="words", dim=2, value=1.0):
    return model.call(f"live_rows/{name}", {
        "number": number, "ids": np.asarray(ids, np.int64), "rows": np.full([len(ids), dim], value, np.float32),
        "dropped": np.asarray(dropped, np.int64)})


def _commit(model, number, previous=None, dense=None):
    dense = np.zeros([model.status()["dense_bytes"]], np.uint8) if dense is None else dense
    model.call("live_commit", {"number": number, "previous": number - 1 if previous is None else previous, "step": 1,
                               "dense": dense})


def _contents(model):
    found = model.predict(_FEATURES)
    return [found[name].tolist() for name in ("scores", "words")]


def test_what_a_model_cannot_take_is_refused_and_changes_nothing(states):
    """Pushes in a wrong order, bytes of another model, rows of another shape, an id twice."""
    (first, first_dir), _ = states
    with LiveModel(_export(first, first_dir)) as model:
        before = _contents(model), model.status()
        for wrong in (
                lambda: _commit(model, 9), lambda: _commit(model, 7, previous=7), lambda: _rows(model, 7, [1]),
                lambda: _rows(model, 8, [1], dim=3), lambda: _rows(model, 8, [1, 1]),
                lambda: _rows(model, 8, [-2**63]), lambda: model.call("live_commit", {
                    "number": 8, "previous": 7, "step": 1, "dense": np.zeros([3], np.uint8)})):
            with raises("push_refused") as refused:
                wrong()
            assert str(refused.value).startswith("live_")
        with raises("no_such_signature"):
            model.predict(_FEATURES, "other")
        with raises("wrong_inputs"):
            model.predict({})
        assert (_contents(model), model.status()) == before
        _commit(model, 8)
        assert model.status()["number"] == 8


def test_the_two_smallest_ids_are_answered_as_by_a_plain_export(states):
    """No row can have them; one is what numpy makes of NaN. A push that drops them drops nothing."""
    (first, first_dir), _ = states
    smallest = {**_FEATURES, "items": np.resize([-2**63, -2**63 + 1, 5], _NUM_IDS)}
    expected = first.plain(first_dir, smallest)
    with LiveModel(_export(first, first_dir)) as model:
        _assert_equal(model.predict(smallest), expected)
        used = model.status()["used"]
        _rows(model, 8, [], dropped=[-2**63, -2**63 + 1])
        _commit(model, 8, dense=_packed(first, str(first_dir / "live")))
        assert model.status()["used"] == used
        _assert_equal(model.predict(smallest), expected)


def test_room_ends_with_a_refusal_and_dropped_rows_make_room_after_a_commit(states):
    """A prediction that has found a row just before it was dropped reads no other id's row."""
    (first, first_dir), _ = states
    with LiveModel(_export(first, first_dir, head_room=1.2, num_rows={"words": 25})) as model:
        tables = json.loads(model.status()["tables"])
        assert {name: table["capacity"] for name, table in tables.items()} == {"items": 30, "words": 30}
        with raises("push_refused"):
            _rows(model, 8, np.arange(11))
        assert _rows(model, 8, np.arange(10))["used"] == 30
        dropped = list(first.tables["words"])[:12]
        assert _rows(model, 8, [], dropped)["used"] == 30
        with raises("push_refused"):
            _rows(model, 8, [100])
        _commit(model, 8)
        assert _rows(model, 9, np.arange(100, 111))["used"] == 29
        words = model.predict(_FEATURES)["words"][:20]
        kept = np.array([first.tables["words"][int(key)] for key in _WORD_IDS[12:20]])
        np.testing.assert_array_equal(words[12:], kept)
        assert not np.isin(words[:12], [1.0]).any() and (np.abs(words[:12]) <= 0.5).all()


def test_the_index_is_rebuilt_after_many_drops(states, monkeypatch):
    """Rows that come and go for long leave no marks that make searches fail, and all others stay."""
    monkeypatch.setattr(live_table, "_MIN_REMOVED", 10)
    (first, first_dir), _ = states
    with LiveModel(_export(first, first_dir)) as model:
        _rows(model, 8, _WORD_IDS[20:], value=3.0)
        for number in range(8, 30):
            ids = np.arange(number * 1000, number * 1000 + 500)
            _rows(model, number, ids, ids - 1000, value=number)
            _commit(model, number)
        assert model.status()["used"] == [25, _NUM_IDS + 500]
        words = model.predict(_FEATURES)["words"]
        np.testing.assert_array_equal(words[:20], np.array(list(first.tables["words"].values())))
        np.testing.assert_array_equal(words[20:], np.full([_NUM_IDS - 20, 2], 3.0))
        session = model._loaded.session
        [table] = [operation.outputs[0] for operation in session.graph.get_operations()
                   if operation.type == "MutableDenseHashTableV2" and operation.get_attr("shared_name").endswith(
                       b"/words/later")]
        with session.graph.as_default():
            keys = session.run(tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=tf.int64, Tvalues=tf.int64))[0]
        assert (np.sum(keys != id_map._EMPTY), np.sum(keys == id_map._DELETED)) == (_NUM_IDS - 20 + 500, 0)


def test_each_prediction_while_pushes_commit_has_the_variables_of_one_push(states):
    """Two variables with different ways of reading agree; rows are of pushes that came while it ran."""
    (first, first_dir), _ = states
    model_dir = _export(first, first_dir)
    with LiveModel(model_dir) as model:
        problems, numbers, stop = [], set(), threading.Event()

        def read():
            while not stop.is_set():
                least = model.status()["step"]
                found = model.predict(_FEATURES)
                most = model.status()["step"]
                bias, old, words = found["bias"], found["old"], found["words"][:20]
                numbers.add(float(bias[0]))
                if not ((bias == old).all() and (bias == bias[0]).all() and least <= bias[0] <= most):
                    problems.append((bias, old))
                if least > 8 and not ((words >= least) & (words <= most + 1)).all():
                    problems.append((least, most, words))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        state = State(8, [], [], np.random.default_rng(2))
        for number in range(8, 150):
            _rows(model, number, _WORD_IDS[:20], value=number + 1)
            state.dense |= {"bias": np.float32(number + 1), "old": np.full([2], number + 1, np.float32)}
            model.call("live_commit", {"number": number, "previous": number - 1, "step": number + 1,
                                       "dense": _packed(state, model_dir)})
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not problems and len(numbers) > 3


def _with_summed(features, labels, mode, params):
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    (summed,) = tf.raw_ops.PartitionedCall(
        args=[weights.handle], Tout=[tf.float32],
        f=tf.function(lambda: tf.reduce_sum(weights)).get_concrete_function())
    return ps_train.ModelSpec(predictions=tf.fill(tf.shape(features), summed))


def test_a_variable_that_cannot_be_replaced_is_one_line(tmp_path):
    """It is read within a function."""
    path = str(tmp_path / "model.ckpt-1")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, path)
    with raises("variable_not_live") as caught:
        exporting.write_live(path, str(tmp_path / "live"), Model("summed", _with_summed, {}), {},
                             tf.TensorSpec([None], tf.float32), Version("", 0, {}, 1.5))
    assert "weights" in str(caught.value)
    with raises("variable_not_live"):  # and so before training
        exporting.check_live(Model("summed", _with_summed, {}), {}, lambda: serving.input_of_specs(
            tf.TensorSpec([None], tf.float32)))


def _with_own_saver(features, labels, mode, params):
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    saver = tf.train.Saver([tf.train.get_global_step()])
    return ps_train.ModelSpec(predictions=features * weights[0], scaffold=tf.train.Scaffold(saver=saver))


def test_a_variable_that_no_saver_restores_is_one_line():
    """A push could not have its value."""
    with raises("variable_not_live") as caught:
        exporting.check_live(Model("own_saver", _with_own_saver, {}), {}, lambda: serving.input_of_specs(
            tf.TensorSpec([None], tf.float32)))
    assert "weights" in str(caught.value)


def test_the_newest_version_of_an_export_is_loaded(states, tmp_path):
    """`ps_train export` writes to DIR/STEP."""
    (first, first_dir), _ = states
    shutil.copytree(_export(first, first_dir), tmp_path / "10")
    (tmp_path / "9").mkdir()
    expected = first.plain(first_dir)
    with LiveModel(str(tmp_path)) as model:
        _assert_equal(model.predict(_FEATURES), expected)


def test_a_plain_model_is_no_live_one(states, tmp_path):
    """Nor is a folder without a model."""
    (first, first_dir), _ = states
    first.plain(first_dir)
    with raises("model_not_live"):
        LiveModel(str(first_dir / "plain"))
    with raises("no_live_model"):
        LiveModel(str(tmp_path))


def _growth(session):
    """Returns name of a block for new rows -> the rows that it has memory for."""
    graph = session.graph
    blocks = {operation.name: operation.outputs[0] for operation in graph.get_operations()
              if operation.type == "VarHandleOp" and "/words/rows_" in operation.name}
    with graph.as_default():
        found = {}
        for name, handle in blocks.items():
            is_there = session.run(tf.raw_ops.VarIsInitializedOp(resource=handle))
            shape = session.run(tf.raw_ops.VariableShape(input=handle)) if is_there else [0]
            found[name.rpartition("/")[2]] = int(shape[0])
    return found


def test_a_model_takes_memory_for_the_rows_that_it_has(states, monkeypatch):
    """Those of the export take what they take in a plain one; a block for new ones is there when the first comes."""
    monkeypatch.setattr(live_table, "_MIN_FIRST_ROWS", 4)
    (first, first_dir), _ = states
    model_dir = _export(first, first_dir, head_room=2.0)
    sizes = {name: shape for name, shape in tf.train.list_variables(f"{model_dir}/variables/variables")
             if "/words/" in name}
    assert sizes == {"ps_train/table/words/ids": [21], "ps_train/table/words/numbers": [21],
                     "ps_train/table/words/values": [21, 1]}  # two bfloat16 in a float
    model = live_model._Loaded(model_dir)
    session = model.session
    found = [_growth(session)]
    for ids in (_WORD_IDS[:20], [1, 2, 3, 4], [5, 6], np.arange(7, 12)):
        model.run("live_rows/words", {"number": 8, "ids": ids, "rows": np.ones([len(ids), 2]), "dropped": []})
        found.append(_growth(session))
    assert found == [{"rows_1": 0, "rows_2": 0}] * 2 + [{"rows_1": 5, "rows_2": 0}] + [{"rows_1": 5, "rows_2": 15}] * 2
    session.close()


def test_rows_are_found_wherever_they_are(states, monkeypatch):
    """Exported ones, ones in each block for new rows, and exported ones that were dropped and came again."""
    monkeypatch.setattr(live_table, "_MIN_FIRST_ROWS", 4)
    (first, first_dir), _ = states
    expected = {key: row.copy() for key, row in first.tables["words"].items()}
    with LiveModel(_export(first, first_dir, head_room=2.0)) as model:
        for number, (ids, dropped) in enumerate([
                (range(20, 32), []), (range(30, 34), [0, 1, 2, 21, 22]), ([1, 22, 40, 41], [33]), ([], [3]), ([3], [])],
                start=8):
            ids, dropped = _WORD_IDS[list(ids)], _WORD_IDS[list(dropped)]
            for key in dropped:
                del expected[int(key)]
            expected |= {int(key): np.full(2, number, np.float32) for key in ids}
            _rows(model, number, ids, dropped, value=number)
            words = model.predict(_FEATURES)["words"]
            _commit(model, number)
            np.testing.assert_array_equal(model.predict(_FEATURES)["words"], words)
            for key, row in zip(_WORD_IDS.tolist(), words):
                if key in expected:
                    np.testing.assert_array_equal(row, expected[key])
                else:
                    assert (np.abs(row) <= 0.5).all()
        assert model.status()["used"][1] == len(expected)
