"""What a TF1 script that runs eagerly finds; run as `names_child.py` is, in a process of its own."""

from __future__ import annotations

import importlib
import os
import sys
import types

import numpy as np
import pytest

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real
from tensorflow.python.eager import context

from ps_train.parts.legacy.names import installation, repairs

real.disable_v2_behavior()
real.enable_resource_variables()
installation.install()
context.context()  # is made in graph mode, as under ps_train before a script begins
tf = sys.modules["tensorflow"]
tfe = tf.contrib.eager
tf.enable_eager_execution(config=tf.ConfigProto(intra_op_parallelism_threads=3),
                          device_policy=tfe.DEVICE_PLACEMENT_SILENT)
X, Y = np.eye(4, dtype=np.float32), np.arange(4) % 2


def test_a_model_of_layers_trains():
    """Its tensors are Keras's, and the options that the script gives hold."""
    inputs = tf.keras.layers.Input([4])
    assert type(inputs).__name__ == "KerasTensor"
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(tf.keras.layers.Dense(3)(inputs)))
    model.compile(tf.train.AdamOptimizer(0.1), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(X, Y, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] and real.config.threading.get_intra_op_parallelism_threads() == 3


@pytest.mark.parametrize(("options", "is_kept"), [({}, True), ({"device_policy": 1}, False)])
def test_what_the_script_configured_before_stays(monkeypatch, options, is_kept):
    """Unless it gives options, with which the context is made again."""
    made = types.SimpleNamespace(_initialized=False)
    monkeypatch.setattr(repairs, "context", types.SimpleNamespace(_context=made))
    repairs._enable_eager_execution(lambda **kwargs: None, config=None, **options)
    assert (repairs.context._context is made) == is_kept


def test_functions_of_gradients():
    """Of a function, by its arguments or by the variables that it reads."""
    weight = tfe.Variable(3.0)
    (gradient, variable), = tfe.implicit_gradients(lambda x: (weight * x - 1) ** 2)(2.0)
    value, ((other, _),) = tfe.implicit_value_and_gradients(lambda: weight * weight)()
    assert (gradient.numpy(), value.numpy(), other.numpy()) == (20, 9, 6) and variable is weight
    assert tfe.gradients_function(lambda x: x * x)(3.0)[0].numpy() == 6
    assert [tfe.value_and_gradients_function(lambda x: x ** 3)(2.0)[0].numpy()] == [8]
    assert [int(number) for number in tfe.Iterator(tf.data.Dataset.range(3))] == [0, 1, 2]


def test_a_saver_needs_no_session(tmp_path):
    """TensorFlow's takes None for it."""
    weight = tfe.Variable([1.0, 2.0], name="weight")
    saver = tfe.Saver([weight])
    path = saver.save(str(tmp_path / "model"), global_step=7)
    weight.assign([0.0, 0.0])
    saver.restore(path)
    assert weight.numpy().tolist() == [1, 2] and path.endswith("model-7")


RANDOM = np.random.default_rng(1)
SCORES, CLASSES, WEIGHTS = RANDOM.random((2, 6, 3)), RANDOM.integers(0, 3, (2, 6)), RANDOM.random((2, 6))
METRICS = {
    "Mean": (lambda i: (SCORES[i, :, 0],), lambda i: SCORES[i, :, 0]),
    "Accuracy": (lambda i: (CLASSES[i], CLASSES[1 - i]), lambda i: CLASSES[0] == CLASSES[1]),
    "SparseAccuracy": (lambda i: (CLASSES[i], SCORES[i]), lambda i: SCORES[i].argmax(1) == CLASSES[i]),
    "CategoricalAccuracy": (lambda i: (np.eye(3)[CLASSES[i]], SCORES[i]), lambda i: SCORES[i].argmax(1) == CLASSES[i]),
    "BinaryAccuracy": (lambda i: (CLASSES[i] % 2, SCORES[i, :, 0]),
                       lambda i: (SCORES[i, :, 0] > 0.5) == CLASSES[i] % 2),
}


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_metric_counts_over_batches(name, weighted):
    """As numpy does, in float64; init_variables begins again."""
    of_batch, expected = METRICS[name]
    metric = getattr(tfe.metrics, name)()
    metric(*of_batch(0))
    metric.init_variables()
    for batch in (0, 1):
        metric(*of_batch(batch), **({"weights": WEIGHTS[batch]} if weighted else {}))
    values, weights = np.concatenate([expected(0), expected(1)]), WEIGHTS.ravel() if weighted else np.ones(12)
    assert metric.result().numpy() == pytest.approx((values * weights).sum() / weights.sum(), rel=1e-12)


def test_a_metric_has_any_name():
    """That of its class by default; a summary bears it."""
    class Loss(tfe.metrics.Mean):
        pass

    assert [metric.name for metric in (tfe.metrics.Mean("train/loss"), tfe.metrics.Mean(), Loss())] == [
        "train/loss", "Mean", "Loss"]
    assert tfe.metrics.BinaryAccuracy(0.5, name="of two").name == "of two"
    metric = tfe.metrics.Mean("train loss")
    metric(2.0)
    assert metric.result().numpy() == 2


def test_the_module_inside_has_the_same_names():
    """`from tensorflow.contrib.eager.python import tfe`."""
    inner = importlib.import_module("tensorflow.contrib.eager.python.tfe")
    metrics = importlib.import_module("tensorflow.contrib.eager.python.metrics")
    assert inner.Saver is tfe.Saver and metrics.Mean is tfe.metrics.Mean
