"""tf.contrib.learn.monitors in the training of an Estimator."""

from __future__ import annotations

import importlib.util
import os

import numpy as np
import pytest

from ps_train.parts.legacy import estimator as bridge
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)
bridge.install_estimator()

from ps_train.parts.legacy.names import learn, monitors, run_config  # noqa: E402 (they need the Estimator)

X = np.array([[1.0], [2.0]], np.float32)


def model_fn(features, targets, mode):
    """A weight that becomes 3, whose loss is worse with each step if the rate is negative."""
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(features[:, 0] * weight - targets), name="loss")
    return features[:, 0] * weight, loss, tf.train.GradientDescentOptimizer(0.05).minimize(
        loss, tf.train.get_global_step())


@pytest.fixture
def model(tmp_path):
    """An Estimator that saves each step."""
    config = run_config.LearnRunConfig(model_dir=str(tmp_path), save_checkpoints_steps=1)
    return learn.LearnEstimator(model_fn, config=config)


def input_fn():
    return tf.constant(X), tf.constant(3 * X[:, 0])


class Recorder(monitors.EveryN):
    """Notes what it is told."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = []

    def every_n_step_begin(self, step):
        return ["loss", tf.get_default_graph().get_tensor_by_name("loss:0")]

    def every_n_step_end(self, step, outputs):
        self.seen.append((step, outputs["loss"] == outputs["loss:0"]))

    def every_n_post_step(self, step, session):
        self.seen.append((step, session.run("loss:0") < 1e9))


def test_a_monitor_sees_the_first_and_each_nth_step(model):
    """With the values it asked for, by name or as tensors; and the last step at the end."""
    recorder = Recorder(every_n_steps=4, first_n_steps=2)
    model.fit(input_fn=input_fn, steps=7, monitors=[recorder])
    assert recorder.seen == [(1, True), (1, True), (2, True), (2, True), (6, True), (6, True), (7, True)]


def test_a_validation_monitor_evaluates_and_stops(model):
    """By arrays; the metric, which falls, is not to fall: so it stops two steps after the first evaluation."""
    monitor = monitors.ValidationMonitor(
        X, 3 * X[:, 0], every_n_steps=1, check_interval_secs=None, early_stopping_rounds=2,
        early_stopping_metric_minimize=False, name="own")
    model.fit(input_fn=input_fn, steps=20, monitors=[monitor])
    assert monitor.early_stopped and monitor.best_step is not None
    assert model.get_variable_value("global_step") == monitor.best_step + 2 < 20
    assert monitor.best_metrics["loss"] == monitor.best_value
    assert os.path.isdir(os.path.join(model.model_dir, "eval_own"))


def test_a_validation_monitor_goes_on_while_the_metric_becomes_better(model):
    """Until the steps are done; without rounds it never stops."""
    improving, looking = (monitors.ValidationMonitor(
        input_fn=input_fn, eval_steps=1, every_n_steps=2, check_interval_secs=None, early_stopping_rounds=rounds)
        for rounds in (4, None))
    model.fit(input_fn=input_fn, steps=8, monitors=[improving, looking])
    assert model.get_variable_value("global_step") == 8 and not improving.early_stopped
    assert improving.best_step > 4 and looking.best_step is None


def test_what_a_validation_monitor_needs(model):
    """Data, and a metric that there is."""
    with pytest.raises(ValueError, match="x or input_fn must be given"):
        monitors.ValidationMonitor()
    monitor = monitors.ValidationMonitor(input_fn=input_fn, eval_steps=1, every_n_steps=1, early_stopping_rounds=1,
                                         early_stopping_metric="accuracy")
    with pytest.raises(ValueError, match="early_stopping_metric is 'accuracy'; the metrics are global_step, loss"):
        model.fit(input_fn=input_fn, steps=5, monitors=[monitor])


def test_the_others_are_hooks(model):
    """With the arguments that they had; workers other than the chief have those that run on all workers."""
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        summary, loss = tf.summary.scalar("a", 1.0), tf.constant(1.0)
        made = [monitors.PrintTensor(["x"], 5), monitors.NanLoss(loss), monitors.StopAtStep(num_steps=3),
                monitors.SummarySaver(summary, 10, model.model_dir), monitors.StepCounter(5, model.model_dir),
                monitors.CheckpointSaver(model.model_dir, save_steps=5)]
    assert monitors.hooks_of(made, model) == made and monitors.hooks_of(None, model) == []

    class Worker:
        config = type("Config", (), {"is_chief": False})

    everywhere = monitors.BaseMonitor()
    everywhere.run_on_all_workers = True
    hook, = monitors.hooks_of([monitors.BaseMonitor(), everywhere], Worker)
    assert hook._monitors == [everywhere] and everywhere._estimator is Worker
