"""A request's placeholders take no name that a variable of the model has."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_train import testing
from ps_train.parts.inference import flags as inference_flags
from ps_train.parts.inference import on_checkpoint, serving
from tests.tensorflow_mode import tf

# Variables with the name of a feature, in a scope with that name, and with the names of ps_train's own scopes.
_PLUGIN = """
import numpy as np
import ps_train
import tensorflow.compat.v1 as tf

FEATURES = ("Price", "dense", "input", "serving_input", "x", "own")


def model_fn(features, labels, mode, params):
    price = tf.get_variable("price", [], initializer=tf.constant_initializer(2.0))
    with tf.name_scope("dense"):
        scoped = 1.0 * tf.Variable(3.0, name="kernel")
    with tf.variable_scope("input"):
        scoped += tf.get_variable("x", [], initializer=tf.ones_initializer())
    with tf.name_scope("input"):
        scoped += tf.Variable(1.0, name="w")
    with tf.variable_scope("serving_input"):
        scoped += tf.get_variable("x", [], initializer=tf.ones_initializer())
    scoped += tf.get_variable("own", [], initializer=tf.ones_initializer())
    total = price * features["Price"] + scoped * features["dense"] + features["x"] + features["own"]
    predictions = {"total": total}
    if mode == ps_train.PREDICT:
        return ps_train.ModelSpec(predictions=predictions)
    return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(total - labels)), predictions=predictions)


def input_fn(mode, params, shard):
    values = np.random.default_rng(0).normal(size=(32, len(FEATURES))).astype(np.float32)
    training = mode == ps_train.TRAIN
    batches = ps_train.from_arrays((values, values.sum(axis=1)), 8, repeat=training)
    return batches.map(lambda row, label: (dict(zip(FEATURES, tf.unstack(row, axis=1))), label))
"""
_SERVING = """

def serving_input_fn():
    return {name: tf.placeholder(tf.float32, [None], name=name) for name in FEATURES}
"""


@pytest.mark.parametrize("serving_input", ["", _SERVING], ids=["features", "serving_input_fn"])
def test_a_feature_may_have_the_name_of_a_variable_or_of_its_scope(tmp_path, monkeypatch, serving_input):
    """It trains with --export_dir, and is exported and predicted with; the predictions are equal."""
    name = f"same_names_{len(serving_input)}"
    (tmp_path / f"{name}.py").write_text(_PLUGIN + serving_input)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    testing.run_in_threads(name, name, train_dir=tmp_path / "train", num_workers=1, train_steps=5, log_steps=0,
                           save_summaries_steps=0, export_dir=str(tmp_path / "out"), exporters="final")
    on_checkpoint.export_checkpoint(inference_flags.parse_export(["--train_dir=train", "--export_dir=exported"]))
    totals = []
    for source in ("--train_dir=train", "--saved_model=exported", "--saved_model=out/final"):
        flags = ["--output=p.npz", *dict.fromkeys(["--train_dir=train", source])]
        config = inference_flags.parse_predict(flags)
        on_checkpoint.predict_examples(config, threading.Event())
        totals.append(np.load("p.npz")["total"])
    assert len(totals[0]) == 32 and np.all(totals[0] == totals[1]) and np.all(totals[0] == totals[2])


@pytest.mark.parametrize("variables, names", [
    (["weights"], ["inputs", "kind"]),
    (["kind/kernel/Adam"], ["serving_input/inputs", "serving_input/kind"]),
    (["Kind", "Serving_input/x"], ["serving_input_1/inputs", "serving_input_1/kind"])])
def test_placeholders_are_called_as_the_features_where_no_variable_is(tmp_path, variables, names):
    """TensorFlow takes names that differ in case for the same."""
    with tf.Graph().as_default(), tf.Session() as session:
        for name in variables:
            tf.get_variable(name, [])
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    specs = {name: tf.TensorSpec([None], tf.float32) for name in ("inputs", "kind")}
    with tf.Graph().as_default():
        serving_input = serving.add_input(lambda: serving.input_of_specs(specs), path)
    assert [tensor.op.name for tensor in serving_input.receivers.values()] == names
    assert list(serving_input.receivers) == ["inputs", "kind"]
