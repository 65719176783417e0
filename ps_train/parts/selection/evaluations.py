"""The evaluations during training: those of an evaluator, or else of a thread of the chief.

    evaluator --EvaluationSignals, on ps 0: heartbeat, "end training"--> chief: evaluates only without an evaluator,
                                                                         or if that one selects nothing
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import variables
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.sessions import Connection
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, CheckpointError, ConfigError, StoppedError, UserCodeError
from ps_train.parts.selection.selector import EvalTimer, Selector
from ps_train.runtime import threads
from ps_train.runtime.reports import Evaluation, evaluation_fields
from ps_train.runtime.waits import Timeouts
from ps_train.storage import checkpoints
from ps_train.storage.journal import Journal
from ps_train.training.evaluation import Evaluator, evaluate_bounded, write_summaries

_POLL_SECS = 0.5  # between two checks of the chief
_BEAT_SECS = 1.0  # between two heartbeats of an evaluator
_CLOSE_SECS = 10.0  # a call under way has ended by then (coordination/sessions.py)
_MAX_FAILURES = 3  # of evaluations, in a row
# The file system or the machine may be to blame; what else the user's code raises, it raises again.
_PASSING = ("checkpoint_unreadable", "eval_timed_out")
_log = logging.getLogger(__name__)


class EvaluationSignals:
    """One task's view; every method raises BlackboardError if ps 0 does not answer. Close it."""

    def __init__(self, cluster: Cluster, heartbeat_timeout_secs: float, selects: str = "") -> None:
        """Builds the operations; nothing is sent yet.

        Args:
          selects: `SelectionSettings.selects` of this task.
        """
        self._selects = selects
        first = Task("ps", 0, cluster.ps[0].address)
        with tf.Graph().as_default() as graph, tf.device(first.device):
            self._clock, self._heard = variables.read("clock"), variables.read("evaluator_heard")
            self._read_selects = variables.read("evaluator_selects")
            with tf.control_dependencies([variables.write("evaluator_selects", tf.constant(selects))]):
                self._beat = variables.write("evaluator_heard", tf.maximum(self._clock, 1e-3))  # 0: never
            state = variables.read("state")
            is_running = tf.equal(state, int(State.RUNNING))
            self._reason = tf.placeholder(tf.string, [])
            # On ps 0 and not here: meanwhile the chief may have ended the training, for another reason.
            self._write_reason = variables.write(
                "end_reason", tf.where(is_running, self._reason, variables.read("end_reason")))
            self._end = variables.write(
                "state", tf.where(is_running, tf.constant(int(State.STOPPING), tf.int64), state))
            graph.finalize()
        self._timeout_secs = heartbeat_timeout_secs
        self._connection = Connection(graph, f"grpc://{first.address}", [first], None, is_elastic=cluster.is_elastic)

    def beat(self) -> None:
        """Sends the heartbeat of an evaluator."""
        self._connection.run(self._beat)

    def has_evaluator(self) -> bool:
        """Returns whether there is one with a recent heartbeat, which selects something if this task would."""
        now_secs, heard_secs, selects = self._connection.run([self._clock, self._heard, self._read_selects])
        if heard_secs <= 0 or now_secs - heard_secs >= self._timeout_secs:
            return False
        other = selects.decode()
        if self._selects not in ("", other):
            _warn_of_flags(self._selects, other)
        return bool(other) or not self._selects

    def end_training(self, reason: str) -> None:
        """Lets all workers take their last step, if training is running, and say why."""
        self._connection.run(self._write_reason, {self._reason: reason})
        self._connection.run(self._end)

    def close(self) -> None:
        """Closes the connection, without waiting for a ps that has ended."""
        self._connection.close()


@functools.cache  # the chief asks twice a second
def _warn_of_flags(own: str, other: str) -> None:
    who = f"the evaluator has {other}, which counts" if other else "the evaluator has no such flags: the chief " \
        "evaluates, too"
    _log.warning("%s: %s; give the evaluator and the chief the same", own, who)


class Role:
    """What a chief or an evaluator does."""

    def __init__(self, selector: Selector) -> None:
        """Prepares it; nothing is sent yet."""
        self._selector, self._has_logged_end = selector, False

    def training(self, board: Blackboard) -> contextlib.AbstractContextManager:
        """Returns a context around the training of a worker."""
        return contextlib.nullcontext()

    def is_due(self, path: str) -> bool:
        """Returns whether the task should evaluate a new checkpoint."""
        return True

    def evaluated(self, evaluation: Evaluation, path: str) -> None:
        """Draws the conclusions from an evaluation of the task."""

    def _end_if_due(self, signals: EvaluationSignals) -> None:
        if reason := self._selector.should_stop():
            if not self._has_logged_end:
                _log.info("%s", reason)
            self._has_logged_end = True
            signals.end_training(reason)


class TimedRole(Role):
    """What an evaluator does from whose evaluations nothing follows: it leaves checkpoints out."""

    def __init__(self, selector: Selector) -> None:
        super().__init__(selector)
        self._timer = EvalTimer(selector.settings, selector.last_step())

    def is_due(self, path: str) -> bool:
        step = _step_in_name(path)
        return step is None or self._timer.is_due(step)

    def evaluated(self, evaluation: Evaluation, path: str) -> None:
        _begin_period(self._timer, evaluation, path)


class EvaluatorRole(TimedRole):
    """What an evaluator adds to its evaluations: a heartbeat, the choice of checkpoints, and the end of training."""

    def __init__(self, selector: Selector, signals: EvaluationSignals) -> None:
        super().__init__(selector)
        self._signals = signals

    def running(self) -> contextlib.AbstractContextManager:
        """Returns a context that repeats `signal`: an evaluation may take long."""
        def signal() -> None:
            try:
                self.signal()
            except ConfigError as error:  # the evaluator itself finds it, too, and ends with it
                _log.debug("%s", error)

        return threads.repeating(signal, period_secs=_BEAT_SECS, name="evaluator", join_secs=_CLOSE_SECS)

    def signal(self) -> None:
        """Sends a heartbeat, and ends the training if that is due."""
        with contextlib.suppress(BlackboardError):  # the next time may succeed
            self._signals.beat()
            self._end_if_due(self._signals)

    def evaluated(self, evaluation: Evaluation, path: str) -> None:
        super().evaluated(evaluation, path)
        self._selector.consider(evaluation, path)


class ChiefRole(Role):
    """What the chief does: it evaluates in a thread while it trains, unless an evaluator does."""

    def __init__(
        self, selector: Selector, evaluator: Evaluator | None, cluster: Cluster, train_dir: str, timeouts: Timeouts,
        stop: threading.Event, journal: Journal,
    ) -> None:
        """Prepares it; nothing is sent yet.

        Args:
          evaluator: None only if nothing is evaluated during training.
          journal: gets a note of each evaluation.
        """
        super().__init__(selector)
        self._evaluator, self._cluster = evaluator, cluster
        self._train_dir, self._timeouts, self._stop, self._journal = train_dir, timeouts, stop, journal
        self._timer = EvalTimer(selector.settings)
        self._evaluated_path = ""
        self._num_failures, self._has_failed = 0, False

    @contextlib.contextmanager
    def training(self, board: Blackboard) -> Iterator[None]:
        """Evaluates while its body runs, and ends the training when the selector says so."""
        if not self._selector.settings.evaluates_during_training:
            yield
            return
        self._timer = EvalTimer(self._selector.settings, self._selector.last_step())
        if earlier_stop := self._selector.describe_earlier_stop():
            _log.warning("%s", earlier_stop)
        with contextlib.closing(self._signals()) as signals, \
                threads.repeating(lambda: self._check(board, signals), period_secs=_POLL_SECS, name="evaluations",
                                  join_secs=self._timeouts.eval_secs):
            yield

    def evaluated(self, evaluation: Evaluation, path: str) -> None:
        """Considers the evaluation of the last checkpoint, unless an evaluator does, and exports that checkpoint.

        Raises:
          SaveError: it cannot be exported.
        """
        if self._selector.settings.evaluates_during_training and not self._has_evaluator():
            self._selector.consider(evaluation, path)
        if best := self._selector.describe_best():
            _log.info("%s", best)
        self._selector.export("final", path)

    def _signals(self) -> EvaluationSignals:
        return EvaluationSignals(self._cluster, self._timeouts.heartbeat_secs, self._selector.settings.selects)

    def _has_evaluator(self) -> bool:
        with contextlib.closing(self._signals()) as signals:
            try:
                return signals.has_evaluator()
            except BlackboardError:  # the ps have ended; the chief has the last checkpoint all the same
                return False

    def _check(self, board: Blackboard, signals: EvaluationSignals) -> None:
        """Evaluates the newest checkpoint if that is due, then ends the training if that is due."""
        try:
            if board.state() != State.RUNNING:
                return
            if not signals.has_evaluator():
                self._evaluate_if_due()
            self._end_if_due(signals)
        except (BlackboardError, StoppedError) as error:  # a later check may succeed; or the task ends anyway
            _log.debug("%s", error)
        except CheckpointError as error:
            if error.code != "folder_unreadable":  # that may be over at a later check, and saving warns of it
                self._fail(error)
        except Exception as error:  # noqa: BLE001 (of the user's code, for example: it must not end this thread unseen)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Warns; gives up after some failures in a row, or one that will come again."""
        self._num_failures += 1
        is_passing = not isinstance(error, UserCodeError) or error.code in _PASSING
        if is_passing and self._num_failures < _MAX_FAILURES:
            _log.warning("an evaluation during training failed: %s: %s; the next try is with the next checkpoint",
                         type(error).__name__, error)
            return
        if not self._has_failed:  # the last evaluation will fail the same way, and say more
            _log.warning("no more evaluations during training: %s: %s", type(error).__name__, error)
        self._has_failed = True

    def _evaluate_if_due(self) -> None:
        paths = checkpoints.paths(self._train_dir)
        step = int(paths[-1].rpartition("-")[2]) if paths else 0
        if step == 0 or self._has_failed or not self._timer.is_due(step):
            return
        # While the newest cannot be read, an earlier one.
        path = checkpoints.newest_sound(self._train_dir) if paths[-1] != self._evaluated_path else None
        if path in (None, self._evaluated_path):
            return
        self._evaluated_path = path
        try:
            evaluation = evaluate_bounded(self._timeouts.eval_secs, self._evaluator, path, self._stop)
        except (tf.errors.OpError, ValueError, UserCodeError) as error:
            if not checkpoints.exists(path):
                _log.info("%s was removed while it was evaluated: there are newer ones", path)
                return
            self._fail(error)
            return
        _begin_period(self._timer, evaluation, path)
        write_summaries(evaluation, self._train_dir)
        self._journal.note("evaluation", **evaluation_fields(evaluation))
        _log.info("evaluation at %s", evaluation_line(evaluation), extra={"fields": evaluation_fields(evaluation)})
        self._selector.consider(evaluation, path)
        self._num_failures = 0


def _begin_period(timer: EvalTimer, evaluation: Evaluation, path: str) -> None:
    """Begins the next period at the step in a checkpoint's name, after which the next one is saved and chosen.

    In async, the step in it may be a few later; from there the next checkpoint could come too early.
    """
    step = _step_in_name(path)
    timer.evaluated(evaluation.global_step if step is None else step)


def _step_in_name(path: str) -> int | None:
    """Returns the step in the name of a checkpoint, None for one of another name."""
    step = path.rpartition("-")[2]
    return int(step) if step.isdecimal() else None


def evaluation_line(evaluation: Evaluation) -> str:
    """Returns an evaluation in one line: `step 300: loss 0.1234, accuracy 0.9712`."""
    metrics = "".join(f", {name} {value:.4f}" for name, value in sorted(evaluation.metrics.items()))
    return f"step {evaluation.global_step}: loss {evaluation.loss_mean:.6g}{metrics}"
