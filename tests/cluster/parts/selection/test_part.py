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
from ps_train.errors import CheckpointError, UserCodeError
from ps_train.parts.selection import evaluations
from ps_train.parts.selection.evaluations import ChiefRole, EvaluationSignals
from ps_train.parts.selection.part import SelectionPart
from ps_train.parts.selection.selector import SelectionSettings, Selector
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints
from ps_train.storage.journal import Journal
from ps_train.tasks import setup
from tests.clusters import save_linear
from tests.errors import raises
from tests.tensorflow_mode import tf

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


def test_early_stopping_keeps_the_reason_of_a_training_that_has_ended(start_servers):
    """Issue: an evaluation after the last step replaced it, and a worker in a long step printed the wrong one."""
    cluster = start_servers(1, 1)
    with contextlib.closing(blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))) as board, \
            contextlib.closing(EvaluationSignals(cluster.view("worker", 0), 10.0)) as signals:
        board.claim(0, 17)
        board.start_run("")
        board.announce_stopping("the training data has ended")
        signals.end_training("early stopping: x")
        assert (board.state(), board.end_reason()) == (State.STOPPING, "the training data has ended")
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


OK = Evaluation(10, 4, "loss", 1.0, {})
PASSING = [tf.errors.UnavailableError(None, None, "Stale file handle"), OSError(5, "Input/output error"),
           UserCodeError("eval_timed_out", "too long"), CheckpointError("checkpoint_unreadable", "cannot be read")]


@pytest.fixture
def evaluating(tmp_path, monkeypatch, stop):
    """Returns the steps that a chief evaluates, the answers of the evaluations, and its check at the newest steps."""
    selector = Selector(SelectionSettings(eval_steps=5), str(tmp_path), None)
    role = ChiefRole(selector, None, CHIEF, str(tmp_path), Config().timeouts, stop, Journal(""))
    board, signals = types.SimpleNamespace(state=lambda: State.RUNNING), types.SimpleNamespace(has_evaluator=bool)
    evaluated, answers = [], []

    def evaluate(secs, evaluator, path, stop):
        evaluated.append(checkpoints.step_in_name(path))
        answer = answers.pop(0) if answers else OK._replace(global_step=evaluated[-1])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def check(*steps, sound=None):
        paths = [checkpoints.path_of(str(tmp_path), step) for step in steps]
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "paths", lambda folder: paths)
            patch.setattr(checkpoints, "newest_sound", lambda folder: checkpoints.path_of(folder, sound or steps[-1]))
            patch.setattr(checkpoints, "exists", lambda path: True)
            patch.setattr(evaluations, "evaluate_bounded", evaluate)
            role._check(board, signals)

    return evaluated, answers, check


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_an_evaluation_that_fails_for_a_moment_does_not_end_the_evaluations(evaluating, caplog, error):
    """As a restore on a mount that is away; three in a row do."""
    evaluated, answers, check = evaluating
    answers += [error, error, OK, error, error, error]
    for step in range(10, 100, 10):
        check(step)
        check(step)
    assert evaluated == [10, 20, 30, 40, 50, 60]
    assert caplog.text.count("the next try is with the next checkpoint") == 4
    assert caplog.text.count("no more evaluations") == 1


def test_each_checkpoint_is_evaluated_whose_name_says_that_it_is_due(evaluating, tmp_path):
    """Issue: where other workers had taken steps between the name and the save, the next checkpoint was left out."""
    evaluated, answers, check = evaluating
    answers += [OK._replace(global_step=step) for step in (12, 16, 20)]
    for step in (10, 15, 19, 20):
        check(step)
    assert evaluated == [10, 15, 20]
    role = evaluations.TimedRole(Selector(SelectionSettings(eval_steps=5), str(tmp_path), None))
    role.evaluated(OK._replace(global_step=12), f"{tmp_path}/model.ckpt-10")
    assert [role.is_due(f"{tmp_path}/model.ckpt-{step}") for step in (14, 15)] == [False, True]


def test_a_fault_of_the_users_code_ends_the_evaluations_at_once(evaluating, caplog):
    """It would come again."""
    evaluated, answers, check = evaluating
    answers.append(UserCodeError("eval_data_empty", "no examples"))
    check(10)
    check(20)
    assert evaluated == [10] and caplog.text.count("no more evaluations") == 1


def test_a_checkpoint_that_cannot_be_read_for_a_moment_is_evaluated_later(evaluating):
    """Meanwhile an earlier one is, once."""
    evaluated, _, check = evaluating
    check(10, 20, sound=10)
    check(10, 20, sound=10)
    check(10, 20)
    check(10, 20)
    assert evaluated == [10, 20]


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
