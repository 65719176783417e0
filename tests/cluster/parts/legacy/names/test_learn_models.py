"""The models of contrib.learn, against numpy: what a step does to them, and what they predict."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
import types

import numpy as np
import pytest

from ps_train.parts.legacy import estimator as bridge
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)
bridge.install_estimator()

from ps_train.parts.legacy.names import (  # noqa: E402 (they need the Estimator)
    estimators,
    feature_columns,
    learn,
    learn_inputs,
    learn_metrics,
    learn_models,
    run_config,
)

X = np.array([[1.0], [-2.0], [0.5], [3.0]], np.float32)
Y = np.array([2.0, 1.0, -1.0, 4.0], np.float32)
CLASSES = np.array([1, 0, 1, 1], np.int64)
NUMBER = tf.feature_column.numeric_column("x")
WEIGHT = "linear/linear_model/x/weights"
GRADIENT = np.mean(-2 * Y * X[:, 0])  # of the mean squared error, at a weight and a bias of 0


def input_fn(labels=Y, **features):
    """Returns an input function of one batch."""
    return lambda: ({"x": tf.constant(X), **{name: tf.constant(value) for name, value in features.items()}},
                    tf.constant(labels))


def predict_fn():
    """Returns the features of the same batch, once."""
    return tf.data.Dataset.from_tensors({"x": X})


def test_a_model_trains_on_the_mean_of_its_losses(tmp_path):
    """The Estimator's own sum would be as many times greater as there are examples; `loss` is the mean, too."""
    model = learn_models.LearnLinearRegressor([NUMBER], str(tmp_path), optimizer=tf.train.GradientDescentOptimizer(0.1))
    model.fit(input_fn=input_fn(), steps=1)
    assert model.get_variable_value(WEIGHT) == pytest.approx(-0.1 * GRADIENT, rel=1e-5)
    bias = model.get_variable_value("linear/linear_model/bias_weights")
    errors = Y - X[:, 0] * -0.1 * GRADIENT - bias
    assert model.evaluate(input_fn=input_fn(), steps=1)["loss"] == pytest.approx(np.mean(errors ** 2), rel=1e-5)


def test_the_weights_of_examples_have_their_old_name_and_place(tmp_path):
    """The loss is the sum of weighted losses, divided by the number of examples."""
    weights = np.array([1.0, 0.0, 2.0, 3.0], np.float32)
    expected = 0.1 * np.mean(2 * weights * Y * X[:, 0])
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    by_place = learn_models.LearnLinearRegressor([NUMBER], str(tmp_path / "place"), "w", optimizer)
    by_name = learn_models.LearnLinearRegressor(
        feature_columns=[NUMBER], weight_column_name="w", optimizer=optimizer, model_dir=str(tmp_path / "name"))
    for model in (by_place, by_name):
        model.fit(input_fn=input_fn(w=weights), steps=1)
        assert model.get_variable_value(WEIGHT) == pytest.approx(expected, rel=1e-5)


def test_the_default_learning_rates_are_those_of_contrib_learn(tmp_path):
    """The step of FTRL from 0 is rate * gradient / sqrt(0.1 + gradient ** 2), and the rate is 0.2."""
    models = {"linear": learn_models.LearnLinearRegressor([NUMBER], str(tmp_path / "linear")),
              "both": learn_models.LearnDNNLinearCombinedRegressor(
                  str(tmp_path / "both"), linear_feature_columns=[NUMBER])}
    for model in models.values():
        model.fit(input_fn=input_fn(), steps=1)
        assert model.get_variable_value(WEIGHT) == pytest.approx(
            -0.2 * GRADIENT / np.sqrt(0.1 + GRADIENT ** 2), rel=1e-4)


@pytest.mark.parametrize(("model", "argument", "given", "expected"), [
    ("LinearClassifier", "optimizer", None, 0.1), ("LinearClassifier", "optimizer", "Ftrl", 0.2),
    ("DNNRegressor", "optimizer", None, 0.05), ("DNNRegressor", "optimizer", "Momentum", 0.05),
    ("DNNLinearCombinedClassifier", "linear_optimizer", "SGD", 0.1),
    ("DNNLinearCombinedClassifier", "dnn_optimizer", None, 0.05)])
def test_learning_rates_by_the_name_of_an_optimizer(model, argument, given, expected):
    """That of a linear model falls with the number of its columns, here 100."""
    columns = {"feature_columns": [NUMBER] * 100, "linear_feature_columns": [NUMBER] * 100}
    made = learn_models._optimizers(model, {argument: given, **columns})[argument]()
    assert made._learning_rate == pytest.approx(expected)


def test_a_classifier_predicts_numbers(tmp_path):
    """One for each example; dictionaries with `outputs`, and arrays unless as_iterable."""
    model = learn_models.LearnDNNClassifier([4], [NUMBER], str(tmp_path), n_classes=2)
    model.fit(input_fn=input_fn(CLASSES), steps=200)
    found = list(model.predict(input_fn=predict_fn))
    assert found == list(model.predict_classes(input_fn=predict_fn)) and set(found) <= {0, 1}
    assert np.mean(found == CLASSES) == model.evaluate(input_fn=input_fn(CLASSES), steps=1)["accuracy"]
    proba = model.predict_proba(input_fn=predict_fn, as_iterable=False)
    assert proba.shape == (4, 2) and proba.argmax(1).tolist() == found
    chosen = list(model.predict(input_fn=predict_fn, outputs=["classes", "probabilities"]))
    assert [sorted(each) for each in chosen] == [["classes", "probabilities"]] * 4
    assert [each["classes"] for each in chosen] == found
    arrays = model.predict(input_fn=predict_fn, outputs=["classes"], as_iterable=False)
    assert arrays["classes"].tolist() == found


def test_a_metric_may_be_one_tensor_and_predictions_of_an_endless_input_the_first_batch(tmp_path):
    """Issue: an evaluation refused such a metric, and a prediction that is no iterable never ended."""
    model = learn_models.LearnDNNClassifier([4], [NUMBER], str(tmp_path), n_classes=2)
    model.fit(input_fn=input_fn(CLASSES), steps=2)
    spec = learn_metrics.MetricSpec(lambda predictions, labels: tf.reduce_sum(predictions[:, 1]), "probabilities")
    metrics = model.evaluate(input_fn=input_fn(CLASSES), steps=3, metrics={"sum": spec})
    chances = model.predict_proba(input_fn=input_fn(CLASSES), as_iterable=False)  # the input has no end
    assert chances.shape == (4, 2) and metrics["sum"] == pytest.approx(chances[:, 1].sum(), rel=1e-5)


def test_scikit_learns_predictions_are_numbers(tmp_path):
    """SKCompat's dictionary has an array [n] for each name."""
    model = learn.SKCompat(learn_models.LearnLinearClassifier([NUMBER], str(tmp_path)))
    model.fit({"x": X}, CLASSES, batch_size=4, steps=5)
    found = model.predict({"x": X})
    assert found["classes"].shape == (4,) and found["classes"].dtype.kind == "i"
    assert sorted(model.predict({"x": X}, outputs=["logits"])) == ["logits"]


def test_classes_that_are_words(tmp_path):
    """`label_keys` are the words, in the order of their numbers."""
    words = ["no", "perhaps", "yes"]
    model = learn_models.LearnLinearClassifier([NUMBER], str(tmp_path), 3, label_keys=words)
    model.fit(input_fn=input_fn(np.array(["yes", "no", "perhaps", "yes"])), steps=20)
    assert {word.decode() for word in model.predict(input_fn=predict_fn)} <= set(words)


@pytest.mark.parametrize("dimension", [1, 2])
def test_a_regressor_predicts_values(tmp_path, dimension):
    """One number for each example, or as many as the labels have; a MetricSpec knows them as scores."""
    labels = Y if dimension == 1 else np.stack([Y, -Y], 1)
    model = learn_models.LearnLinearRegressor([NUMBER], str(tmp_path), label_dimension=dimension)
    model.fit(input_fn=input_fn(labels), steps=10)
    found = np.array(list(model.predict(input_fn=predict_fn)))
    assert found.shape == labels.shape
    np.testing.assert_array_equal(found, model.predict_scores(input_fn=predict_fn, as_iterable=False))
    metrics = model.evaluate(input_fn=input_fn(labels), steps=1, metrics={
        "own": learn_metrics.MetricSpec(tf.metrics.mean_squared_error, prediction_key="scores"),
        ("other", "scores"): tf.metrics.mean_squared_error})
    assert metrics["own"] == metrics["other"] == pytest.approx(np.mean((found - labels) ** 2), rel=1e-5)


@pytest.mark.parametrize(("kind", "name", "shape"), [
    ("LearnLinearRegressor", "scores", [4]), ("LearnLinearClassifier", "classes", [4]),
    ("LearnLinearClassifier", "probabilities", [4, 2])])
def test_an_export_of_the_scripts_own_finds_the_old_names(tmp_path, kind, name, shape):
    """Issue: it calls the model's function as contrib.learn did, without options, and `scores` was not there."""
    model = getattr(learn_models, kind)([NUMBER], str(tmp_path))
    with tf.Graph().as_default():
        tf.train.create_global_step()
        spec = model._call_model_fn({"x": tf.constant(X)}, None, learn.LearnModeKeys.INFER)
        assert spec.predictions[name].shape.as_list() == shape


def test_an_export_takes_a_serving_function_of_contrib_learn(tmp_path):
    """It returns InputFnOps, with a tuple of features, labels and what a request has."""
    model = learn_models.LearnLinearClassifier([NUMBER], str(tmp_path / "model"))
    model.fit(input_fn=input_fn(CLASSES), steps=1)
    serving_fn = learn.build_parsing_serving_input_fn({"x": tf.FixedLenFeature([1], tf.float32)})
    path = model.export_savedmodel(str(tmp_path / "export"), serving_fn, None)
    with tf.Graph().as_default(), tf.Session() as session:
        signatures = tf.saved_model.loader.load(session, ["serve"], path.decode()).signature_def
    assert "serving_default" in signatures


def test_a_linear_model_combines_ids_as_its_columns_say(tmp_path):
    """A step of the mean of four ids moves the bias by its rate, and each weight by a quarter of it."""
    def words():
        return {"word": tf.SparseTensor([[0, 0], [0, 1], [0, 2], [0, 3]], tf.constant(list("abcd")), [1, 4])}, (
            tf.constant([1.0]))
    columns = [feature_columns.sparse_column_with_keys("word", list("abcd"), combiner="mean")]
    descent = tf.train.GradientDescentOptimizer(0.1)
    models = [learn_models.LearnLinearRegressor(columns, str(tmp_path / "linear"), optimizer=descent),
              learn_models.LearnDNNLinearCombinedRegressor(
                  str(tmp_path / "both"), linear_feature_columns=columns, linear_optimizer=descent)]
    for model in models:
        model.fit(input_fn=words, steps=1)
        np.testing.assert_allclose(model.get_variable_value("linear/word/weight").ravel(), [0.05] * 4, rtol=1e-5)
        assert model.get_variable_value("linear/bias_weight") == pytest.approx(0.2)


def test_too_many_arguments_by_position():
    """They would be taken for others."""
    with pytest.raises(TypeError, match="LinearRegressor: got 11 arguments by position; it has 10"):
        learn_models.LearnLinearRegressor(*range(11))


def test_a_model_function_that_is_a_partial_keeps_its_arguments(tmp_path):
    """The Estimator's own params, which are none, are not put in their place; one may ask for the model_dir."""
    seen = []

    def model_fn(features, labels, mode, params, model_dir):
        seen.append((params, model_dir))
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(features * weight - labels))
        train_op = tf.train.GradientDescentOptimizer(params["rate"]).minimize(loss, tf.train.get_global_step())
        return features * weight, loss, train_op

    model = learn.LearnEstimator(functools.partial(model_fn, params={"rate": 0.5}), str(tmp_path))
    model.partial_fit(input_fn=lambda: (tf.constant([1.0]), tf.constant([1.0])))
    assert seen == [({"rate": 0.5}, str(tmp_path))] and model.get_variable_value("weight") == pytest.approx(1.0)


def test_the_thresholds_of_a_classifier_s_head_are_set_as_scripts_did(tmp_path):
    """contrib.learn gave the head to its models' functions as a parameter; the metrics follow its thresholds."""
    for kind in ("LinearClassifier", "DNNClassifier", "DNNLinearCombinedClassifier"):
        columns = "linear_feature_columns" if "Combined" in kind else "feature_columns"
        others = {"hidden_units": [2]} if kind.startswith("DNNC") else {}
        model = getattr(learn_models, f"Learn{kind}")(
            **{columns: [NUMBER]}, model_dir=str(tmp_path / kind), **others)
        model.params["head"]._thresholds = [0.7]
        model.fit(input_fn=input_fn(CLASSES), steps=1)
        metrics = model.evaluate(input_fn=input_fn(CLASSES), steps=1)
        assert any("positive_threshold_0.7" in name for name in metrics), (kind, metrics)


def test_arrays_are_features_without_a_name(tmp_path):
    """The tutorial of TensorFlow 1.0: `real_valued_column("", dimension=4)` and arrays, and a sample to predict."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(90, 4)).astype(np.float32)
    y = x[:, :3].argmax(1)
    columns = [feature_columns.real_valued_column("", dimension=4)]
    model = learn_models.LearnLinearClassifier(columns, str(tmp_path), n_classes=3)
    model.fit(x, y, steps=200)
    model.fit(input_fn=lambda: (tf.constant(x), tf.constant(y)), steps=1)
    assert model.evaluate(x, y)["accuracy"] > 0.9
    found = list(model.predict(x[:5]))
    assert found == list(model.predict(input_fn=lambda: x[:5])) == y[:5].tolist()  # an array, once
    assert learn_inputs.infer_real_valued_columns_from_input(x)[0].key == ""


def test_examples_of_iterators_are_features_and_labels(tmp_path):
    """Until either ends; a step takes a batch."""
    for dictionary in (False, True):
        model = learn_models.LearnLinearRegressor(
            [NUMBER if dictionary else tf.feature_column.numeric_column("")], str(tmp_path / str(dictionary)))
        rows = ({"x": row} if dictionary else row for row in np.tile(X, (5, 1)))
        model.fit(rows, iter([[label] for label in np.tile(Y, 5)]), batch_size=4, steps=100)
        assert model.get_variable_value("global_step") == 5


def test_the_loss_of_an_evaluation_is_divided_by_the_weights(tmp_path):
    """TensorFlow 1.15's test: three rows of 1/4, and one of 7: (7 * 0.75 ** 2 + 3 * 0.25 ** 2) / 10."""
    model = learn_models.LearnLinearRegressor([NUMBER], str(tmp_path), weight_column_name="w", optimizer="SGD")
    ones, labels = np.ones([4, 1], np.float32), np.array([1, 0, 0, 0], np.float32)

    def data(weight):
        return {"x": tf.constant(ones), "w": tf.constant([[weight], [1.0], [1.0], [1.0]])}, tf.constant(labels)
    model.fit(input_fn=lambda: data(1.0), steps=100)
    metrics = model.evaluate(input_fn=lambda: data(7.0), steps=1)
    assert metrics["loss"] == pytest.approx(0.4125, abs=0.01)
    assert metrics["labels/actual_label_mean"] == pytest.approx(0.7)


def test_a_model_function_gets_labels_when_it_predicts(tmp_path):
    """Placeholders, once it was trained: some never ask for the mode."""
    def model_fn(features, labels):
        predictions, loss = estimators.linear_regression_zero_init(features, labels)
        step = tf.train.get_global_step()
        return predictions, loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    model = learn.LearnEstimator(model_fn, str(tmp_path))
    model.fit(X, Y, steps=20)
    found = np.array(list(model.predict(X)))
    assert len(list(model.predict(X[:2]))) == 2  # another batch than that of the training
    mse = model.evaluate(X, Y, metrics={"mse": tf.metrics.mean_squared_error})["mse"]
    assert found.shape == (4,) and mse == pytest.approx(np.mean((found - Y) ** 2), rel=1e-5)


def test_gradients_are_clipped_and_features_made_of_others(tmp_path):
    """One step of gradient descent is as long as the norm that gradients are clipped to, times the rate."""
    def engineer(features, labels):
        return {"x": features["raw"] * 100.0}, labels
    for name, optimizer in (("object", tf.train.GradientDescentOptimizer(0.5)),
                            ("function", lambda: tf.train.GradientDescentOptimizer(0.5))):
        model = learn_models.LearnLinearRegressor(
            [NUMBER], str(tmp_path / name), optimizer=optimizer, gradient_clip_norm=0.25,
            feature_engineering_fn=engineer)
        model.fit(input_fn=lambda: ({"raw": tf.constant(X)}, tf.constant(Y)), steps=1)
        step = [model.get_variable_value(WEIGHT), model.get_variable_value("linear/linear_model/bias_weights")]
        assert np.linalg.norm(np.concatenate([np.ravel(part) for part in step])) == pytest.approx(0.5 * 0.25, rel=1e-5)
        assert len(list(model.predict(input_fn=lambda: {"raw": tf.constant(X)}))) == 4
    assert model.params["head"] is not None


def test_variables_have_the_names_of_contrib_learn_too(tmp_path):
    """And are attributes of the model, as scikit-learn has them."""
    linear = learn_models.LearnLinearRegressor([NUMBER], str(tmp_path / "linear"))
    deep = learn_models.LearnDNNRegressor([3, 2], [NUMBER], str(tmp_path / "deep"))
    for model in (linear, deep):
        model.fit(input_fn=input_fn(), steps=1)
    assert linear.get_variable_value("linear/x/weight") == linear.weights_ == linear.get_variable_value(WEIGHT)
    assert linear.get_variable_value("linear/bias_weight") == linear.bias_
    assert [kernel.shape for kernel in deep.weights_] == [(1, 3), (3, 2), (2, 1)]
    assert [bias.shape for bias in deep.bias_] == [(3,), (2,), (1,)]
    np.testing.assert_array_equal(deep.get_variable_value("dnn/hiddenlayer_1/weights"), deep.weights_[1])


def test_input_functions_of_arrays_shuffle_by_default(tmp_path):
    """Getting started with TensorFlow 1.0; those of tf.estimator want to be told."""
    model = learn_models.LearnLinearRegressor([NUMBER], str(tmp_path))
    model.fit(input_fn=learn_inputs.numpy_input_fn({"x": X[:, 0]}, Y, 4, num_epochs=3))
    assert model.get_variable_value("global_step") == 3


def test_a_model_is_a_step_of_a_pipeline(monkeypatch, tmp_path):
    """scikit-learn asks each step for its tags, and whether it is fitted."""
    monkeypatch.setitem(sys.modules, "sklearn.utils", types.SimpleNamespace(Tags=dict, TargetTags=dict))
    model = learn_models.LearnLinearRegressor([NUMBER], str(tmp_path))
    for step in (model, learn.SKCompat(model)):
        assert step.__sklearn_tags__()["target_tags"] == {"required": False} and not step.__sklearn_is_fitted__()
    with pytest.raises(learn.NotFittedError, match="Couldn't find trained model"):
        next(model.predict(X))
    with pytest.raises(learn.NotFittedError):
        model.evaluate(input_fn=input_fn(), steps=1)
    model.fit(input_fn=input_fn(), steps=1)
    assert model.__sklearn_is_fitted__()


def test_a_task_without_an_index_is_the_first(monkeypatch, tmp_path):
    """As contrib.learn read TF_CONFIG; the Estimator refuses it. The environment stays as it is."""
    text = json.dumps({"cluster": {"master": ["localhost:1"], "ps": ["localhost:2"]}, "task": {"type": "ps"}})
    monkeypatch.setenv("TF_CONFIG", text)
    config = run_config.LearnRunConfig(model_dir=str(tmp_path))
    assert (config.task_type, config.task_id) == ("ps", 0) and os.environ["TF_CONFIG"] == text
