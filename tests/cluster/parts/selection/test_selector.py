"""What follows from evaluations: the best checkpoint, early stopping, exports; and the signals of an evaluator."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os

import pytest

import ps_train
from ps_train import testing
from ps_train.coordination import blackboard
from ps_train.coordination.state import State
from ps_train.errors import UserCodeError
from ps_train.parts.inference import serving
from ps_train.parts.live.model import LiveModel
from ps_train.parts.selection.evaluations import EvaluationSignals, EvaluatorRole
from ps_train.parts.selection.flags import Target
from ps_train.parts.selection.record import MetricStanding
from ps_train.parts.selection.selector import EvalTimer, SelectionSettings, Selector
from ps_train.plugins.contracts import Model
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints
from ps_train.tasks.setup import LoadedPlugins
from tests import clusters
from tests.clusters import EVAL_PARAMS, save_linear
from tests.errors import raises
from tests.tensorflow_mode import tf

_LOSS = Target("loss", False)


def _model_fn(features, labels, mode, params):
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    return ps_train.ModelSpec(predictions=tf.linalg.matvec(features, weights))


def _plugins():
    return LoadedPlugins(Model("linear", _model_fn, {}), EVAL_PARAMS, clusters.array_dataset(*clusters.linear_data()),
                         EVAL_PARAMS)


def _evaluation(step, loss):
    return Evaluation(step, 10, "loss", 10 * loss, {"error": loss})


def test_the_best_checkpoint_is_kept_and_exported(tmp_path):
    """Beside its record; a worse one changes nothing, and each checkpoint is exported as the latest and as live."""
    (tmp_path / "training.json").write_text("{}")
    settings = SelectionSettings(keep_best=_LOSS, export_dir=str(tmp_path / "out"),
                                 exporters=("best", "latest", "live"))
    selector = Selector(settings, str(tmp_path), _plugins())
    for step, loss in ((5, 3.0), (10, 1.0), (15, 2.0)):
        selector.consider(_evaluation(step, loss), save_linear(tmp_path, step))
    best = tmp_path / "best"
    assert checkpoints.paths(str(best)) == [str(best / "model.ckpt-10")]
    assert checkpoints.newest_sound(str(best)) == str(best / "model.ckpt-10")
    assert (best / "training.json").exists()
    assert {name: sorted(os.listdir(tmp_path / "out" / name)) for name in ("best", "latest", "live")} == {
        "best": ["10", "5"], "latest": ["10", "15", "5"], "live": ["10", "15", "5"]}
    with LiveModel(str(tmp_path / "out/live/15")) as model:
        assert (model.status()["step"], model.status()["number"]) == (15, 0)


def test_a_checkpoint_that_was_removed_is_not_the_best(tmp_path):
    """A later one with that value still counts as better."""
    selector = Selector(SelectionSettings(keep_best=_LOSS), str(tmp_path), _plugins())
    selector.consider(_evaluation(5, 1.0), str(tmp_path / "model.ckpt-5"))
    selector.consider(_evaluation(10, 1.0), save_linear(tmp_path, 10))
    assert checkpoints.paths(str(tmp_path / "best")) == [str(tmp_path / "best/model.ckpt-10")]


def test_a_checkpoint_that_was_removed_is_not_exported(tmp_path, caplog):
    """Training removes old ones meanwhile: a warning, and the evaluations go on."""
    settings = SelectionSettings(export_dir=str(tmp_path / "out"), exporters=("latest",))
    Selector(settings, str(tmp_path), _plugins()).consider(_evaluation(5, 1.0), str(tmp_path / "model.ckpt-5"))
    assert "model.ckpt-5" in caplog.text and not (tmp_path / "out").exists()


def test_an_export_of_an_older_training_is_replaced(tmp_path, caplog):
    """The export of this checkpoint stays as it is. A swap leaves no other folder."""
    settings = SelectionSettings(export_dir=str(tmp_path / "out"), exporters=("final",))
    selector, file = Selector(settings, str(tmp_path), _plugins()), tmp_path / "out/final/5/saved_model.pb"
    path = save_linear(tmp_path, 5)
    selector.export("final", path)
    exported = file.read_bytes()
    file.write_text("served")
    selector.export("final", path)
    assert file.read_text() == "served"
    caplog.clear()
    with caplog.at_level(logging.INFO, "ps_train.parts.selection.selector"):
        os.utime(file, (0, 0))
        selector.export("final", path)
    assert file.read_bytes() == exported
    assert os.listdir(tmp_path / "out/final") == ["5"]
    [message] = [record.getMessage() for record in caplog.records if record.name.endswith("selector")]
    assert f"exported {path} to {tmp_path}/out/final/5" in message and "older model" in message


def test_the_models_written_last_stay_whatever_another_training_has_left(tmp_path, caplog):
    """Five of them. Issue: those of yesterday had higher numbers, so each new one was removed at once."""
    settings = SelectionSettings(export_dir=str(tmp_path / "out"), exporters=("latest",))
    for number, step in enumerate((5000, 6000, 7000, 8000, 9000)):
        file = tmp_path / f"out/latest/{step}/saved_model.pb"
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (number, number))
    selector = Selector(settings, str(tmp_path), _plugins())
    for step in (5, 10):
        selector.consider(_evaluation(step, 1.0), save_linear(tmp_path, step))
    assert sorted(map(int, os.listdir(tmp_path / "out/latest"))) == [5, 10, 7000, 8000, 9000]
    assert "latest has 9000, of another training" in caplog.text


def test_an_older_export_stays_until_the_new_one_is_complete(tmp_path, monkeypatch):
    """A server never sees a half of a model."""
    settings = SelectionSettings(export_dir=str(tmp_path / "out"), exporters=("latest",))
    file = tmp_path / "out/latest/5/saved_model.pb"
    file.parent.mkdir(parents=True)
    file.write_text("older")
    os.utime(file, (0, 0))
    seen = []

    def fail(*_):
        seen.append(file.read_text())
        raise OSError("full")

    monkeypatch.setattr(serving.ServedGraph, "write", fail)
    Selector(settings, str(tmp_path), _plugins()).consider(_evaluation(5, 1.0), save_linear(tmp_path, 5))
    assert seen == ["older"] and file.read_text() == "older"


def test_training_stops_after_the_patience_also_after_a_restart(tmp_path):
    """A second evaluation of the same step does not count."""
    settings = SelectionSettings(stopping=_LOSS, patience=2)
    for step, loss in ((5, 1.0), (10, 1.5), (10, 1.5)):
        Selector(settings, str(tmp_path), _plugins()).consider(_evaluation(step, loss), "")
    assert Selector(settings, str(tmp_path), _plugins()).should_stop() == ""
    Selector(settings, str(tmp_path), _plugins()).consider(_evaluation(15, 1.0), "")
    reason = Selector(settings, str(tmp_path), _plugins()).should_stop()
    assert "1 at step 5" in reason and "2 evaluations" in reason


def test_early_stopping_keeps_the_best_and_says_where_and_how_to_go_on(tmp_path):
    """A continuation with --keep_best has the same best, and none of its worse checkpoints takes its place."""
    settings = SelectionSettings(stopping=_LOSS, patience=2, export_dir=str(tmp_path / "out"), exporters=("best",))
    selector = Selector(settings, str(tmp_path), _plugins())
    assert selector.describe_best() == selector.describe_earlier_stop() == ""
    for step, loss in ((5, 1.0), (10, 1.5), (15, 2.0)):
        selector.consider(_evaluation(step, loss), save_linear(tmp_path, step))
    best = tmp_path / "best/model.ckpt-5"
    description = selector.describe_best()
    assert f"1 at step 5, kept as {best}" in description and os.listdir(tmp_path / "out/best") == ["5"]
    assert f"--train_dir={tmp_path} --checkpoint=best" in description
    assert "--early_stopping=loss:min:4" in selector.describe_earlier_stop()
    again = Selector(SelectionSettings(keep_best=_LOSS, stopping=_LOSS, patience=4), str(tmp_path), _plugins())
    assert again.describe_earlier_stop() == ""
    again.consider(_evaluation(20, 1.2), save_linear(tmp_path, 20))
    assert again.describe_best() == description and checkpoints.paths(str(tmp_path / "best")) == [str(best)]
    record = json.loads((tmp_path / "selection.json").read_text())
    assert record["keep_best"] == record["early_stopping"] and record["keep_best"]["num_worse"] == 3


def test_a_record_that_cannot_be_read_for_a_moment_does_not_begin_anew(tmp_path, caplog):
    """The best stays where it is, and an evaluation of that time does not count."""
    settings = SelectionSettings(keep_best=_LOSS, stopping=_LOSS, patience=1)
    selector, record = Selector(settings, str(tmp_path), _plugins()), tmp_path / "selection.json"
    selector.consider(_evaluation(5, 1.0), save_linear(tmp_path, 5))
    record.rename(tmp_path / "away")
    record.mkdir()  # opens with an error, for root, too
    selector.consider(_evaluation(10, 2.0), save_linear(tmp_path, 10))
    assert selector.should_stop() == selector.describe_best() == selector.describe_earlier_stop() == ""
    assert [message for message in caplog.messages if "evaluations do not count" in message] == [
        f"cannot read {record}: Is a directory; evaluations do not count meanwhile"]
    record.rmdir()
    (tmp_path / "away").rename(record)
    assert checkpoints.paths(str(tmp_path / "best")) == [str(tmp_path / "best/model.ckpt-5")]
    selector.consider(_evaluation(15, 2.0), save_linear(tmp_path, 15))
    assert selector.describe_best().startswith("best loss: 1 at step 5") and "1 at step 5" in selector.should_stop()


def test_a_record_that_cannot_be_written_is_remembered(tmp_path):
    """By this process: otherwise a worse checkpoint would replace the best."""
    selector = Selector(SelectionSettings(keep_best=_LOSS), str(tmp_path), _plugins())
    (tmp_path / "selection.json.tmp").mkdir()
    for step, loss in ((5, 3.0), (10, 1.0), (15, 2.0)):
        selector.consider(_evaluation(step, loss), save_linear(tmp_path, step))
    assert checkpoints.paths(str(tmp_path / "best")) == [str(tmp_path / "best/model.ckpt-10")]
    (tmp_path / "selection.json.tmp").rmdir()
    selector.consider(_evaluation(20, 2.0), save_linear(tmp_path, 20))
    assert json.loads((tmp_path / "selection.json").read_text())["keep_best"] == dataclasses.asdict(
        MetricStanding("loss", False, 1.0, 10, 2, "best/model.ckpt-10"))


def test_the_best_of_another_metric_is_kept_where_both_flags_are_given(tmp_path):
    """That of --keep_best; each metric has its own count."""
    settings = SelectionSettings(keep_best=Target("error", True), stopping=_LOSS, patience=2)
    selector = Selector(settings, str(tmp_path), _plugins())
    for step, loss in ((5, 1.0), (10, 1.5)):
        selector.consider(_evaluation(step, loss), save_linear(tmp_path, step))
    assert selector.describe_best().startswith(f"best error: 1.5 at step 10, kept as {tmp_path}/best/model.ckpt-10; ")
    assert json.loads((tmp_path / "selection.json").read_text())["early_stopping"]["num_worse"] == 1


def test_the_last_evaluation_counts_only_beside_a_checkpoint(tmp_path):
    """An evaluator that starts before the chief waits for no step of a training that was removed."""
    selector = Selector(SelectionSettings(stopping=_LOSS, patience=2), str(tmp_path), _plugins())
    selector.consider(_evaluation(900, 1.0), "")
    assert selector.last_step() == -1
    save_linear(tmp_path, 500)
    assert selector.last_step() == 500
    save_linear(tmp_path, 900)
    assert selector.last_step() == 900


def test_a_training_whose_checkpoints_were_removed_is_not_ended_by_their_record(tmp_path):
    """It takes all its steps, and its own evaluations count."""
    (tmp_path / "selection.json").write_text(json.dumps(
        {"last_step": 10**6, "early_stopping": dataclasses.asdict(MetricStanding("loss", False, -1.0, 5, 10**6))}))
    result = testing.run_in_threads(
        "tests.plugins.served", "tests.plugins.served", train_dir=tmp_path, num_workers=1, train_steps=10,
        learning_rate=0.001, early_stopping="loss:3", log_steps=0, save_summaries_steps=0)
    record = json.loads((tmp_path / "selection.json").read_text())
    assert (result.outcomes[0].global_step, record["last_step"]) == (10, 10)
    assert record["early_stopping"]["value"] >= 0


def test_a_wrong_metric_is_one_line():
    """It lists the metrics."""
    selector = Selector(SelectionSettings(keep_best=Target("acc", True)), "", _plugins())
    with raises("no_such_metric") as caught:
        selector.check(["error"])
    assert "error, loss" in str(caught.value)


def test_a_metric_without_a_value_at_run_time_ends_no_training(tmp_path):
    """It may be a curve whose shape the graph does not say: such an evaluation is neither better nor worse."""
    selector = Selector(SelectionSettings(stopping=Target("curve", True), patience=1), str(tmp_path), _plugins())
    for step in (10, 20, 30):
        selector.consider(_evaluation(step, 0.1), save_linear(tmp_path, step))
    assert (selector.last_step(), selector.should_stop()) == (30, "")


_MUTE = Model("mute", lambda features, labels, mode, params: ps_train.ModelSpec(), {})


@pytest.mark.parametrize("model, message", [
    (_MUTE, "mute.model_fn returned no predictions"),
    (clusters.linear_model(), "linear.model_fn failed with the mode 'infer', in which labels are None: .*; ret")])
def test_a_model_that_does_not_predict_cannot_be_exported(model, message):
    """That shows before training."""
    plugins = _plugins()._replace(model=model)
    with pytest.raises(UserCodeError, match=message):
        Selector(SelectionSettings(export_dir="x", exporters=("final",)), "", plugins).check(())


def test_evaluations_have_a_period():
    """In steps from the last one; without a period each checkpoint is evaluated."""
    timer = EvalTimer(SelectionSettings(eval_steps=100), last_step=250)
    assert [timer.is_due(step) for step in (300, 349, 350)] == [False, False, True]
    timer.evaluated(360)
    assert [timer.is_due(step) for step in (450, 460)] == [False, True]
    assert EvalTimer(SelectionSettings()).is_due(1)
    assert not EvalTimer(SelectionSettings(eval_secs=1000.0)).is_due(10**9)


@pytest.mark.parametrize("period", [{"eval_steps": 100}, {"eval_secs": 1000.0}])
def test_the_checkpoints_of_a_new_training_in_the_folder_are_due(period):
    """An evaluator may outlive a training. Issue: none was, until the steps were those of the training before."""
    timer = EvalTimer(SelectionSettings(**period))
    timer.evaluated(5000)
    assert timer.is_due(10)
    timer.evaluated(10)
    assert [timer.is_due(step) for step in (11, 110)] == [False, "eval_steps" in period]


def test_an_evaluator_is_heard_and_ends_a_training_that_runs(tmp_path, start_servers):
    """It ends none that has not begun, and none that is over."""
    cluster = start_servers(1, 1)
    chief = blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))
    settings = SelectionSettings(stopping=_LOSS, patience=1)
    with contextlib.closing(chief), contextlib.closing(
            EvaluationSignals(cluster.view("worker", 0), 1000.0)) as signals:
        assert not signals.has_evaluator()
        role = EvaluatorRole(Selector(settings, str(tmp_path), _plugins()), signals)
        role.signal()
        assert signals.has_evaluator()
        role.evaluated(_evaluation(1, 1.0), "")
        role.evaluated(_evaluation(2, 1.0), "")
        states = []
        for state in (State.IDLE, State.RUNNING, State.DONE):
            chief.announce(state)
            role.signal()
            states.append(chief.state())
    assert states == [State.IDLE, State.STOPPING, State.DONE]


def test_an_evaluator_without_the_flags_of_the_chief_leaves_the_selection_to_it(start_servers, caplog):
    """Issue: nothing was kept, stopped or exported, and nothing said so. With other flags, the evaluator's count."""
    cluster = start_servers(1, 1)
    asked = SelectionSettings(keep_best=_LOSS, stopping=_LOSS, patience=2, export_dir="exports", exporters=("latest",))
    assert asked.selects == "--keep_best=loss:min, --early_stopping=loss:min:2, --exporters=latest"
    assert not SelectionSettings(eval_steps=9, export_dir="exports", exporters=("final",)).selects
    heard = {}
    with contextlib.ExitStack() as stack:
        signals = {selects: stack.enter_context(contextlib.closing(
            EvaluationSignals(cluster.view("worker", 0), 1000.0, selects)))
            for selects in ("", "--other=1", asked.selects)}
        for evaluator in signals:
            signals[evaluator].beat()
            heard[evaluator] = [signals[chief].has_evaluator() for chief in ("", asked.selects)]
    assert heard == {"": [True, False], "--other=1": [True, True], asked.selects: [True, True]}
    assert ["the evaluator has no such flags" in message or "has --other=1, which counts" in message
            for message in caplog.messages] == [True, True]
