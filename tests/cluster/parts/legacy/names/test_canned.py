"""Canned Estimators of TensorFlow 1 with optimizers of Keras: those of TensorFlow 2, against numpy."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os

import numpy as np
import pytest

from ps_train.parts.legacy import estimator as bridge
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)
bridge.install_estimator()

X = np.array([[1.0], [-2.0], [0.5], [3.0]], np.float32)
Y = np.array([[2.0], [1.0], [-1.0], [4.0]], np.float32)
NUMBER = tf.feature_column.numeric_column("x")
GRADIENT = -2 * np.mean(X * Y)  # of the mean squared error, at a weight and a bias of 0
RATE = 0.01  # of SGD by default


def input_fn():
    """Returns a batch of all examples; for a prediction, too."""
    return tf.data.Dataset.from_tensors(({"x": X}, Y))


def weight_of(model):
    """Returns the only weight of a linear model, float []."""
    name = next(name for name in model.get_variable_names() if name.endswith("x/weights"))
    return model.get_variable_value(name).item()


@pytest.mark.parametrize("make", [
    lambda: tf.keras.optimizers.SGD(RATE), lambda: tf.keras.optimizers.SGD,
    lambda: lambda: tf.keras.optimizers.SGD(RATE), lambda: functools.partial(tf.keras.optimizers.SGD, RATE),
    lambda: lambda: tf.keras.optimizers.SGD(tf.train.exponential_decay(RATE, tf.train.get_global_step(), 1, 0.5))])
def test_an_optimizer_of_keras_takes_the_model_of_tensorflow_2(tmp_path, make):
    """It is the optimizer itself, its class, or a function that makes it; the loss is the mean of the batch."""
    model = tf.estimator.LinearRegressor([NUMBER], str(tmp_path), optimizer=make())
    model.train(input_fn, steps=1)
    assert isinstance(model, tf.estimator.LinearRegressor) and model.model_dir == str(tmp_path)
    assert weight_of(model) == pytest.approx(-RATE * GRADIENT, rel=1e-5)
    errors = Y[:, 0] + RATE * GRADIENT * X[:, 0] - 2 * RATE * Y.mean()
    found = model.evaluate(input_fn, steps=1)
    assert (found["global_step"], found["loss"]) == (1, pytest.approx(np.mean(errors ** 2), rel=1e-4))


def test_an_optimizer_of_tf_train_takes_that_of_tensorflow_1(tmp_path):
    """Whose loss is the sum; also from a function."""
    for name, optimizer in (("one", tf.train.GradientDescentOptimizer(RATE)),
                            ("made", lambda: tf.train.GradientDescentOptimizer(RATE))):
        model = tf.estimator.LinearRegressor([NUMBER], str(tmp_path / name), optimizer=optimizer)
        model.train(input_fn, steps=1)
        assert weight_of(model) == pytest.approx(-RATE * GRADIENT * len(X), rel=1e-5)


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize("name", ["DNNClassifier", "DNNEstimator", "DNNLinearCombinedRegressor", "BaselineRegressor"])
def test_each_kind_trains_and_another_object_predicts(tmp_path, name, is_function):
    """As in an evaluator's process: it only has the folder. The steps count, and their loss falls."""
    def make():
        optimizer = tf.keras.optimizers.Adam(0.1)
        chosen = (lambda: optimizer) if is_function else optimizer
        options = {
            "DNNClassifier": {"hidden_units": [4], "feature_columns": [NUMBER], "n_classes": 5},
            "DNNEstimator": {"hidden_units": [4], "feature_columns": [NUMBER], "head": tf.estimator.RegressionHead()},
            "DNNLinearCombinedRegressor": {
                "linear_feature_columns": [NUMBER], "linear_optimizer": tf.keras.optimizers.Ftrl(0.1),
                "dnn_feature_columns": [NUMBER], "dnn_hidden_units": [4]}}
        key = "dnn_optimizer" if name == "DNNLinearCombinedRegressor" else "optimizer"
        return getattr(tf.estimator, name)(model_dir=str(tmp_path), **{key: chosen}, **options.get(name, {}))

    def batches():
        labels = np.abs(Y).astype(np.int64) if name == "DNNClassifier" else Y
        return tf.data.Dataset.from_tensors(({"x": X}, labels)).repeat(20)

    make().train(batches, steps=1)
    before = make().evaluate(batches, steps=1)
    make().train(batches, steps=19)
    after = make().evaluate(batches, steps=1)
    assert (before["global_step"], after["global_step"]) == (1, 20) and after["loss"] < before["loss"]
    assert len(list(itertools.islice(make().predict(input_fn), len(X)))) == len(X)


@pytest.mark.parametrize("method", ["export_saved_model", "export_savedmodel"])
def test_an_object_that_has_not_trained_exports(tmp_path, method):
    """TensorFlow 1's own method ended with the error that asks for the other model."""
    def make():
        return tf.estimator.LinearRegressor([NUMBER], str(tmp_path), optimizer=lambda: tf.keras.optimizers.SGD(RATE))

    def receive():
        examples = tf.placeholder(tf.float32, [None, 1])
        return tf.estimator.export.ServingInputReceiver({"x": examples}, examples)

    make().train(input_fn, steps=1)
    exported = getattr(make(), method)(str(tmp_path / "export"), receive)
    assert os.path.exists(os.path.join(exported, b"saved_model.pb"))


def test_an_optimizer_that_is_none_is_refused_as_before(tmp_path):
    """By TensorFlow's own error."""
    model = tf.estimator.LinearRegressor([NUMBER], str(tmp_path), optimizer=lambda: 3)
    with pytest.raises(ValueError, match="not an Optimizer instance"):
        model.train(input_fn, steps=1)
