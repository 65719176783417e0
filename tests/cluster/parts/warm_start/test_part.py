"""--init_checkpoint: what a new training begins with, in the modes, and what is refused."""

from __future__ import annotations

import glob
import logging
import os
import shutil
import threading
import types

import numpy as np
import pytest

import ps_train
from ps_train import testing
from ps_train.errors import StoppedError
from ps_train.parts.tables.rules import TableSpec
from ps_train.parts.warm_start.part import WarmStart, WarmStartPart
from ps_train.storage import checkpoints
from tests.errors import raises
from tests.tensorflow_mode import tf

_MASKED = "tests.cluster.parts.warm_start.masked"


@pytest.fixture
def saved(tmp_path):
    """A checkpoint with the variables of two layers, and slots."""
    values = {"old/kernel": np.full([4, 3], 2.0, np.float32), "old/kernel/Adam": np.zeros([4, 3], np.float32),
              "bias": np.full([3], 5.0, np.float32), "global_step": np.int64(70)}
    with tf.Graph().as_default(), tf.Session() as session:
        made = [tf.get_variable(name, initializer=value) for name, value in values.items()]
        session.run(tf.global_variables_initializer())
        return tf.train.Saver(made).save(session, str(tmp_path / "first" / "model.ckpt"), 70)


def loaded(path, pairs=()):
    """Returns name -> value of a model's variables after the warm start."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        tf.get_variable("new/kernel", [4, 3], initializer=tf.zeros_initializer())
        tf.get_variable("new/kernel/Adam", [4, 3], initializer=tf.zeros_initializer(), trainable=False)
        tf.get_variable("bias", [3], initializer=tf.zeros_initializer())
        start = WarmStart(path, pairs, tf.global_variables())
        session.run(tf.global_variables_initializer())
        start.log()
        start.load(session)
        return {variable.op.name: session.run(variable).ravel()[0] for variable in tf.global_variables()}


@pytest.mark.parametrize(("pairs", "expected"), [
    ((), {"new/kernel": 0, "bias": 5}),
    ((("old/kernel", "new/kernel"),), {"new/kernel": 2, "bias": 0}),
    ((("old/", "new/"), ("bias", "bias")), {"new/kernel": 2, "bias": 5}),
], ids=["same names", "one name", "a scope and a name"])
def test_variables_take_the_values_of_the_names(saved, caplog, pairs, expected):
    """Slots and the global step keep their initial values."""
    caplog.set_level(logging.INFO)
    assert loaded(saved, pairs) == {"global_step": 0, "new/kernel/Adam": 0, **expected}
    missing = [name for name, value in expected.items() if not value]
    assert (f"; new: {', '.join(missing)}" in caplog.text) == bool(missing)


def test_parts_of_a_variable_take_their_rows_of_the_whole(tmp_path):
    """Issue: with --partition_bytes, the largest variables began at their initial values. A part fills a whole, too."""
    value = np.arange(15, dtype=np.float32).reshape(5, 3)

    def made(num_parts):
        start = tf.fixed_size_partitioner(num_parts) if num_parts > 1 else None
        whole = tf.get_variable("emb", [5, 3], initializer=tf.zeros_initializer(), partitioner=start)
        parts = list(whole) if num_parts > 1 else [whole]
        slots = [tf.train.AdagradOptimizer(1.0)._get_or_make_slot(part, tf.zeros_like(part), "Adagrad", "Adagrad")
                 for part in parts]
        return parts, slots

    path = None
    for num_parts in (1, 3, 2, 1):
        with tf.Graph().as_default(), tf.Session() as session:
            parts, slots = made(num_parts)
            session.run(tf.global_variables_initializer())
            if path is None:
                parts[0].load(value, session)
            else:
                start = WarmStart(path, (), tf.global_variables())
                assert start._model_names() == ["emb"]
                start.load(session)
            assert np.array_equal(np.concatenate(session.run(parts)), value)
            assert not np.concatenate(session.run(slots)).any()
            path = tf.train.Saver().save(session, str(tmp_path / str(num_parts) / "model.ckpt"), 1)
    with tf.Graph().as_default():
        tf.get_variable("emb", [6, 3], partitioner=tf.fixed_size_partitioner(2))
        with raises("checkpoint_of_another_model") as refused:
            WarmStart(path, (), tf.global_variables())
        assert "emb [6, 3] here, [5, 3] there" in str(refused.value)


def test_slots_are_known_by_more_than_the_beginning_of_a_name(saved):
    """A trained variable in a scope that is called as another one is none; Adam's powers may be in a scope."""
    with tf.Graph().as_default():
        for name in ("emb", "emb/bias", "beta1_power_rate"):
            tf.get_variable(name, [3])
        for name in ("emb/Adam", "emb/bias/Adam", "model/beta1_power", "beta2_power_1", "beta1_power", "mean"):
            tf.get_variable(name, [1], trainable=False)
        start = WarmStart(saved, [("bias", "emb/bias")], tf.global_variables())
        assert sorted(start._model_names()) == ["beta1_power_rate", "emb", "emb/bias", "mean"]


def with_averages(average_name="ExponentialMovingAverage", prefix=""):
    """Returns a variable, its average, a variable that begins as the average, a mask, and the loss."""
    tf.train.create_global_step()
    weights = tf.get_variable(f"{prefix}w", [2], initializer=tf.random_normal_initializer())
    mask = tf.get_variable(f"{prefix}w/mask", [2], initializer=tf.ones_initializer(), trainable=False)
    averages = tf.train.ExponentialMovingAverage(0.999, name=average_name)
    averages.apply([weights])
    average = averages.average(weights)
    first_value = tf.cond(tf.is_variable_initialized(average), average.read_value, lambda: average.initial_value)
    target = tf.Variable(first_value, name=f"{prefix}target", trainable=False)
    loss = tf.reduce_sum(weights * mask)
    tf.train.AdamOptimizer(0.1, name="own").minimize(loss)
    return [weights, average, target, mask], loss


@pytest.mark.parametrize("average_name", ["ExponentialMovingAverage", "mean"])
@pytest.mark.parametrize(("saved_names", "pairs", "expected", "new"), [
    (("w", "average", "target", "mask"), (), (1, 2, 3, 4), None), (("w",), (), (1, 1, 1, None), "w/mask"),
    (("w", "average"), (), (1, 2, 2, None), "w/mask"), (("target",), (), (None, None, 3, None), "w, w/mask, w/{}"),
    (("w", "mask", "target"), (("", "here/"),), (1, 1, 3, 4), None),
    (("w", "target"), (("", "here/"),), (1, 1, 3, None), "here/w/mask"),
])
def test_averages_and_masks_are_no_slots(tmp_path, caplog, average_name, saved_names, pairs, expected, new):
    """Issue: they kept their first values, though the checkpoint had others; what begins as a variable follows it."""
    caplog.set_level(logging.INFO)
    values = {"w": 1, "average": 2, "target": 3, "mask": 4}
    with tf.Graph().as_default(), tf.Session() as session:
        variables = dict(zip(values, with_averages(average_name)[0]))
        session.run(tf.global_variables_initializer())
        for name, variable in variables.items():
            variable.load(np.full(2, values[name]), session)
        path = tf.train.Saver([variables[name] for name in saved_names]).save(session, str(tmp_path / "model.ckpt"))
    with tf.Graph().as_default(), tf.Session() as session:
        variables, loss = with_averages(average_name, "here/" if pairs else "")
        session.run(tf.global_variables_initializer())
        before = session.run(variables)
        start = WarmStart(path, pairs, tf.global_variables(), losses=[loss])
        start.log()
        start.load(session)
        for found, first, value in zip(session.run(variables), before, expected):
            np.testing.assert_array_equal(found, first if value is None else np.full(2, value))
        assert not any(session.run(variable).any() for variable in tf.global_variables() if "/own" in variable.name)
    said = caplog.messages[0].partition("; new: ")[2]
    assert said == (new or "").format(average_name)


@pytest.mark.parametrize(("flags", "has_average"), [
    ({}, True), ({"sync_replicas": True}, True), ({"communication_period": 2}, False)],
    ids=["async", "sync", "rounds"])
def test_a_mask_and_an_average_are_taken_in_every_mode(tmp_path, flags, has_average):
    """They have names as slots; the loss, and the average's first value, say what they are."""
    def train(name, mask, **flags):
        testing.run_in_threads(_MASKED, _MASKED, train_dir=tmp_path / name, num_ps=2, num_workers=1, log_steps=0,
                               params=f"has_average={has_average},mask={mask}", **flags)

    train("first", 3.0, train_steps=3)
    train("second", 1.0, train_steps=2, init_checkpoint=str(tmp_path / "first"), optimizer="sgd", learning_rate=1e-12,
          **flags)
    before, after = (testing.read_checkpoint(tmp_path / name) for name in ("first", "second"))
    for name in ("w", "w/mask", *(["w/mean"] if has_average else [])):
        np.testing.assert_allclose(after[name], before[name], rtol=0.01)
    assert not has_average or np.abs(before["w/mean"] - before["w"]).max() > 1e-3


@pytest.mark.parametrize(("pairs", "code", "values"), [
    ((("old/kernel", "kernel"),), "variable_missing", ("'kernel'", "new/kernel, bias")),
    ((("kernel", "new/kernel"),), "variable_missing", ("'kernel' for new/kernel", "bias, global_step")),
    ((("bias", "new/kernel"),), "checkpoint_of_another_model", ("new/kernel [4, 3]", "[3]", "leave them out")),
])
def test_wrong_names_and_shapes_are_refused(saved, pairs, code, values):
    """The error lists the names or shapes on both sides."""
    with raises(code) as refused:
        loaded(saved, pairs)
    assert all(value in str(refused.value) for value in values)


def test_without_a_map_the_advice_about_a_shape_is_a_map(saved):
    """Such as for a last layer with another number of classes: the others are named."""
    with tf.Graph().as_default():
        variables = [tf.get_variable("bias", [5]), tf.get_variable("old/kernel", [4, 3])]
        with raises("checkpoint_of_another_model") as refused:
            WarmStart(saved, (), variables)
        assert "bias [5]" in str(refused.value) and "--init_map" in str(refused.value)


def written(folder, **values):
    """Returns the path of a checkpoint with these variables."""
    with tf.Graph().as_default(), tf.Session() as session:
        made = [tf.Variable(value, name=name) for name, value in values.items()]
        session.run(tf.global_variables_initializer())
        return tf.train.Saver(made).save(session, str(folder / "model.ckpt"), 1)


@pytest.mark.parametrize(("there", "here", "code"), [
    (np.float32(0.75), tf.int32, "checkpoint_of_another_model"),
    (np.int64(3), tf.float32, "checkpoint_of_another_model"),
    (np.array(b"3"), tf.float32, "checkpoint_of_another_model"),
    (np.complex64(1j), tf.float32, "checkpoint_of_another_model"),
    (np.True_, tf.int32, "checkpoint_of_another_model"),
    (np.float32([2, -1e6, np.inf]), tf.float16, "checkpoint_value_too_large"),
    (np.float64([1e300]), tf.float32, "checkpoint_value_too_large"),
    (np.float64([1e300]), tf.bfloat16, "checkpoint_value_too_large"),
    (np.int64([1, 2**33 + 5]), tf.int32, "checkpoint_value_too_large"),
    (np.int64([-1, 1]), tf.uint64, "checkpoint_value_too_large"),
    (np.uint64([2**63]), tf.int64, "checkpoint_value_too_large"),
])
def test_types_that_cannot_have_the_values_are_refused(tmp_path, there, here, code):
    """Issue: 0.75 became 0, 1e6 infinite and 2^33 + 5 the number 5, without a word."""
    path = written(tmp_path, value=there)
    with tf.Graph().as_default(), raises(code) as refused:
        WarmStart(path, (), [tf.Variable(tf.zeros(there.shape, here), name="value")])
    assert all(text in str(refused.value) for text in ("value", here.name, tf.as_dtype(there.dtype).name))


@pytest.mark.parametrize(("there", "here"), [
    (np.float32([1 / 3, np.nan, -np.inf]), tf.float16), (np.float32([1 / 3, 3e38]), tf.bfloat16),
    (np.float64([1 / 3]), tf.float32), (np.float16([2]), tf.float32), (np.int64([-2**31]), tf.int32),
    (np.int32([7]), tf.int64), (np.zeros([0], np.int64), tf.int32), (np.array([b"a"]), tf.string),
])
def test_types_of_one_kind_take_the_values(tmp_path, there, here):
    """Rounded, if they are fractions."""
    path = written(tmp_path, value=there)
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.Variable(tf.zeros(there.shape, here), name="value")
        session.run(variable.initializer)
        WarmStart(path, (), [variable]).load(session)
        np.testing.assert_array_equal(session.run(variable), there.astype(here.as_numpy_dtype))


@pytest.mark.parametrize(("vectors", "code"), [
    (np.ones([30, 4], np.int32), "checkpoint_of_another_model"),
    (np.full([30, 4], 1e300), "checkpoint_value_too_large"),
])
def test_a_table_takes_rows_of_floats(tmp_path, vectors, code):
    """From a variable, and from one of DeepRec, whose ids are whole numbers."""
    tables = {"emb": TableSpec("emb", 4)}
    for values in ({"emb": vectors}, {"emb-keys": np.arange(30), "emb-values": vectors}):
        path = written(tmp_path, **values)
        with raises(code):
            WarmStart(path, (), [], tables)
    path = written(tmp_path, **{"emb-keys": np.arange(30), "emb-values": np.ones([30, 4], np.float32)})
    WarmStart(path, (), [], tables)


def test_the_newest_sound_checkpoint_of_a_folder_is_taken(saved):
    """As a training in that folder does: the file `checkpoint` may name a missing or damaged one."""
    folder = os.path.dirname(saved)
    tf.train.update_checkpoint_state(folder, os.path.join(folder, "model.ckpt-99"))
    assert loaded(folder)["bias"] == 5
    for path in glob.glob(f"{saved}.*"):
        shutil.copy(path, path.replace("-70", "-99"))
    damage(os.path.join(folder, "model.ckpt-99"))
    assert loaded(folder)["bias"] == 5


def damage(path):
    """Cuts the values of a checkpoint off."""
    [data] = glob.glob(f"{path}.data-*")
    os.truncate(data, 1)


def test_damaged_values_are_refused(saved):
    """Before training begins."""
    damage(saved)
    with raises("checkpoint_unreadable"):
        loaded(saved)


def test_a_path_without_a_checkpoint_is_refused(tmp_path):
    """The error names the path."""
    with raises("checkpoint_unreadable") as refused:
        loaded(str(tmp_path / "none"))
    assert str(tmp_path / "none") in str(refused.value)


_COMMON = {"num_ps": 2, "num_workers": 1, "log_steps": 0, "hidden_units": 8}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of a training of 5 steps."""
    folder = tmp_path_factory.mktemp("first")
    testing.run_in_threads("models.mlp", "data.digits", train_dir=folder, train_steps=5, **_COMMON)
    return folder


@pytest.mark.parametrize("flags", [{}, {"sync_replicas": True}, {"communication_period": 5},
                                   {"sync_replicas": True, "sync_engine": "tensorflow"}],
                         ids=["async", "sync", "rounds", "TensorFlow's engine"])
def test_a_training_begins_with_them_in_every_mode(first, tmp_path, flags):
    """With a rate of almost 0, the values stay those of the first training; the step begins at 0."""
    testing.run_in_threads("models.mlp", "data.digits", train_dir=tmp_path, train_steps=10, init_checkpoint=str(first),
                           optimizer="sgd", learning_rate=1e-12, **_COMMON, **flags)
    assert checkpoints.newest_sound(str(tmp_path)).endswith("-10")
    before, after = testing.read_checkpoint(first), testing.read_checkpoint(tmp_path)
    names = [name for name in after if name != "global_step"]
    assert len(names) == 4
    for name in names:
        np.testing.assert_allclose(after[name], before[name], atol=1e-6)


def test_a_global_step_of_the_checkpoint_is_that_of_each_worker(first, tmp_path):
    """Local variables begin with it, too; otherwise the first gradient of a worker would be dropped as stale."""
    result = testing.run_in_threads(
        "models.mlp", "data.digits", train_dir=tmp_path, train_steps=9, init_checkpoint=str(first),
        init_map="global_step:global_step", sync_replicas=True, sync_engine="tensorflow", step_timeout_secs=20.0,
        **_COMMON)
    assert result.outcomes[0].global_step == 9 and result.outcomes[0].first_step == 5


def test_a_task_that_is_stopped_does_not_wait_for_a_store(monkeypatch):
    """It fails for a while when the stop comes."""
    pytest.importorskip("fsspec", reason="the extra `stores` is not installed")
    from ps_train.parts.object_store import reading  # noqa: PLC0415 (needs the extra)
    from ps_train.parts.object_store.store import ObjectStore, StoreError  # noqa: PLC0415

    stop = threading.Event()

    def fail(self, *, is_deep):
        stop.set()
        raise StoreError("503 Slow Down")

    monkeypatch.setattr(ObjectStore, "names", fail)
    monkeypatch.setattr(reading, "_FETCH_SECS", 10.0)
    flags = types.SimpleNamespace(init_checkpoint="memory://first/train", init_map="", init_by_modulo="")
    part = WarmStartPart(flags, None)
    with raises("stopped", kind=StoppedError), part.around_task(stop):
        part.check_origin(None)


_CLICKS = "tests.plugins.tiny_clicks"
_SLOW = {"optimizer": "sgd", "learning_rate": 1e-12, "num_workers": 1, "log_steps": 0, "train_steps": 2}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    """Kind -> the folder of a training with a table of this kind on two ps."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("dynamic", "fixed")}
    for kind, folder in folders.items():
        testing.run_in_threads(
            _CLICKS, _CLICKS, train_dir=folder, train_steps=10, batch_size=50, optimizer="adagrad", learning_rate=0.1,
            num_ps=2, num_workers=1, log_steps=0, params=f"is_dynamic={kind == 'dynamic'}")
    return folders


def rows_in(folder, name="deepfm"):
    """Returns id -> value in the newest checkpoint of a folder."""
    return {int(own): row for ids, values in ps_train.read_table(checkpoints.newest_sound(str(folder)), name)
            for own, row in zip(ids, values)}


@pytest.mark.parametrize(("kind", "to_kind", "num_ps", "flags"), [
    ("dynamic", "dynamic", 3, {}), ("fixed", "fixed", 1, {"communication_period": 2}), ("fixed", "dynamic", 2, {})])
def test_tables_begin_with_the_rows_of_another_training(clicks, tmp_path, kind, to_kind, num_ps, flags):
    """All of them, on another number of ps and under another rule; with a rate of almost 0 they stay."""
    testing.run_in_threads(_CLICKS, _CLICKS, train_dir=tmp_path, init_checkpoint=str(clicks[kind]), num_ps=num_ps,
                           params=f"is_dynamic={to_kind == 'dynamic'}", **_SLOW, **flags)
    expected, found = rows_in(clicks[kind]), rows_in(tmp_path)
    assert len(expected) == 40 and found.keys() == expected.keys()
    for own, row in expected.items():
        np.testing.assert_allclose(found[own], row, atol=1e-7)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_table_begins_with_the_rows_of_a_variable(tmp_path, is_dynamic):
    """Row i becomes that of the id i; other ids have their first values."""
    vectors = np.random.default_rng(0).normal(size=[30, 4]).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        made = tf.get_variable("old/vectors", initializer=vectors)
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver([made]).save(session, str(tmp_path / "vectors" / "model.ckpt"), 1)
    testing.run_in_threads(
        _CLICKS, _CLICKS, train_dir=tmp_path / "train", init_checkpoint=path, init_map="old/vectors:deepfm", num_ps=2,
        params=f"is_dynamic={is_dynamic}", **_SLOW)
    found = rows_in(tmp_path / "train")
    assert set(found) >= set(range(30))
    np.testing.assert_allclose([found[own] for own in range(30)], vectors, atol=1e-7)
    assert all(np.abs(row).max() < 0.011 for own, row in found.items() if own >= 30)


_BY_ID = np.outer(np.arange(30), [1, 2, 3, 4])


@pytest.fixture
def by_modulo(tmp_path):
    """A checkpoint of a variable in 4 parts, of which `embedding_lookup` finds i * [1, 2, 3, 4] for the id i."""
    with tf.Graph().as_default(), tf.Session() as session:
        embedding = tf.get_variable("emb", [30, 4], partitioner=tf.fixed_size_partitioner(4))
        tf.get_variable("columns", [30, 4], partitioner=lambda shape, dtype: [1, 2])
        rows = tf.nn.embedding_lookup(embedding, tf.range(30, dtype=tf.int64), partition_strategy="mod")
        wanted = tf.constant(_BY_ID, tf.float32)
        train_op = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(tf.square(rows - wanted)))
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        np.testing.assert_allclose(session.run(rows), session.run(wanted), atol=1e-5)
        return tf.train.Saver().save(session, str(tmp_path / "first" / "model.ckpt"), 1)


def _started(path, num_parts, by_modulo):
    """Returns the rows of the ids 0 to 29 in a variable after a warm start."""
    with tf.Graph().as_default(), tf.Session() as session:
        made = tf.get_variable("emb", [30, 4], partitioner=tf.fixed_size_partitioner(num_parts))
        start = WarmStart(path, (), tf.global_variables(), by_modulo=by_modulo)
        session.run(tf.global_variables_initializer())
        start.log()
        start.load(session)
        return session.run(tf.nn.embedding_lookup(made, tf.range(30, dtype=tf.int64), partition_strategy="div"))


@pytest.mark.parametrize("num_parts", [1, 3])
def test_ids_keep_the_rows_that_modulo_found(by_modulo, caplog, num_parts):
    """In a variable; without the flag the rows are of other ids, and a warning says what to give."""
    np.testing.assert_allclose(_started(by_modulo, num_parts, ["emb"]), _BY_ID, atol=1e-5)
    assert not caplog.records
    assert (np.abs(_started(by_modulo, num_parts, []) - _BY_ID) > 0.5).any() and "--init_by_modulo=emb" in caplog.text


def test_a_table_keeps_the_rows_that_modulo_found(by_modulo, tmp_path):
    """And what is no such variable is refused."""
    settings = {"init_checkpoint": by_modulo, "num_ps": 2, **_SLOW}
    testing.run_in_threads(_CLICKS, _CLICKS, train_dir=tmp_path / "train", init_map="emb:deepfm",
                           init_by_modulo="emb", **settings)
    found = rows_in(tmp_path / "train")
    np.testing.assert_allclose([found[own] for own in range(30)], _BY_ID, atol=1e-5)
    for name, text in (("columns", "such are: emb"), ("none", "'none' is no variable"), ("emb", "does not take emb")):
        with raises("variable_missing") as caught:
            WarmStart(by_modulo, [("columns", "other")], [_variable("other", [30, 4])], by_modulo=[name])
        assert text in str(caught.value)


@pytest.mark.parametrize("path", ["model.ckpt-1.delta-9", "first"])
def test_a_delta_is_no_beginning(by_modulo, path):
    """It has only the rows that changed; in a folder, the checkpoint is taken."""
    folder = os.path.dirname(by_modulo)
    for file in glob.glob(f"{by_modulo}.*"):
        shutil.copy(file, file.replace("ckpt-1.", "ckpt-1.delta-9."))
    variables = [_variable("emb", [30, 4])]
    if path == "first":
        assert WarmStart(folder, (), variables)
        return
    with raises("delta_for_checkpoint") as caught:
        WarmStart(os.path.join(folder, path), (), variables)
    assert by_modulo in str(caught.value)


def _variable(name, shape):
    with tf.Graph().as_default():
        return tf.get_variable(name, shape)


@pytest.mark.parametrize("num_parts", [0, 2])
def test_a_table_begins_with_the_rows_of_a_variable_of_deeprec(tmp_path, num_parts):
    """Of one part, or of several; any number is an id."""
    vectors = np.random.default_rng(0).normal(size=[30, 4]).astype(np.float32)
    ids = np.arange(30) * 2**40
    parts = [f"emb/part_{part}" for part in range(num_parts)] or ["emb"]
    with tf.Graph().as_default(), tf.Session() as session:
        made = [tf.Variable(value, name=f"{name}-{suffix}") for part, name in enumerate(parts)
                for suffix, value in (("keys", ids[part::len(parts)]), ("values", vectors[part::len(parts)]))]
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver(made).save(session, str(tmp_path / "deeprec" / "model.ckpt"), 1)
    testing.run_in_threads(
        _CLICKS, _CLICKS, train_dir=tmp_path / "train", init_checkpoint=path, init_map="emb:deepfm", num_ps=2,
        params="is_dynamic=True", **_SLOW)
    found = rows_in(tmp_path / "train")
    np.testing.assert_allclose([found[own] for own in ids[1:]], vectors[1:], atol=1e-7)  # id 0 is trained, too


@pytest.mark.parametrize(("params", "flags", "code"), [
    ("model_dim=5", {}, "checkpoint_of_another_model"),
    ("num_ids=20", {}, "checkpoint_of_another_model"),
    ("", {"init_map": "items:deepfm"}, "variable_missing"),
    ("", {"init_map": "deepfm:items"}, "variable_missing"),
    ("", {"init_map": "output/biases:deepfm"}, "checkpoint_of_another_model"),
])
def test_rows_that_do_not_fit_are_refused(clicks, tmp_path, params, flags, code):
    """Another width, too few rows, names that are not there, a vector."""
    with raises(code):
        testing.run_in_threads(_CLICKS, _CLICKS, train_dir=tmp_path, init_checkpoint=str(clicks["fixed"]), num_ps=1,
                               params=params, **_SLOW, **flags)
