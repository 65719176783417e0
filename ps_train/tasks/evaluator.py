"""The task of an evaluator: it evaluates each new checkpoint until training is done."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator

import tensorflow.compat.v1 as tf

from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.sessions import if_answered
from ps_train.coordination.state import State
from ps_train.errors import CheckpointError, ChiefFailedError, ClusterLostError, ConfigError, StoppedError
from ps_train.part import NO_PARTS, Parts
from ps_train.runtime import threads, waits
from ps_train.runtime.reports import Evaluation
from ps_train.runtime.waits import Timeouts
from ps_train.storage import checkpoints, journal
from ps_train.training.evaluation import Evaluator, evaluate_bounded, write_summaries
from ps_train.training.reporting import Report

_POLL_SECS = 1.0
_log = logging.getLogger(__name__)


def evaluate_until_done(
    evaluator: Evaluator, train_dir: str, board: Blackboard, timeouts: Timeouts, stop: threading.Event,
    report: Report | None = None, parts: Parts = NO_PARTS,
) -> None:
    """Evaluates each new checkpoint in the folder, and always the last one, until training is done.

    It is done when the blackboard says so, or is gone or idle again and the journal says that training has ended.

    Args:
      report: prints the results; None prints ps_train's own lines.
      parts: choose the checkpoints and draw conclusions; without parts each new checkpoint is evaluated.

    Raises:
      ClusterLostError: the blackboard did not answer within `timeouts.start_secs`, or the chief failed.
      UserCodeError: an evaluation took longer than `timeouts.eval_secs`.
      StoppedError: `stop` was set first.
    """
    evaluated_path = None
    state: State | None = State.IDLE
    states = [State.IDLE]
    reminder = waits.Reminder(f"the first checkpoint in {train_dir}, which must be the chief's folder")
    while state not in (State.DONE, None):
        state = _next_state(board, states[-1], timeouts.start_secs, stop, train_dir, parts)
        states = [state or states[-1]]
        parts.before_look(functools.partial(_collecting_states, board, states, stop))
        path = _newest(train_dir, timeouts.start_secs, stop)  # after the state: otherwise the last one could be missed
        is_last = state is None or state >= State.STOPPING
        if path not in (None, evaluated_path) and (is_last or parts.is_due(path)):
            evaluated_path = path
            with _collecting_states(board, states, stop):
                evaluation = _evaluate_one(evaluator, path, train_dir, timeouts.eval_secs, stop, report or Report())
                if evaluation:
                    parts.after_evaluation(evaluation, path)
        if path is None:
            reminder.remind()
        _read_request(board, stop)
        if stop.wait(_POLL_SECS):
            raise StoppedError("stopped", "stopped while evaluating")


@contextlib.contextmanager
def _collecting_states(board: Blackboard, states: list[State], stop: threading.Event) -> Iterator[None]:
    """Adds the training states while its body runs, which may outlast the cluster."""
    def collect() -> None:
        _read_request(board, stop)
        if state := if_answered(board.state):  # without IDLE, see `_next_state`
            states.append(state)

    with threads.repeating(collect, period_secs=_POLL_SECS, name="states"):
        yield


def _newest(train_dir: str, timeout_secs: float, stop: threading.Event) -> str | None:
    """Returns the newest sound checkpoint; tries again while the folder cannot be listed."""
    def look() -> list[str | None]:
        try:
            return [checkpoints.newest_sound(train_dir)]
        except CheckpointError as error:
            _log.warning("%s", error)
            return []

    return waits.until(look, timeout_secs, f"a look into {train_dir}", stop)[0]


def _evaluate_one(
    evaluator: Evaluator, path: str, train_dir: str, timeout_secs: float, stop: threading.Event, report: Report
) -> Evaluation | None:
    try:
        evaluation = evaluate_bounded(timeout_secs, evaluator, path, stop)
    except (tf.errors.OpError, ValueError, CheckpointError):  # the Saver raises ValueError if it finds no files
        if checkpoints.exists(path):
            raise
        _log.info("%s was removed before it was evaluated: there are newer ones", path)
        return None
    write_summaries(evaluation, train_dir)
    report.evaluated(evaluation)
    return evaluation


def _next_state(
    board: Blackboard, last: State, timeout_secs: float, stop: threading.Event, train_dir: str = "",
    parts: Parts = NO_PARTS,
) -> State | None:
    """Returns the training state, or None if the blackboard does not answer any more and training has ended.

    The cluster may end within a second, which a busy machine can miss; then the journal in `train_dir` decides, as it
    does where the servers of --existing_servers go on, idle. If the last step was taken, so does the time-out.

    Raises:
      ClusterLostError: the blackboard was lost during training and did not come back, or the chief failed.
      ConfigError: two tasks have different clusters.
    """
    state = if_answered(board.state)
    if mismatch := if_answered(board.mismatch):
        raise ConfigError("clusters_differ", mismatch)
    # The journal must be of a training that has begun, as that of one before it ends in the same way.
    if state == State.IDLE and last != State.IDLE and journal.noted_end(train_dir):
        return State.DONE
    if state is None and last < State.DONE:
        def answer() -> list[State | None]:
            if last != State.IDLE:  # first, as an unreachable ps takes seconds
                parts.before_look(contextlib.nullcontext)
                if journal.noted_end(train_dir):
                    return [None]
            state = if_answered(board.state)
            return [] if state is None else [state]

        try:
            [state] = waits.until(answer, timeout_secs, f"the blackboard on {board.first_ps}", stop)
        except ClusterLostError as error:
            if last != State.STOPPING:
                raise
            _log.warning("%s; ending with the newest checkpoint, as the last step was taken", error)
    if State.FAILED in (state, last):
        raise ChiefFailedError
    return state


def _read_request(board: Blackboard, stop: threading.Event) -> None:
    if if_answered(board.is_stop_requested):
        waits.stop_on_request(stop)
