"""The task of an evaluator."""

from __future__ import annotations

import dataclasses
import errno
import os
import threading
import types

import pytest

from ps_train.coordination import blackboard
from ps_train.coordination.state import State
from ps_train.errors import (
    BlackboardError,
)
from ps_train.runtime import clock, waits
from ps_train.runtime.waits import Timeouts
from ps_train.storage import checkpoints
from ps_train.storage.journal import Journal
from ps_train.tasks import evaluator
from ps_train.training import evaluation
from ps_train.training.reporting import Report
from tests import clusters
from tests.clusters import EVAL_PARAMS, linear_evaluator, save_linear
from tests.errors import raises

TIMEOUTS = Timeouts(start_secs=10, eval_secs=60)


def test_an_evaluator_follows_the_checkpoints_and_ends_with_the_last(tmp_path, start_servers, stop, capsys):
    """One evaluated while training runs, one saved just before it is done."""
    cluster = start_servers(1, 1)
    chief = blackboard.for_worker(cluster.target("worker", 0), cluster.view("worker", 0))
    chief.announce(State.RUNNING)
    evaluated = []

    class Recording(evaluation.Evaluator):
        def evaluate(self, path):
            evaluated.append(path)
            if len(evaluated) == 1:  # the last checkpoint comes while the first is evaluated
                paths.append(save_linear(tmp_path, 20))
                chief.announce(State.DONE)
            return super().evaluate(path)

    paths = [save_linear(tmp_path, 10)]
    own = Recording(clusters.linear_model(), EVAL_PARAMS, clusters.array_dataset(*clusters.linear_data()), EVAL_PARAMS)
    evaluator.evaluate_until_done(own, str(tmp_path), blackboard.for_client(cluster.view("worker", 0)),
                                  TIMEOUTS, stop)
    chief.close()
    assert evaluated == paths
    assert "After 20 training steps" in capsys.readouterr().out


def test_an_evaluator_ends_when_the_tasks_were_told_of_different_clusters(stop):
    """With the line that says how."""
    board = types.SimpleNamespace(state=lambda: State.IDLE, mismatch=lambda: "ps:0 was configured with 1 worker")
    with raises("clusters_differ"):
        evaluator._next_state(board, State.IDLE, 30, stop)


def test_an_evaluation_may_outlast_the_whole_end(tmp_path, stop):
    """The ps have ended by then: the last checkpoint is evaluated, without waiting for them."""
    states = [State.RUNNING]

    class Board:
        first_ps = "ps:0"

        def state(self):
            if not states:
                raise BlackboardError("ps_unreachable", "ps:0 has ended")
            if states[-1] == State.DONE:
                heard.set()
            return states[-1]

        def mismatch(self):
            return ""

        def is_stop_requested(self):
            return False

    evaluated, heard = [], threading.Event()

    class Slow(evaluation.Evaluator):
        def evaluate(self, path):
            evaluated.append(path)
            if len(evaluated) == 1:
                paths.append(save_linear(tmp_path, 20))
                states.append(State.DONE)
                assert heard.wait(30)
                states.clear()
            return super().evaluate(path)

    paths = [save_linear(tmp_path, 10)]
    own = Slow(clusters.linear_model(), EVAL_PARAMS, clusters.array_dataset(*clusters.linear_data()), EVAL_PARAMS)
    evaluator.evaluate_until_done(own, str(tmp_path), Board(), Timeouts(start_secs=0.5, eval_secs=60), stop)
    assert evaluated == paths


def _note(folder, *ends):
    """Writes a chief's journal: one training for each of these last steps, or one that has not ended."""
    chiefs = Journal(str(folder))
    for step in ends:
        chiefs.note("start")
        if step is not None:
            chiefs.note("end", why="the last step was taken", step=step)
    chiefs.close()


def _board(*states):
    """Returns a blackboard with these states, one after another; None and all that follow are no answer."""
    left = list(states)

    def state():
        if not left or left[0] is None:
            raise BlackboardError("ps_unreachable", "ps:0 has ended")
        return left.pop(0)

    return types.SimpleNamespace(first_ps="ps:0", state=state, mismatch=str, is_stop_requested=bool)


@pytest.mark.parametrize("last", [State.RUNNING, State.STOPPING])
@pytest.mark.parametrize("is_over", [True, False])
def test_an_end_that_was_missed_is_in_the_journal(tmp_path, stop, is_over, last):
    """The ps serve for a second after it. Without an end in the journal, they are waited for, also after "stopping".

    Then the chief still saves, and this task may just have lost ps 0. If it stays away, there is nothing to wait for.
    """
    _note(tmp_path, 10, 20 if is_over else None)
    begin_secs = clock.now()
    if is_over:
        assert evaluator._next_state(_board(), last, 30, stop, str(tmp_path)) is None
        assert clock.now() - begin_secs < 10
    elif last == State.STOPPING:
        assert evaluator._next_state(_board(), last, 0.3, stop, str(tmp_path)) is None
        assert clock.now() - begin_secs >= 0.3
    else:
        with raises("timed_out"):
            evaluator._next_state(_board(), last, 0.3, stop, str(tmp_path))


def test_a_call_without_an_answer_after_the_last_step_is_not_the_end(tmp_path, stop):
    """The next one has an answer, and then the chief has saved."""
    answers = iter([None, State.STOPPING])

    def state():
        if (answer := next(answers)) is None:
            raise BlackboardError("ps_unreachable", "ps:0 does not answer")
        return answer

    board = types.SimpleNamespace(first_ps="ps:0", state=state, mismatch=str)
    assert evaluator._next_state(board, State.STOPPING, 30, stop, str(tmp_path)) == State.STOPPING


@pytest.mark.parametrize("is_over", [True, False])
def test_servers_that_are_idle_again_have_ended_a_training_by_its_journal(tmp_path, stop, is_over):
    """With --existing_servers nothing is done; a training that was stopped, or has not begun, is waited for."""
    _note(tmp_path, 10)
    assert evaluator._next_state(_board(State.IDLE), State.IDLE, 30, stop, str(tmp_path)) == State.IDLE
    _note(tmp_path, 20 if is_over else None)
    assert evaluator._next_state(_board(State.IDLE), State.STOPPING, 30, stop, str(tmp_path)) == (
        State.DONE if is_over else State.IDLE)


def test_a_state_of_before_is_remembered_while_servers_are_idle_and_an_evaluation_runs(tmp_path, stop):
    """The whole end may fall into one evaluation."""
    states, has_asked = [State.RUNNING], threading.Event()
    board = types.SimpleNamespace(is_stop_requested=bool, state=lambda: has_asked.set() or State.IDLE)
    with evaluator._collecting_states(board, states, stop):
        assert has_asked.wait(30)
    assert states == [State.RUNNING]


def test_a_folder_that_cannot_be_listed_for_a_moment_is_looked_at_again(tmp_path, stop, monkeypatch, caplog):
    """A mount may be away; the look is bounded."""
    path, listdir, fails = save_linear(tmp_path, 1), os.listdir, [True]

    def failing(folder):
        if fails:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", failing)
    with raises("timed_out"):
        evaluator._newest(str(tmp_path), 0.3, stop)
    monkeypatch.setattr(stop, "wait", lambda secs: fails.clear())
    assert evaluator._newest(str(tmp_path), 30, stop) == path
    assert os.strerror(errno.ESTALE) in caplog.text


def test_a_checkpoint_that_is_removed_before_it_is_evaluated_is_passed_over(tmp_path, caplog):
    """The chief keeps only so many: the newer one is evaluated in the next round."""
    path = save_linear(tmp_path, 1)

    class Late(evaluation.Evaluator):
        def evaluate(self, path):
            checkpoints.remove(path)
            return super().evaluate(path)

    own = Late(clusters.linear_model(), EVAL_PARAMS, clusters.array_dataset(*clusters.linear_data()), EVAL_PARAMS)
    with caplog.at_level("INFO"):
        evaluator._evaluate_one(own, path, str(tmp_path), 60, threading.Event(), Report())
    assert f"{path} was removed before it was evaluated" in caplog.text
    assert not (tmp_path / "eval").exists()


def test_an_evaluator_without_a_cluster_gives_up(tmp_path, stop):
    """It waits for the blackboard for its time-out."""
    cluster = clusters.LocalCluster(1, 1)  # its blackboard is not up
    board = blackboard.for_client(cluster.view("worker", 0))
    with raises("timed_out"):
        evaluator.evaluate_until_done(linear_evaluator(*clusters.linear_data()), str(tmp_path), board,
                                      dataclasses.replace(TIMEOUTS, start_secs=0.3), stop)
    board.close()


def test_an_evaluator_obeys_a_signal(tmp_path, start_servers):
    """A set stop event ends it."""
    stop = threading.Event()
    stop.set()
    board = blackboard.for_client(start_servers(1, 1).view("worker", 0))
    with raises("stopped"):
        evaluator.evaluate_until_done(linear_evaluator(*clusters.linear_data()), str(tmp_path), board, TIMEOUTS, stop)
    board.close()


def test_an_evaluator_without_a_checkpoint_says_what_it_waits_for(tmp_path, stop, monkeypatch):
    """Every ten seconds, as long as there is none."""
    texts, states = [], [State.IDLE, State.RUNNING, State.DONE]
    board = types.SimpleNamespace(state=lambda: states.pop(0), mismatch=lambda: "", is_stop_requested=lambda: False)
    monkeypatch.setattr(waits.Reminder, "remind", lambda self: texts.append(self.name()))
    evaluator.evaluate_until_done(None, str(tmp_path), board, TIMEOUTS, stop)
    assert texts == [f"the first checkpoint in {tmp_path}, which must be the chief's folder"] * 3
