"""Metrics on held-out data, against numpy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading

import numpy as np
import pytest

import ps_train
from ps_train.errors import StoppedError
from ps_train.parts.inference import predictor, request_inputs
from ps_train.plugins import contracts
from ps_train.runtime import reports
from ps_train.storage import checkpoints
from ps_train.training import evaluation
from tests import clusters
from tests.clusters import EVAL_PARAMS, SAVED_WEIGHTS, linear_evaluator, save_linear
from tests.errors import raises
from tests.tensorflow_mode import tf


def test_loss_and_metrics_are_those_of_the_whole_set(tmp_path):
    """64 examples in batches of 24: the short last batch weighs as much as its examples."""
    features, labels = clusters.linear_data()
    result = linear_evaluator(features, labels).evaluate(save_linear(tmp_path, 12))
    residuals = features @ SAVED_WEIGHTS + 0.25 - labels
    assert (result.global_step, result.num_examples) == (12, 64)
    np.testing.assert_allclose(result.loss_sum, np.sum(residuals**2), rtol=1e-5)
    np.testing.assert_allclose(result.loss_mean, np.mean(residuals**2), rtol=1e-5)
    np.testing.assert_allclose(result.metrics["error"], np.mean(np.abs(residuals)), rtol=1e-5)


@pytest.mark.parametrize("make_features", [
    lambda x: {"a_scale": tf.constant(1.0), "x": x}, lambda x: {"x": tf.transpose(x)}, lambda x: {}],
    ids=["a scalar first", "time first", "none"])
def test_the_labels_say_how_many_examples_there_are(make_features):
    """Whatever the first feature is. Issue: it failed, or weighed a short last batch as much as the others."""
    features, labels = clusters.linear_data()
    held_out = clusters.array_dataset(features, labels, shuffle=False, repeat=False)
    dataset = dataclasses.replace(held_out, input_fn=lambda **args: held_out.input_fn(**args).map(
        lambda x, y: (make_features(x), y)))

    def model_fn(features, labels, mode, params):
        return ps_train.ModelSpec(tf.reduce_mean(labels))

    with tf.Graph().as_default(), tf.Session() as session:
        evaluated = evaluation.EvalModel(contracts.Model("mean", model_fn, {}), EVAL_PARAMS, dataset, EVAL_PARAMS)
        session.run(evaluated.local_init_op)
        loss_sum, num_examples = evaluated.run_through(session)
    assert num_examples == 64
    np.testing.assert_allclose(loss_sum, np.sum(labels), rtol=1e-4)


def test_scalars_only_cannot_be_counted():
    """Nothing there has a first dimension."""
    dataset = dataclasses.replace(clusters.array_dataset(*clusters.linear_data()),
                                  input_fn=lambda **args: tf.data.Dataset.from_tensors(({}, 1.0)))
    with tf.Graph().as_default(), raises("eval_batch_unknown"):
        evaluation.EvalModel(clusters.model_of(lambda features: tf.constant(0.0)), EVAL_PARAMS, dataset, EVAL_PARAMS)


def test_a_second_evaluation_starts_anew(tmp_path):
    """Metrics do not add up over evaluations."""
    evaluator = linear_evaluator(*clusters.linear_data())
    path = save_linear(tmp_path, 1)
    assert evaluator.evaluate(path) == evaluator.evaluate(path)


def test_only_metrics_that_are_one_number_can_be_chosen():
    """Issue: --early_stopping took the points of a curve, of which no evaluation has a value to compare."""
    def metrics(features, labels):
        mean = tf.metrics.mean(labels)
        unknown = tf.py_func(lambda: np.float32(1), [], tf.float32)
        values = {"number": mean[0], "unknown": unknown, "curve": tf.stack([mean[0]] * 2), "pair": (mean[0], mean[0]),
                  "text": tf.constant("a"), "flag": mean[0] > 0}
        return {name: (value, mean[1]) for name, value in values.items()}

    model = contracts.Model("m", lambda features, labels, mode, params: ps_train.ModelSpec(
        tf.reduce_mean(labels), eval_metric_ops=metrics(features, labels)), {})
    dataset = clusters.array_dataset(*clusters.linear_data())
    assert evaluation.Evaluator(model, EVAL_PARAMS, dataset, EVAL_PARAMS).metric_names == ["number", "unknown"]


class _Stop(tf.train.SessionRunHook):
    """Asks for the end after two batches of each evaluation."""

    num_batches = 0

    def after_create_session(self, session, coord):
        self.num_batches = 0

    def after_run(self, run_context, run_values):
        self.num_batches += 1
        if self.num_batches == 2:
            run_context.request_stop()


def test_a_hook_ends_an_evaluation_and_the_next_one_starts_anew(tmp_path):
    """As in an Estimator. Issue: it was ignored."""
    features, labels = clusters.linear_data()

    def model_fn(features, labels, mode, params):
        return clusters.linear_model().model_fn(features, labels, mode, params)._replace(evaluation_hooks=[_Stop()])

    evaluator = evaluation.Evaluator(
        contracts.Model("stopping", model_fn, {}), EVAL_PARAMS, clusters.array_dataset(features, labels), EVAL_PARAMS)
    path = save_linear(tmp_path, 12)
    num_examples = [evaluator.evaluate(path).num_examples for _ in range(2)]
    assert num_examples == [48, 48]  # of 64


def test_the_report_names_step_loss_and_metrics():
    """The lines that the README shows."""
    result = reports.Evaluation(100, 10, "cross entropy", 12.5, {"b": 0.25, "accuracy": 0.5})
    assert result.format() == ("After 100 training steps, on 10 held-out examples:\n"
                               "  cross entropy = 12.5 in sum, 1.25 in the mean\n"
                               "  accuracy = 0.5000\n  b = 0.2500")


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    """The error lists what is missing."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    with raises("checkpoint_of_another_model"):
        linear_evaluator(*clusters.linear_data()).evaluate(path)


def test_a_models_own_saver_leaves_no_table_empty(tmp_path):
    """A model that evaluates moving averages restores its variables; the entries of its tables come with them."""
    def model_fn(features, labels, mode, params):
        seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0, name="seen")
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        predictions = weight * tf.ones_like(labels) + seen.lookup(tf.constant(1, tf.int64))
        if mode == ps_train.TRAIN:
            return seen.insert(tf.constant([1], tf.int64), tf.constant([5.0]))
        return ps_train.ModelSpec(
            loss=tf.reduce_mean(tf.square(predictions - labels)), predictions=predictions,
            scaffold=tf.train.Scaffold(saver=tf.train.Saver(
                {"average": weight, "global_step": tf.train.get_global_step()})))

    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        tf.get_variable("average", initializer=2.0)
        insert = model_fn(None, tf.zeros([1]), ps_train.TRAIN, {})
        session.run([tf.global_variables_initializer(), insert])
        path = tf.train.Saver(checkpoints.saved_objects()).save(session, str(tmp_path / "model.ckpt"), 3)
    features, labels = np.zeros([4, 2], np.float32), np.full([4], 6.0, np.float32)
    model = contracts.Model("averaged", model_fn, {})
    evaluator = evaluation.Evaluator(model, EVAL_PARAMS, clusters.array_dataset(features, labels), EVAL_PARAMS)
    assert [evaluator.evaluate(path).loss_mean for _ in range(2)] == [1.0, 1.0]  # (2 + 5 - 6)^2
    make_input = functools.partial(request_inputs.input_of_specs, tf.TensorSpec([None, 2], tf.float32))
    predicting = contracts.Model("averaged", lambda features, labels, mode, params: model_fn(
        features, features[:, 0], mode, params), {})
    with contextlib.closing(predictor.of_checkpoint(path, predicting, {}, make_input, 1)) as predicted:
        assert predicted.predict({"inputs": features})["predictions"].tolist() == [7.0] * 4


def test_an_empty_held_out_set_is_an_error(tmp_path):
    """There is nothing to divide by."""
    features, labels = clusters.linear_data()
    full = clusters.array_dataset(features, labels)
    empty = full.__class__("arrays", lambda **kwargs: full.input_fn(**kwargs).take(0), full.prepare, {})
    with raises("eval_data_empty"):
        evaluator = evaluation.Evaluator(clusters.linear_model(), EVAL_PARAMS, empty, EVAL_PARAMS)
        evaluator.evaluate(save_linear(tmp_path, 1))


@pytest.fixture
def held_evaluator():
    """An Evaluator whose held-out data does not come before the end of the test."""
    is_over = threading.Event()

    def hold(features):
        is_over.wait(60)
        return features

    def input_fn(mode, params, shard):
        dataset = ps_train.from_arrays(clusters.linear_data(), params["batch_size"])
        return dataset.map(lambda features, labels: (
            tf.ensure_shape(tf.numpy_function(hold, [features], tf.float32), [None, 4]), labels))

    dataset = contracts.Dataset("held", input_fn, lambda params: None, {})
    yield evaluation.Evaluator(clusters.linear_model(), EVAL_PARAMS, dataset, EVAL_PARAMS)
    is_over.set()


def test_an_evaluation_that_does_not_end_is_an_error(tmp_path, stop, held_evaluator):
    """Its time is bounded."""
    path = save_linear(tmp_path, 3)
    with raises("eval_timed_out"):
        evaluation.evaluate_bounded(0.5, held_evaluator, path, stop)


def test_a_signal_ends_an_evaluation(tmp_path, stop, held_evaluator):
    """It does not wait for the end of the data."""
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(StoppedError, match="stopped while waiting for the evaluation of"):
        evaluation.evaluate_bounded(600, held_evaluator, save_linear(tmp_path, 3), stop)


def test_summaries_go_into_the_folder_eval(tmp_path):
    """Loss and metrics at the checkpoint's step; the loss under the tag that it has in training, not under its name."""
    evaluation.write_summaries(reports.Evaluation(9, 2, "cross entropy", 3.0, {"accuracy": 0.5}), str(tmp_path))
    (path,) = (tmp_path / "eval").glob("events.*")
    found = {(value.tag, event.step, value.simple_value)
             for event in tf.train.summary_iterator(str(path)) for value in event.summary.value}
    assert found == {("loss", 9, 1.5), ("accuracy", 9, 0.5)}
