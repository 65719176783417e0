"""Hooks and scaffold of a model, in training and in evaluation."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

import ps_train
from ps_train.coordination.state import State
from ps_train.graph import optimizers
from ps_train.graph import plugin_calls as hooks
from ps_train.plugins import contracts
from ps_train.training import evaluation, replica_graph
from ps_train.training.reporting import End
from ps_train.updates import update
from ps_train.updates.update import Period
from tests import bare_training, clusters
from tests.errors import raises
from tests.tensorflow_mode import tf


class Recording(tf.train.SessionRunHook):
    """Notes each call, fetches a tensor, feeds a placeholder, and asks for the end after some steps."""

    def __init__(self, fetch=None, feed=None, num_steps=1000):
        self.fetch, self.feed, self.num_steps = fetch, feed, num_steps
        self.calls, self.fetched = [], []

    def begin(self):
        self.calls.append("begin")

    def after_create_session(self, session, coord):
        self.calls.append("session")

    def before_run(self, run_context):
        assert run_context.original_args.fetches
        return tf.train.SessionRunArgs(self.fetch, feed_dict=self.feed)

    def after_run(self, run_context, run_values):
        self.fetched.append(run_values.results)
        if len(self.fetched) == self.num_steps:
            run_context.request_stop()

    def end(self, session):
        self.calls.append("end")


def model_with(make_spec):
    """Returns a linear model whose spec has what `make_spec(loss, rate)` gives; `rate` is a placeholder."""
    def model_fn(features, labels, mode, params):
        weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
        rate = tf.placeholder_with_default(0.0, [])
        loss = rate * tf.reduce_mean(tf.linalg.matvec(features, tf.convert_to_tensor(weights)) - labels)
        return ps_train.ModelSpec(loss=loss, **make_spec(loss, rate, weights))

    return contracts.Model("hooked", model_fn, {})


def test_a_hook_sees_each_step_and_can_end_training(tmp_path, start_servers):
    """It is called as in a MonitoredTrainingSession; what it feeds reaches the model."""
    made = []

    def spec(loss, rate, weights):
        made.append(Recording(loss, {rate: 1.0}, num_steps=5))
        return {"training_hooks": [made[0]], "training_chief_hooks": [Recording()]}

    chief = clusters.Worker(start_servers(1, 1), 0, tmp_path, 100, model=model_with(spec))
    chief.start()
    chief.join(60)
    # Issue: a worker that came then found "running", and took steps that no checkpoint has.
    assert (chief.board.state(), chief.board.end_reason()) == (State.STOPPING, "a hook of the model asked for it")
    outcome = chief.result()
    assert (outcome.end, outcome.global_step) == (End.HOOK, 5)
    assert made[0].calls == ["begin", "session", "end"]
    assert len(made[0].fetched) == 5 and all(np.isfinite(made[0].fetched))
    assert np.any(clusters.read_checkpoint(tmp_path)["weights"])


def constant():
    """Returns a rate of which each ps gets a copy of its own."""
    return tf.constant(0.5)


def with_default():
    """Returns the placeholder of a rate."""
    return tf.placeholder_with_default(0.5, [])


def decayed():
    """Returns a rate that each step computes."""
    return 0.5 / (1 + tf.cast(tf.train.get_global_step().read_value(), tf.float32))


def rated(make_rate, feed_key=lambda rate: rate):
    """Returns a linear model with an optimizer of its own, and a hook that feeds its rate as 0."""
    def model_fn(features, labels, mode, params):
        weights, rate = tf.get_variable("weights", [4], initializer=tf.zeros_initializer()), make_rate()
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights) - labels))
        train_op = tf.train.GradientDescentOptimizer(rate).minimize(loss, tf.train.get_global_step())
        return ps_train.ModelSpec(loss=loss, train_op=train_op,
                                  training_hooks=[Recording(None, {feed_key(rate): 0.0})])

    return contracts.Model("rated", model_fn, {})


@pytest.mark.parametrize("feed_key", [lambda rate: rate, lambda rate: rate.name], ids=["tensor", "name"])
@pytest.mark.parametrize(("make_rate", "num_steps"), [
    (constant, 1), (with_default, 1), (decayed, 1), (constant, 3), (with_default, 3)])
def test_what_a_hook_feeds_reaches_the_optimizer_in_each_step(start_servers, make_rate, num_steps, feed_key):
    """With a rate of 0 the weights stay as they are."""
    training = bare_training.BareTraining(
        start_servers(2, 1), model=rated(make_rate, feed_key), steps_per_execution=num_steps)
    graph, session = training.graph, training.session
    graph.hooks.around(session).run([graph.steps.unrolled.progress])
    step, weights = session.run([graph.global_step, next(
        variable for variable in graph.savers.variables if variable.op.name == "weights")])
    assert step == num_steps and not weights.any()


@pytest.mark.parametrize(("make_rate", "options"), [
    (constant, {"gradients": 1}), (with_default, {"gradients": 1}), (decayed, {"steps_per_execution": 3}),
    (with_default, {"gradients": 1, "sync_engine": "tensorflow"})], ids=str)
def test_what_a_hook_feeds_in_vain_is_refused(make_rate, options):
    """The update of all workers runs without it, or only the first of several steps would have it."""
    built = clusters.build_graph(clusters.GraphCluster(1, 1), 0, model=rated(make_rate), **options)
    with tf.Session(graph=built.graph) as session, raises("feed_not_used"):
        built.hooks.around(session).run([built.steps.unrolled.progress])


def test_a_placeholder_that_a_synchronous_update_needs_is_refused():
    """No worker could feed it."""
    with raises("feed_not_used"):
        clusters.build_graph(clusters.GraphCluster(1, 1), 0, gradients=1,
                             model=rated(lambda: tf.placeholder(tf.float32, [])))


def test_a_hook_that_needs_a_batch_at_the_end_of_the_data_costs_no_step(tmp_path, start_servers, caplog):
    """As LoggingTensorHook(at_end=True). Issue: training ended with OutOfRangeError, and without a checkpoint."""
    def spec(loss, rate, weights):
        return {"training_hooks": [tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=5, at_end=True)]}

    dataset = clusters.array_dataset(*clusters.linear_data(), repeat=False)
    (outcome,) = clusters.train_together(start_servers(1, 1), tmp_path, 100, 1, model=model_with(spec), dataset=dataset)
    assert (outcome.end, outcome.global_step) == (End.DATA, 8)
    assert clusters.read_checkpoint(tmp_path)["global_step"] == 8
    assert "LoggingTensorHook needs a mini-batch at the end" in caplog.text


def test_what_was_trained_is_saved_though_a_hook_fails_at_the_end(tmp_path, start_servers):
    """As in TensorFlow 1, where the hook that saves comes before the others."""
    class Failing(tf.train.SessionRunHook):
        def end(self, session):
            raise ValueError("of the hook")

    model = model_with(lambda loss, rate, weights: {"training_hooks": [Failing()]})
    with pytest.raises(ValueError, match="of the hook"):
        clusters.train_together(start_servers(1, 1), tmp_path, 6, 1, model=model)
    assert clusters.read_checkpoint(tmp_path)["global_step"] == 6


@pytest.mark.parametrize("options", [{}, {"period": Period(3)}])
def test_each_call_of_a_plugin_has_its_own_params(options):
    """As under Estimator. Issue: with local steps model_fn was called again, and divided its learning rate again."""
    seen, params = [], {"rate": 1.0, "units": 4, "batch_size": 8, "seed": 7}

    def change(params):
        params["rate"] *= 0.1
        params.pop("units")
        seen.append(params["rate"])
        return params["rate"]

    def model_fn(features, labels, mode, params):
        weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
        change(params)
        return ps_train.ModelSpec(loss=tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights) - labels)))

    def input_fn(mode, params, shard):
        change(params)
        return ps_train.from_arrays(clusters.linear_data(), params["batch_size"], seed=7, repeat=True)

    model = contracts.Model("changing", model_fn, {})
    clusters.build_graph(clusters.GraphCluster(1, 1), 0, model=model, params=params,
                         dataset=contracts.Dataset("changing", input_fn, lambda params: None, {}),
                         **options)
    settings = replica_graph._with_make_optimizer(
        update.UpdateSettings(optimizers.OptimizerPlan("sgd", 0.1)),
        dataclasses.replace(model, make_optimizer=lambda params, global_step: change(params)), params)
    settings.plan.make_model_optimizer(None)
    assert seen == [0.1] * (4 if options else 3)
    assert params == {"rate": 1.0, "units": 4, "batch_size": 8, "seed": 7}


def test_the_chiefs_hooks_run_on_the_chief_alone(start_servers):
    """The others do not even begin them."""
    of_chief = Recording()
    model = model_with(lambda loss, rate, weights: {"training_chief_hooks": [of_chief]})
    clusters.build_graph(start_servers(1, 2), 1, model=model)
    assert of_chief.calls == []
    clusters.build_graph(start_servers(1, 2), 0, model=model)
    assert of_chief.calls == ["begin"]


class Counting(tf.train.SessionRunHook):
    """Counts the steps in a variable on a ps."""

    def begin(self):
        steps = tf.get_variable("steps", [], tf.int64, initializer=tf.zeros_initializer(), trainable=False)
        tf.summary.scalar("counted", steps.read_value())
        self.count_op = steps.assign_add(1)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.count_op)


@pytest.mark.parametrize("field, num_counting", [("training_hooks", 2), ("training_chief_hooks", 1)])
def test_what_a_hook_counts_goes_on_in_the_next_run(tmp_path, start_servers, field, num_counting):
    """Its variable is in checkpoints, and its summary among the others, even if only the chief has the hook."""
    model = model_with(lambda loss, rate, weights: {field: [Counting()]})
    outcomes = []
    for train_steps in (3, 6):
        outcomes += clusters.train_together(start_servers(1, 2), tmp_path, train_steps, 2, model=model)[:num_counting]
    assert clusters.read_checkpoint(tmp_path)["steps"] == sum(outcome.local_steps for outcome in outcomes)


def test_what_the_chiefs_hook_makes_is_not_asked_of_the_other_workers(tmp_path):
    """It is in no fingerprint, but a checkpoint without it is refused."""
    built = clusters.build_graph(clusters.GraphCluster(1, 1), 0, model=model_with(
        lambda loss, rate, weights: {"training_chief_hooks": [Counting()]}))
    assert [variable.op.name for variable in built.savers.variables] == ["global_step", "weights"]
    assert b"counted" in [tf.get_static_value(summary.op.inputs[0]) for summary in built.summary_op.op.inputs]
    with tf.Graph().as_default(), tf.Session() as session:
        saved = [tf.train.create_global_step(), tf.get_variable("weights", [4])]
        session.run([variable.initializer for variable in saved])
        path = tf.train.Saver(saved).save(session, str(tmp_path / "model.ckpt"), 7)
    with raises("checkpoint_of_another_model"):
        built.check_origin(path)


def test_a_scaffold_initialises_new_parameters(tmp_path, start_servers):
    """`init_fn` runs on new parameters, and not on those of a checkpoint; `local_init_op` in each session."""
    runs = []

    def spec(loss, rate, weights):
        flag = tf.get_variable("flag", [], tf.int64, collections=[tf.GraphKeys.LOCAL_VARIABLES])
        loading = tf.placeholder(tf.float32, [4])
        load = weights.assign(loading)

        def init_fn(scaffold, session):
            runs.append(scaffold)
            session.run(load, {loading: [1.0, 2.0, 3.0, 4.0]})

        return {"scaffold": tf.train.Scaffold(init_fn=init_fn, local_init_op=flag.assign(1)),
                "training_hooks": [tf.train.StopAtStepHook(last_step=3)]}

    for _ in range(2):
        clusters.train_together(start_servers(1, 1), tmp_path, 3, 1, model=model_with(spec))
    np.testing.assert_array_equal(clusters.read_checkpoint(tmp_path)["weights"], [1.0, 2.0, 3.0, 4.0])
    assert len(runs) == 1


class Reading(tf.train.SessionRunHook):
    """Notes a value in each step."""

    def __init__(self, value):
        self.value, self.seen = value, []

    def before_run(self, context):
        return tf.train.SessionRunArgs(self.value)

    def after_run(self, context, values):
        self.seen.append(values.results)


def test_a_local_init_op_runs_in_the_session_that_trains(tmp_path, start_servers):
    """The chief prepares parameters in another one, in which an iterator without a shared_name is another, too."""
    hooks = []

    def spec(loss, rate, weights):
        iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(100))
        hooks.append(Reading(iterator.get_next()))
        return {"scaffold": tf.train.Scaffold(local_init_op=iterator.initializer), "training_hooks": hooks[-1:]}

    for _ in range(2):
        clusters.train_together(start_servers(1, 1), tmp_path, 3 * (len(hooks) + 1), 1, model=model_with(spec))
    assert [hook.seen for hook in hooks] == [[0, 1, 2], [0, 1, 2]]


def test_an_evaluation_runs_its_hooks_and_restores_with_its_saver(tmp_path):
    """A moving average takes the place of a variable; metrics that are not numbers are left out."""
    with tf.Graph().as_default(), tf.Session() as session:
        saved = [tf.get_variable("average", initializer=np.full(4, 2.0, np.float32)), tf.train.create_global_step(),
                 tf.get_variable("weights", initializer=np.ones(4, np.float32))]
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver(saved).save(session, str(tmp_path / "model.ckpt"), 7)
    made = []

    def spec(loss, rate, weights):
        made.append(Recording(weights))
        saver = tf.train.Saver({"average": weights, "global_step": tf.train.get_global_step()})
        metrics = {"first": (weights[0], tf.no_op()), "all": (tf.identity(weights), tf.no_op())}
        return {"evaluation_hooks": made, "scaffold": tf.train.Scaffold(saver=saver), "eval_metric_ops": metrics}

    params = clusters.EVAL_PARAMS
    evaluator = evaluation.Evaluator(
        model_with(spec), params, clusters.array_dataset(*clusters.linear_data()), params)
    assert evaluator.evaluate(path).metrics == {"first": 2.0}
    assert made[0].calls == ["begin", "session", "end"]
    np.testing.assert_array_equal(made[0].fetched, np.full([3, 4], 2.0))


def test_hooks_that_ps_train_replaces_are_left_out(tmp_path, caplog, monkeypatch):
    """It saves by itself; in rounds, what only reports the tensors of a step has nothing to report."""
    caplog.set_level(logging.INFO, "ps_train")
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    saves = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    reports, stops = tf.train.LoggingTensorHook(["x"], every_n_iter=1), tf.train.StopAtStepHook(last_step=1)
    assert hooks.usable([saves, reports, stops]) == [reports, stops]
    assert "CheckpointSaverHook is not used: ps_train saves" in caplog.text
    assert hooks.usable([saves, reports, stops], is_in_rounds=True) == [stops]
    assert "the model's LoggingTensorHook is not used" in caplog.text


@pytest.mark.parametrize("spec, chosen, code", [
    (lambda loss, rate, weights: {"training_hooks": [Recording()]}, {"period": Period(5)},
     "hook_needs_each_step"),
    (lambda loss, rate, weights: {"scaffold": tf.train.Scaffold(init_op=tf.no_op())}, {},
     "scaffold_unsupported")], ids=["hook in rounds", "init_op"])
def test_what_cannot_run_is_refused(start_servers, spec, chosen, code):
    """In one line, with what to do."""
    with raises(code):
        clusters.build_graph(start_servers(1, 1), 0, model=model_with(spec), **chosen)
