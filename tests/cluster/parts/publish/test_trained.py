"""States of a training that stay readable while it removes or replaces them."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ps_train
from ps_train.parts.inference import serving
from ps_train.parts.live import exporting
from ps_train.parts.live.model import LiveModel
from ps_train.parts.publish.trained import HeldStates, dense_bytes, newest_state
from ps_train.parts.tables import contents
from ps_train.plugins.contracts import Model
from ps_train.storage import checkpoints
from tests.cluster.parts.publish.test_publisher import DENSE, Training
from tests.errors import raises
from tests.tensorflow_mode import tf


@pytest.fixture
def training(tmp_path):
    """A training with a checkpoint and a delta."""
    training = Training(tmp_path / "train", np.random.default_rng(0))
    training.train()
    training.save()
    training.train()
    training.save_delta()
    return training


def _rows(state):
    return {int(key): row.tolist() for ids, rows in contents.newest_rows(state, "a") for key, row in zip(ids, rows)}


def test_a_state_that_is_held_can_be_read_after_it_was_removed(training, tmp_path):
    """Nothing of it stays in the folder."""
    state, states = newest_state(training.folder), HeldStates(training.folder, str(tmp_path / "out"))
    before = _rows(state)
    with states.holding(state) as held:
        checkpoints.remove(state.path)
        assert not os.path.exists(f"{state.path}.index") and _rows(held) == before
    assert os.listdir(training.folder) == []
    with raises("checkpoint_unreadable"), states.holding(state):
        pass


def test_what_a_killed_publisher_has_held_is_removed_by_the_next_of_its_folder(training, tmp_path):
    """Not by one of another folder."""
    state = newest_state(training.folder)
    with HeldStates(training.folder, str(tmp_path / "out")).holding(state) as held:
        HeldStates(training.folder, str(tmp_path / "other"))
        assert checkpoints.exists(held.path)
        HeldStates(training.folder, str(tmp_path / "out"))
        assert not checkpoints.exists(held.path)


def test_a_folder_without_hard_links_is_read_in_place(training, tmp_path, monkeypatch, caplog):
    """With one warning."""
    def fail(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    state, states = newest_state(training.folder), HeldStates(training.folder, str(tmp_path / "out"))
    for _ in range(2):
        with states.holding(state) as held:
            assert held == state
    assert len([record for record in caplog.records if "hard links" in record.getMessage()]) == 1


def _saved(folder, step, values):
    """Returns the path of a checkpoint with these variables, name -> value, and a global step."""
    with tf.Graph().as_default(), tf.Session() as session:
        made = [tf.get_variable(name, initializer=value) for name, value in
                {**values, "global_step": np.int64(step)}.items()]
        session.run(tf.global_variables_initializer())
        return tf.train.Saver(made).save(session, str(folder / "model.ckpt"), step)


def _averaged(weights):
    average = tf.train.ExponentialMovingAverage(0.9)
    return tf.train.Saver(average.variables_to_restore([weights]))


_SAVERS = {"averages": _averaged, "other_name": lambda weights: tf.train.Saver(
    {"global_step": tf.train.get_global_step(), "whole": weights})}


def _model_fn(features, labels, mode, params):
    """Predicts the sums of a matrix's columns; it restores that in a way of its own."""
    parts = tf.fixed_size_partitioner(3) if params["num_parts"] > 1 else None
    weights = tf.get_variable("w", [5, 2], initializer=tf.zeros_initializer(), partitioner=parts)
    sums = tf.reduce_sum(tf.convert_to_tensor(weights), 0)
    saver = _SAVERS.get(params["saver"])
    return ps_train.ModelSpec(predictions=features[:, tf.newaxis] * sums, scaffold=saver and tf.train.Scaffold(
        saver=saver(weights)))


@pytest.mark.parametrize(("saver", "num_parts", "name"), [
    ("averages", 1, "w/ExponentialMovingAverage"), ("other_name", 1, "whole"), ("other_name", 3, "whole"),
    ("", 3, "w")])
def test_a_push_has_what_the_model_restores(tmp_path, saver, num_parts, name):
    """Issue: the raw weights in place of their moving averages; variables in parts were not published at all."""
    rng, model = np.random.default_rng(0), Model("own", _model_fn, {})
    params, specs = {"saver": saver, "num_parts": num_parts}, tf.TensorSpec([None], tf.float32)
    values = rng.normal(size=[2, 5, 2]).astype(np.float32)
    first, second = (_saved(tmp_path, step, {"w": np.zeros([5, 2], np.float32), name: value})
                     for step, value in zip((1, 2), values))
    exporting.write_live(first, str(tmp_path / "live"), model, params, specs)
    dense = dense_bytes(second, exporting.read_layout(str(tmp_path / "live")).dense)
    ones = {"inputs": np.ones([1], np.float32)}
    with LiveModel(str(tmp_path / "live")) as live:
        np.testing.assert_allclose(live.predict(ones)["predictions"], [values[0].sum(0)], rtol=1e-5)
        live.call("live_commit", {"number": 1, "previous": 0, "step": 2, "dense": np.frombuffer(dense, np.uint8)})
        np.testing.assert_allclose(live.predict(ones)["predictions"], [values[1].sum(0)], rtol=1e-5)
    without = _saved(tmp_path, 3, {"other": np.float32(0)})
    with raises("checkpoint_of_another_model"):
        exporting.write_live(without, str(tmp_path / "other"), model, params, specs)
    exporting.check_live(model, params, lambda: serving.input_of_specs(specs))


@pytest.mark.parametrize("values", [
    {"w": np.zeros([2, 2], np.float32)}, {"dense/w": np.zeros([3, 2], np.float32)}, {"dense/w": np.zeros([2, 2])}])
def test_variables_that_are_not_those_of_the_model_are_refused(tmp_path, values):
    """By name, size or type: none of their bytes are published."""
    path = _saved(tmp_path, 1, {"dense/n": np.int64(3), **values})
    layout = [{"name": name, "dtype": dtype, "shape": shape, "offset": offset, "saved": name, "part": ""}
              for name, dtype, shape, offset in DENSE]
    with raises("checkpoint_of_another_model"):
        dense_bytes(path, layout)
