"""Metrics on held-out data, against numpy."""

from __future__ import annotations

import os
import threading
import types

import numpy as np
import pytest

import ps_train
from ps_train.coordination import blackboard
from ps_train.coordination.state import State
from ps_train.errors import CheckpointError, ClusterLostError, ConfigError, DataError, StoppedError, UserCodeError
from ps_train.plugins import contracts
from ps_train.runtime import reports
from ps_train.storage import checkpoints
from ps_train.training import evaluation
from ps_train.training.reporting import Report
from tests import clusters
from tests.tensorflow_mode import tf

PARAMS = {"batch_size": 24, "seed": None}
WEIGHTS = np.array([0.5, -1.0, 2.0, 0.0], np.float32)


def save(folder, step, bias=0.25):
    """Saves a linear model with WEIGHTS at a global step."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("weights", initializer=WEIGHTS)
        tf.get_variable("bias", initializer=np.float32(bias))
        tf.get_variable("global_step", initializer=np.int64(step))
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, os.path.join(str(folder), "model.ckpt"), step)


def make_evaluator(features, labels):
    """Returns an Evaluator of the linear model."""
    return evaluation.Evaluator(clusters.linear_model(), PARAMS, clusters.array_dataset(features, labels), PARAMS)


def test_loss_and_metrics_are_those_of_the_whole_set(tmp_path):
    """64 examples in batches of 24: the short last batch weighs as much as its examples."""
    features, labels = clusters.linear_data()
    result = make_evaluator(features, labels).evaluate(save(tmp_path, 12))
    residuals = features @ WEIGHTS + 0.25 - labels
    assert (result.global_step, result.num_examples) == (12, 64)
    np.testing.assert_allclose(result.loss_sum, np.sum(residuals**2), rtol=1e-5)
    np.testing.assert_allclose(result.loss_mean, np.mean(residuals**2), rtol=1e-5)
    np.testing.assert_allclose(result.metrics["error"], np.mean(np.abs(residuals)), rtol=1e-5)


def test_a_second_evaluation_starts_anew(tmp_path):
    """Metrics do not add up over evaluations."""
    evaluator = make_evaluator(*clusters.linear_data())
    path = save(tmp_path, 1)
    assert evaluator.evaluate(path) == evaluator.evaluate(path)


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
    with pytest.raises(CheckpointError, match="bias is missing; weights is missing"):
        make_evaluator(*clusters.linear_data()).evaluate(path)


def test_an_empty_held_out_set_is_an_error(tmp_path):
    """There is nothing to divide by."""
    features, labels = clusters.linear_data()
    full = clusters.array_dataset(features, labels)
    empty = full.__class__("arrays", lambda **kwargs: full.input_fn(**kwargs).take(0), full.prepare, {})
    with pytest.raises(DataError, match="arrays.input_fn: the dataset of mode \"eval\" is empty"):
        evaluation.Evaluator(clusters.linear_model(), PARAMS, empty, PARAMS).evaluate(save(tmp_path, 1))


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
    yield evaluation.Evaluator(clusters.linear_model(), PARAMS, dataset, PARAMS)
    is_over.set()


def test_an_evaluation_that_does_not_end_is_an_error(tmp_path, stop, held_evaluator):
    """It says for how long it went on, of which checkpoint, and what the user may do."""
    path = save(tmp_path, 3)
    with pytest.raises(UserCodeError, match=rf"waited 0.5 s for the evaluation of {path}.*--eval_timeout_secs"):
        evaluation.within(0.5, held_evaluator, path, stop)


def test_a_signal_ends_an_evaluation(tmp_path, stop, held_evaluator):
    """It does not wait for the end of the data."""
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(StoppedError, match="told to stop while waiting for the evaluation of"):
        evaluation.within(600, held_evaluator, save(tmp_path, 3), stop)


def test_summaries_go_into_the_folder_eval(tmp_path):
    """Loss and metrics at the checkpoint's step; the loss under the tag that it has in training, whatever its name."""
    evaluation.write_summaries(reports.Evaluation(9, 2, "cross entropy", 3.0, {"accuracy": 0.5}), str(tmp_path))
    (path,) = (tmp_path / "eval").glob("events.*")
    found = {(value.tag, event.step, value.simple_value)
             for event in tf.train.summary_iterator(str(path)) for value in event.summary.value}
    assert found == {("loss", 9, 1.5), ("accuracy", 9, 0.5)}


def test_an_evaluator_follows_the_checkpoints_and_ends_with_the_last(tmp_path, start_servers, stop, capsys):
    """One evaluated while training runs, one saved just before it is done."""
    cluster = start_servers(1, 1)
    chief = blackboard.of_worker(cluster.target("worker", 0), cluster.view("worker", 0))
    chief.announce(State.RUNNING)
    evaluated = []

    class Recording(evaluation.Evaluator):
        def evaluate(self, path):
            evaluated.append(path)
            if len(evaluated) == 1:  # the last checkpoint comes while the first is evaluated
                paths.append(save(tmp_path, 20))
                chief.announce(State.DONE)
            return super().evaluate(path)

    paths = [save(tmp_path, 10)]
    evaluator = Recording(clusters.linear_model(), PARAMS, clusters.array_dataset(*clusters.linear_data()), PARAMS)
    evaluation.follow(evaluator, str(tmp_path), blackboard.of_client(cluster.view("worker", 0)), 10, 60, stop)
    chief.close()
    assert evaluated == paths
    assert "After 20 training steps" in capsys.readouterr().out


def test_an_evaluator_ends_when_the_tasks_were_told_of_different_clusters(stop):
    """With the line that says how."""
    board = types.SimpleNamespace(state=lambda: State.IDLE, misfit=lambda: "ps:0 was told of 1 worker")
    with pytest.raises(ConfigError, match="^ps:0 was told of 1 worker$"):
        evaluation._next_state(board, State.IDLE, 30, stop)


def test_an_evaluation_may_outlast_the_whole_end(tmp_path, stop, monkeypatch):
    """The ps are gone when it is over: the last checkpoint is evaluated, and nobody waits for them to come back."""
    states = [State.RUNNING]

    class Board:
        first_ps = "ps:0"

        def state(self):
            if not states:
                raise evaluation.BlackboardError("gone")
            return states[-1]

        def misfit(self):
            return ""

    evaluated = []

    class Slow(evaluation.Evaluator):
        def evaluate(self, path):
            evaluated.append(path)
            if len(evaluated) == 1:
                paths.append(save(tmp_path, 20))
                states.append(State.DONE)
                assert heard.wait(30)
                states.clear()
            return super().evaluate(path)

    heard = threading.Event()
    ask = evaluation._training_state

    def training_state(board):
        state = ask(board)
        if state == State.DONE:
            heard.set()
        return state

    monkeypatch.setattr(evaluation, "_training_state", training_state)
    paths = [save(tmp_path, 10)]
    evaluator = Slow(clusters.linear_model(), PARAMS, clusters.array_dataset(*clusters.linear_data()), PARAMS)
    evaluation.follow(evaluator, str(tmp_path), Board(), 0.5, 60, stop)
    assert evaluated == paths


def test_a_checkpoint_that_is_removed_before_it_is_evaluated_is_passed_over(tmp_path, caplog):
    """The chief keeps only so many: the newer one is evaluated in the next round."""
    path = save(tmp_path, 1)

    class Late(evaluation.Evaluator):
        def evaluate(self, path):
            checkpoints.remove(path)
            return super().evaluate(path)

    evaluator = Late(clusters.linear_model(), PARAMS, clusters.array_dataset(*clusters.linear_data()), PARAMS)
    with caplog.at_level("INFO"):
        evaluation._evaluate_one(evaluator, path, str(tmp_path), 60, threading.Event(), Report())
    assert f"{path} was removed before it was evaluated" in caplog.text
    assert not (tmp_path / "eval").exists()


def test_an_evaluator_without_a_cluster_gives_up(tmp_path, stop):
    """It waits for the blackboard as long as it was told."""
    cluster = clusters.LocalCluster(1, 1)  # its blackboard is not up
    board = blackboard.of_client(cluster.view("worker", 0))
    with pytest.raises(ClusterLostError, match="waited 0.3 s for the blackboard"):
        evaluation.follow(make_evaluator(*clusters.linear_data()), str(tmp_path), board, 0.3, 60, stop)
    board.close()


def test_an_evaluator_obeys_a_signal(tmp_path, start_servers):
    """A set stop event ends it."""
    stop = threading.Event()
    stop.set()
    board = blackboard.of_client(start_servers(1, 1).view("worker", 0))
    with pytest.raises(StoppedError):
        evaluation.follow(make_evaluator(*clusters.linear_data()), str(tmp_path), board, 10, 60, stop)
    board.close()
