"""Experiments of contrib.learn on one machine, by each schedule that learn_runner runs."""

from __future__ import annotations

import functools
import importlib.util
import os
import threading

import pytest

from ps_train.parts.legacy import estimator as bridge
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)
bridge.install_estimator()

from ps_train.parts.legacy.names import learn, learn_experiment  # noqa: E402 (they need the Estimator)

DEADLINE_SECS = 60


def model_fn(features, targets, mode):
    """A line through 0."""
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    predictions = features["x"] * weight
    if mode == learn.LearnModeKeys.INFER:
        return {"value": predictions}, None, None
    loss = tf.reduce_mean(tf.square(predictions - targets))
    return {"value": predictions}, loss, tf.train.GradientDescentOptimizer(0.1).minimize(
        loss, tf.train.get_global_step())


def input_fn():
    return {"x": tf.constant([1.0, 2.0])}, tf.constant([3.0, 6.0])


def serving_fn():
    values = tf.placeholder(tf.float32, [None])
    return learn.InputFnOps({"x": values}, None, {"x": values})


@pytest.fixture
def make(tmp_path):
    """A function that returns an Experiment of one folder."""
    def make_experiment(eval_input_fn=input_fn, **others):
        return learn_experiment.Experiment(
            learn.LearnEstimator(model_fn, str(tmp_path)), input_fn, eval_input_fn,
            **{"train_steps": 4, "eval_steps": 1, "eval_delay_secs": 0, "continuous_eval_throttle_secs": 0, **others})

    return make_experiment


def run(experiment, schedule):
    """Runs a schedule of an experiment."""
    return learn_experiment.run_experiment(lambda output_dir: experiment, "unused", schedule)


def test_training_needs_no_data_to_evaluate(make):
    """It returns the Estimator, and does not evaluate."""
    experiment = make(None)
    assert run(experiment, "train") is experiment.estimator
    assert experiment.estimator.get_variable_value("global_step") == 4
    assert not os.path.isdir(os.path.join(experiment.estimator.model_dir, "eval"))


def test_continuous_evaluation_ends_with_the_training(make):
    """Another process trains: here a thread."""
    experiment, trainer = make(), make()
    thread = threading.Thread(target=trainer.train, daemon=True)
    thread.start()
    evaluation = threading.Thread(target=run, args=(experiment, "continuous_eval"), daemon=True)
    evaluation.start()
    for each in (thread, evaluation):
        each.join(DEADLINE_SECS)
        assert not each.is_alive()
    assert os.listdir(os.path.join(experiment.estimator.model_dir, "eval_continuous"))


def test_continuous_evaluation_on_the_data_of_the_training(make):
    """Under its own name, and without an export."""
    experiment = make(None, export_strategies=[learn_experiment.make_export_strategy(serving_fn)])
    experiment.train()
    run(experiment, "continuous_eval_on_train_data")
    assert sorted(name for name in os.listdir(experiment.estimator.model_dir) if name.startswith(("eval", "exp"))) == [
        "eval_continuous_on_train_data"]


@pytest.mark.parametrize("takes_path", [True, False])
def test_continuous_evaluation_ends_by_a_predicate(make, takes_path):
    """It is asked before each evaluation, at first with None."""
    seen = []

    def with_path(eval_results, checkpoint_path):
        seen.append((eval_results and eval_results["global_step"],
                     checkpoint_path and os.path.basename(checkpoint_path)))
        return eval_results is None

    def without(eval_results):
        return with_path(eval_results, None)

    experiment = make(train_steps=None)
    experiment.estimator.train(input_fn, steps=2)
    experiment.continuous_eval(continuous_eval_predicate_fn=with_path if takes_path else without)
    assert seen == [(None, None), (2, "model.ckpt-2" if takes_path else None)]


def test_a_test_is_one_step(make):
    """Of training and of evaluation, and an export."""
    experiment = make(export_strategies=learn_experiment.make_export_strategy(serving_fn))
    assert run(experiment, "test")["global_step"] == 1
    assert os.listdir(os.path.join(experiment.estimator.model_dir, "export", "Servo"))


def test_a_training_that_is_over_is_evaluated_again(make):
    """A script that is run a second time prints the same metrics."""
    first, _ = run(make(), None)
    again, exports = run(make(), "train_and_evaluate")
    assert again == first and exports == []


def test_an_evaluation_waits_for_the_first_checkpoint(make):
    """As long as it was told to; it has a name and hooks."""
    class Counter(tf.train.SessionRunHook):
        runs = 0

        def before_run(self, run_context):
            self.runs += 1

    counter = Counter()
    experiment = make(eval_hooks=[counter])
    timer = threading.Timer(1.0, make().train)
    timer.start()
    assert experiment.evaluate(delay_secs=DEADLINE_SECS, name="late")["global_step"] in range(5)
    timer.join(DEADLINE_SECS)
    assert counter.runs and os.path.isdir(os.path.join(experiment.estimator.model_dir, "eval_late"))


def test_a_schedule_that_is_none(make):
    """The error names those that there are."""
    with pytest.raises(ValueError, match=r"schedule is 'traine'; allowed: .*continuous_eval, .*train, "):
        run(make(), "traine")


def test_an_experiment_is_made_by_the_name_of_its_folder(tmp_path):
    """`functools.partial` may have given the arguments before it."""
    def experiment_fn(hparams, output_dir):
        return learn_experiment.Experiment(learn.LearnEstimator(model_fn, output_dir), input_fn, train_steps=hparams)

    made = learn_experiment.run_experiment(
        functools.partial(experiment_fn, hparams=1), str(tmp_path), "reset_export_strategies")
    assert made == []


def test_hooks_and_listeners_of_the_training(make):
    """Those that are added later, too."""
    seen = []

    class Hook(tf.train.SessionRunHook):
        def begin(self):
            seen.append("hook")

    class Listener(tf.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            seen.append("listener")

    experiment = make(saving_listeners=[Listener()])
    experiment.extend_train_hooks([Hook()])
    experiment.train()
    assert seen[0] == "hook" and "listener" in seen
    assert (experiment.train_steps, experiment.eval_steps, experiment.eval_metrics) == (4, 1, None)


@pytest.mark.parametrize("others", [{}, {"metrics": None}, {"config": None}])
def test_an_export_of_the_scripts_own_calls_the_model(make, others):
    """Issue: contrib.learn took neither metrics nor options there, as they may be left out."""
    with tf.Graph().as_default():
        made = make().estimator._call_model_fn(
            {"x": tf.constant([1.0])}, None, learn.LearnModeKeys.INFER, **others)
    assert [*made.predictions] == ["value"]
