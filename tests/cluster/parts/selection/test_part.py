"""What the part of selection adds to a chief and to an evaluator."""

from __future__ import annotations

import contextlib
import threading
import time
import types

import pytest

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.coordination import blackboard
from ps_train.coordination.state import State
from ps_train.errors import CheckpointError
from ps_train.parts.selection.evaluations import ChiefRole, EvaluationSignals
from ps_train.parts.selection.part import SelectionPart
from ps_train.parts.selection.selector import SelectionSettings, Selector
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints
from ps_train.storage.journal import Journal
from ps_train.tasks import setup
from tests.clusters import save_linear
from tests.errors import raises
from tests.tensorflow_mode import tf  # noqa: F401 (in the mode that a task uses)

CHIEF = Cluster("worker", 0, {"ps": {0: "a:1"}, "worker": {0: "b:1"}})
TASK = types.SimpleNamespace(journal=None)
WITH_METRICS = types.SimpleNamespace(metric_names=["error"])


@pytest.mark.parametrize("flags, expected", [
    ({}, (600, 0)), ({"eval_secs": 60.0}, (60, 0)), ({"eval_secs": 900.0}, (600, 0)), ({"eval_steps": 50}, (600, 50)),
    ({"eval_steps": 50, "save_model_steps": 20}, (600, 20)), ({"eval_secs": 5.0, "save_model_secs": 0}, (5, 0))])
def test_the_chief_saves_as_often_as_checkpoints_are_evaluated(flags, expected):
    """By time and by steps; the shorter period counts."""
    config = Config(num_gpus=0, **flags)
    saves = SelectionPart(config, CHIEF).adjust(setup.worker_settings(config, CHIEF)).sessions.saves
    assert (saves.every_secs, saves.every_steps) == expected


def test_a_metric_that_the_model_lacks_is_refused_before_a_socket_opens(stop):
    """In the chief and in an evaluator."""
    for job in ("worker", "evaluator"):
        part = SelectionPart(Config(keep_best="acc"), Cluster(job, 0, CHIEF.addresses))
        with raises("no_such_metric"), part.around_evaluations(None, WITH_METRICS, stop):
            pass


def test_an_evaluator_sends_its_heartbeat_while_it_evaluates(tmp_path, start_servers):
    """Before its first evaluation, too, and without a call by the evaluator."""
    cluster = start_servers(1, 1)
    config = Config(train_dir=str(tmp_path), eval_steps=10)
    part = SelectionPart(config, Cluster("evaluator", 0, cluster.addresses))
    with contextlib.closing(EvaluationSignals(cluster.view("worker", 0), 1000.0)) as signals, \
            part.around_evaluations(None, WITH_METRICS, threading.Event()):
        end_secs = time.monotonic() + 30
        while not signals.has_evaluator() and time.monotonic() < end_secs:
            time.sleep(0.1)
        assert signals.has_evaluator()
        assert [part.is_due(f"{tmp_path}/model.ckpt-{step}") for step in (9, 10)] == [False, True]
        part.after_evaluation(Evaluation(10, 4, "loss", 1.0, {}), save_linear(tmp_path, 10))
        assert [part.is_due(f"{tmp_path}/model.ckpt-{step}") for step in (19, 20)] == [False, True]


def test_early_stopping_ends_the_training_with_its_reason(start_servers):
    """Which the tasks print when they end."""
    cluster = start_servers(1, 1)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board, \
            contextlib.closing(EvaluationSignals(cluster.view("worker", 0), 10.0)) as signals:
        board.claim(0, 17)
        board.start_run("")
        signals.end_training("early stopping: x")
        assert (board.state(), board.end_reason()) == (State.STOPPING, "early stopping: x")
        board.announce(State.IDLE)


def test_a_folder_that_cannot_be_listed_for_a_moment_does_not_end_the_evaluations(tmp_path, monkeypatch, stop):
    """As a mount that is away; a checkpoint of another model does."""
    answers = [CheckpointError("folder_unreadable", "cannot list"), [],
               CheckpointError("checkpoint_of_another_model", "of another model"), []]

    def paths(folder):
        answer = answers.pop(0)
        if isinstance(answer, CheckpointError):
            raise answer
        return answer

    monkeypatch.setattr(checkpoints, "paths", paths)
    selector = Selector(SelectionSettings(eval_steps=5), str(tmp_path), None)
    role = ChiefRole(selector, None, CHIEF, str(tmp_path), Config().timeouts, stop, Journal(""))
    board = types.SimpleNamespace(state=lambda: State.RUNNING)
    failed = []
    for _ in range(4):
        role._check(board, types.SimpleNamespace(has_evaluator=lambda: False))
        failed.append(role._has_failed)
    assert failed == [False, False, True, True]


def test_the_record_of_removed_checkpoints_is_forgotten_by_the_chief_alone(tmp_path):
    """It stays where there is a checkpoint."""
    record, config = tmp_path / "selection.json", Config(train_dir=str(tmp_path))
    record.write_text("{}")
    SelectionPart(config, Cluster("worker", 1, {**CHIEF.addresses, "worker": {0: "b:1", 1: "c:1"}})).before_server(TASK)
    save_linear(tmp_path, 5)
    SelectionPart(config, CHIEF).before_server(TASK)
    assert record.exists()
    for path in tmp_path.glob("model.ckpt-*"):
        path.unlink()
    SelectionPart(config, CHIEF).before_server(TASK)
    assert not record.exists()
