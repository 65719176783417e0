"""What `ps_train tune` tries, and what it recommends, with trials that only have numbers."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import types

import pytest

from ps_train.config.launch import parse_launch
from ps_train.errors import ClusterLostError, UserCodeError
from ps_train.launch import preparation
from ps_train.parts.tune import trial, tuning
from ps_train.parts.tune.flags import MetricBound, parse_metric_bound, parse_tune
from ps_train.parts.tune.trial import Runner
from ps_train.parts.tune.tuning import Tuning, ladders_of
from tests.errors import raises

FLAGS = ["--model=tests.plugins.tiny", "--dataset=tests.plugins.tiny", "--num_ps=1", "--num_workers=2"]


@pytest.fixture
def tuned(monkeypatch, capsys):
    """A function that tunes with these speeds and metrics, and returns what was printed."""
    def tune(*flags, rate=lambda choice: 100.0 * choice.communication_period, metrics=lambda choice: {}):
        monkeypatch.setattr(Runner, "rate", lambda runner, choice, secs: rate(choice))
        monkeypatch.setattr(Runner, "metrics", lambda runner, choice, num_batches, seed: metrics(choice))
        Tuning(parse_tune([*FLAGS, *flags]), [], "").run()
        return capsys.readouterr().out
    return tune


def test_the_command_has_the_flags_of_the_user_and_the_choice(tuned):
    """It is one of `launch`, with the train_dir that trials do not use."""
    out = tuned("--max_period=16", "--train_dir=/runs/a b", "--learning_rate=0.1", "--train_steps=50")
    assert "Fastest: num_ps=1, num_workers=2, steps_per_execution=1, communication_period=16" in out
    words = shlex.split(out.splitlines()[-1])
    task, launch = parse_launch(words[words.index("launch") + 1:])
    assert (task.communication_period, task.train_dir, task.learning_rate, task.train_steps) == (
        16, "/runs/a b", 0.1, 50)
    assert (launch.num_ps, launch.num_workers) == (1, 2)


def test_a_trial_neither_evaluates_meanwhile_nor_exports():
    """Issue: a server that watches the user's folder took the model of a trial."""
    config = parse_tune([*FLAGS, "--export_dir=/served", "--exporters=latest", "--eval_steps=100",
                         "--early_stopping=loss:3", "--keep_best=loss", "--eval_timeout_secs=70"])
    choice, _ = ladders_of(config, num_cores=2)
    runner = Runner(config.task, config.launch, [], "")
    task, _ = parse_launch(runner.words(choice, {}, without=trial.LEFT_OUT))
    assert not (task.export_dir or task.exporters or task.eval_steps or task.early_stopping or task.keep_best)
    assert task.eval_timeout_secs == 70
    kept, _ = parse_launch(runner.words(choice, {}))
    assert (kept.export_dir, kept.early_stopping, kept.eval_steps) == ("/served", "loss:3", 100)


def test_a_trial_has_no_delta_no_end_and_no_callback_of_the_user(monkeypatch):
    """Deltas need saves, which a trial has not; epochs and callbacks would end it, and a callback may report to others.

    The command that is recommended keeps them.
    """
    given = ["--save_delta_secs=30", "--save_model_secs=600", "--callbacks=watch:make", "--num_epochs=2",
             "--dynamic_sharding"]
    config = parse_tune([*FLAGS, *given])
    choice, _ = ladders_of(config, num_cores=2)
    runner, made = Runner(config.task, config.launch, [], ""), []
    monkeypatch.setattr(trial, "_Trial", lambda words, _: made.append(words) or contextlib.nullcontext())
    with runner._training(choice, train_steps=5):
        pass
    task, _ = parse_launch(made[0])
    assert (task.save_delta_secs, task.num_epochs, task.callbacks) == (0, None, "none")
    kept, _ = parse_launch(runner.words(choice, {}))
    assert (kept.save_delta_secs, kept.num_epochs, kept.callbacks) == (30, 2, "watch:make")


def test_a_trial_replaces_what_only_costs_time():
    """It saves nothing in the user's folder, and has the user's other flags."""
    config = parse_tune([*FLAGS, "--train_dir=/runs/a", "--batch_size=7", "--sync_replicas"])
    choice, _ = ladders_of(config, num_cores=2)
    words = Runner(config.task, config.launch, [], "").words(choice, {"train_dir": "/tmp/x"}, without=["train_dir"])
    task, launch = parse_launch(words)
    assert (task.train_dir, task.batch_size, task.sync_replicas, launch.num_ps) == ("/tmp/x", 7, True, 1)


@pytest.mark.parametrize(("flags", "name", "values"), [
    ([], "communication_period", [1]), (["--max_period=16"], "communication_period", [1, 4, 16]),
    (["--max_period=64", "--staleness_bound=5"], "communication_period", [1, 4]),
    (["--communication_period=8"], "communication_period", [8]),
    (["--staleness_bound=5"], "steps_per_execution", [1, 4]), (["--sync_replicas"], "steps_per_execution", [1]),
    ([], "wire_dtype", ["as_is"]), (["--metric_bound=loss:0.1"], "wire_dtype", ["as_is", "bfloat16"]),
    ([], "num_workers", [2]), ([], "num_ps", [1]),
], ids=str)
def test_a_setting_is_tried_within_the_bounds(flags, name, values):
    """Without a bound that allows more, single steps stay single steps, and float32 stays float32."""
    assert list(ladders_of(parse_tune([*FLAGS, *flags]), num_cores=2)[1][name]) == values


def test_numbers_of_tasks_follow_the_cores():
    """The first trial has a worker for each core, but in sync, where their number is part of the batch size."""
    first, ladders = ladders_of(parse_tune(FLAGS[:2]), num_cores=6)
    assert (first.num_workers, ladders["num_workers"], ladders["num_ps"]) == (4, [1, 2, 4, 8], [1, 2, 4])
    first, ladders = ladders_of(parse_tune([*FLAGS[:2], "--sync_replicas"]), num_cores=6)
    assert (first.num_workers, ladders["num_workers"]) == (2, [2])


def test_the_metric_decides_between_the_fast_ones(tuned):
    """The fastest choice whose metric is at most so much worse than that of single steps, or these."""
    def metrics(choice):
        return {"auc": 0.8 - 0.01 * choice.communication_period, "loss": 1.0}

    flags = ["--max_period=64", "--steps_per_execution=1", "--wire_dtype=as_is"]
    assert "communication_period=4" in tuned(*flags, "--metric_bound=auc:0.04", metrics=metrics).splitlines()[-2]
    assert "communication_period=64" in tuned(*flags, "--metric_bound=auc:1", metrics=metrics).splitlines()[-2]
    assert "communication_period=1," in tuned(*flags, "--metric_bound=auc:0", metrics=metrics).splitlines()[-2]


def test_a_metric_that_the_model_does_not_have_is_named(tuned):
    """With those that it has, and before the trials, which take minutes."""
    measured = []
    with raises("metric_unknown") as caught:
        tuned("--max_period=4", "--metric_bound=auc:0.1", rate=lambda choice: measured.append(choice) or 1.0,
              metrics=lambda choice: {"loss": 1.0, "error": 2.0})
    assert "it has error, loss" in str(caught.value)
    assert len(measured) == 1  # how fast the model is about


def test_the_time_for_the_metric_of_the_first_choice_is_not_that_of_the_trials(tuned, monkeypatch):
    """Otherwise a long one would leave time for the first trial only."""
    now_secs = [0.0]

    def metrics(choice):
        now_secs[0] += 1e6
        return {"auc": 0.8}

    monkeypatch.setattr(tuning, "time", types.SimpleNamespace(monotonic=lambda: now_secs[0]))
    assert "communication_period=4" in tuned("--max_period=4", "--metric_bound=auc:0.1", metrics=metrics)


def test_a_choice_whose_training_for_the_metric_fails_is_a_line(tuned):
    """Many local steps may diverge: the next choice is looked at. Without a metric of the first, none can be."""
    def metrics(choice, worst=64):
        if choice.communication_period == worst:
            raise UserCodeError("loss_not_finite", "step 130: the loss is nan")
        return {"auc": 0.8}

    flags = ["--max_period=64", "--steps_per_execution=1", "--wire_dtype=as_is", "--metric_bound=auc:0.1"]
    out = tuned(*flags, metrics=metrics)
    assert "cannot be used: step 130: the loss is nan [loss_not_finite]" in out
    assert "communication_period=16" in out.splitlines()[-2]
    with raises("loss_not_finite"):
        tuned(*flags, metrics=lambda choice: metrics(choice, worst=1))


def test_a_signal_ends_the_trainings_for_the_metric(monkeypatch):
    """It is not a choice that cannot be used."""
    signals = []

    def metrics(runner, choice, num_batches, seed):
        if choice.communication_period > 1:
            signals.append(signal.SIGTERM)
            raise preparation.stopped(signal.SIGTERM)
        return {"auc": 0.8}

    monkeypatch.setattr(Runner, "rate", lambda runner, choice, secs: 100.0 * choice.communication_period)
    monkeypatch.setattr(Runner, "metrics", metrics)
    with raises("stopped_by_signal"):
        Tuning(parse_tune([*FLAGS, "--max_period=16", "--metric_bound=auc:0.1"]), signals, "").run()


@pytest.mark.parametrize(("text", "value", "reference", "is_permitted"), [
    ("auc:0.01", 0.795, 0.8, True), ("auc:0.01", 0.78, 0.8, False), ("auc:0.01", 0.9, 0.8, True),
    ("loss:0.1", 0.45, 0.4, True), ("loss:0.1", 0.6, 0.4, False), ("loss:0.1", 0.1, 0.4, True),
    ("score:min:1", 5.5, 5.0, True), ("auc:0.01", float("nan"), 0.8, False)])
def test_worse_is_less_or_more_by_the_kind_of_metric(text, value, reference, is_permitted):
    """As with --keep_best."""
    bound = parse_metric_bound("--metric_bound", text)
    assert isinstance(bound, MetricBound) and bound.permits(value, reference) == is_permitted


@pytest.mark.parametrize("text", ["auc", "auc:x", "auc:-1", ":0.1", "auc:up:0.1", "auc:nan"])
def test_a_malformed_bound_is_refused(text):
    """Also a tolerance below zero."""
    with raises("flag_malformed"):
        parse_tune([*FLAGS, f"--metric_bound={text}"])


@pytest.mark.parametrize("flag", ["--hosts=a,b", "--elastic", "--tmux", "--job_name=ps", "--ps_hosts=a:1"])
def test_a_flag_that_a_trial_cannot_have_is_refused(flag):
    """With the reason."""
    with raises("flag_of_another_verb"):
        parse_tune([*FLAGS[:2], flag])


def test_a_choice_that_fails_is_a_line(tuned):
    """If the first one fails, there is nothing to compare with, and its error ends the verb."""
    def rate(choice):
        if choice.communication_period > 1:
            raise UserCodeError("train_op_unsupported", "the model cannot do that")
        return 5.0

    out = tuned("--max_period=4", rate=rate)
    assert "cannot be used: the model cannot do that [train_op_unsupported]" in out
    assert "communication_period=1," in out.splitlines()[-2]

    def no_rate(choice):
        raise ClusterLostError("timed_out", "worker:0 took no step within 180 s")

    with raises("timed_out"):
        tuned(rate=no_rate)


def test_a_repeat_that_fails_loses_no_trial(tuned):
    """Not even one of the first choice, whose other rates count."""
    rates = iter([100.0, 100.0])  # the first look at how fast the model is, and the first trial

    def rate(choice):
        if choice.communication_period > 1:
            return 300.0
        if value := next(rates, None):
            return value
        raise ClusterLostError("timed_out", "worker:0 took no step within 180 s")

    out = tuned("--max_period=4", "--steps_per_execution=1", rate=rate)
    assert "cannot be used: worker:0 took no step within 180 s [timed_out]" in out
    assert "communication_period=4, wire_dtype=as_is: 300.0 mini-batches/s, 3.00 times" in out


def test_json_is_one_object(tuned):
    """With the trials, the choice and the words of the command."""
    answer = json.loads(tuned("--max_period=4", "--json"))
    assert answer["chosen"]["communication_period"] == 4 and answer["ratio_to_first"] == 4.0
    assert answer["command"][0] == "launch" and "--communication_period=4" in answer["command"]
    assert {trial["communication_period"] for trial in answer["trials"]} == {1, 4}
