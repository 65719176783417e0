"""Evaluates checkpoints in a thread of the chief while it trains, if there is no evaluator."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, StoppedError, UserCodeError
from ps_train.parts.selection.selector import EvalTimer, Selector
from ps_train.parts.selection.signals import EvaluationSignals
from ps_train.runtime import threads
from ps_train.runtime.reports import Evaluation
from ps_train.runtime.waits import Timeouts
from ps_train.storage import checkpoints
from ps_train.training.evaluation import Evaluator, evaluate_bounded, write_summaries

_POLL_SECS = 0.5
_log = logging.getLogger(__name__)


class ChiefEvaluations:
    """The evaluations of one chief."""

    def __init__(
        self, selector: Selector, evaluator: Evaluator, cluster: Cluster, train_dir: str, timeouts: Timeouts,
        stop: threading.Event,
    ) -> None:
        """Prepares them; nothing is sent yet."""
        self._selector, self._evaluator, self._cluster = selector, evaluator, cluster
        self._train_dir, self._timeouts, self._stop = train_dir, timeouts, stop
        self._timer = EvalTimer(selector.settings)
        self._seen = -1
        self._has_failed = self._has_told = False

    @contextlib.contextmanager
    def running(self, board: Blackboard) -> Iterator[None]:
        """Evaluates while its body runs, and ends the training when the selector says so."""
        if not self._selector.settings.evaluates_during_training:
            yield
            return
        self._timer = EvalTimer(self._selector.settings, self._selector.last_step())
        if stopped := self._selector.describe_stop_before():
            _log.warning("%s", stopped)
        with contextlib.closing(EvaluationSignals(self._cluster, self._timeouts.heartbeat_secs)) as signals, \
                threads.repeating(lambda: self._look(board, signals), period_secs=_POLL_SECS, name="evaluations",
                                  join_secs=self._timeouts.eval_secs):
            yield

    def conclude(self, found: Evaluation, path: str) -> None:
        """Considers the evaluation of the last checkpoint, unless an evaluator does, and exports that checkpoint.

        Raises:
          PsTrainError: it cannot be exported.
        """
        if self._selector.settings.evaluates_during_training and not self._has_evaluator():
            self._selector.consider(found, path)
        if best := self._selector.describe_best():
            _log.info("%s", best)
        self._selector.export_final(path)

    def _has_evaluator(self) -> bool:
        with contextlib.closing(EvaluationSignals(self._cluster, self._timeouts.heartbeat_secs)) as signals:
            try:
                return signals.has_evaluator()
            except BlackboardError:  # the ps are gone; the chief has the last checkpoint all the same
                return False

    def _look(self, board: Blackboard, signals: EvaluationSignals) -> None:
        """Evaluates the newest checkpoint if that is due, then ends the training if that is due."""
        try:
            if board.state() != State.RUNNING:
                return
            if not signals.has_evaluator():
                self._evaluate_if_due()
            if reason := self._selector.should_stop():
                if not self._has_told:
                    _log.info("%s", reason)
                self._has_told = True
                signals.end_training(reason)
        except (BlackboardError, StoppedError) as error:  # a later look may succeed; or the task ends anyway
            _log.debug("%s", error)
        except Exception as error:  # noqa: BLE001 (of the user's code, for example: it must not end this thread unseen)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._has_failed:  # the last evaluation will fail the same way, and say more
            _log.warning("no more evaluations during training: %s: %s", type(error).__name__, error)
        self._has_failed = True

    def _evaluate_if_due(self) -> None:
        paths = checkpoints.paths(self._train_dir)
        step = int(paths[-1].rpartition("-")[2]) if paths else 0
        if step == 0 or step == self._seen or self._has_failed or not self._timer.is_due(step):
            return
        path = checkpoints.newest_sound(self._train_dir)
        if path is None:
            return
        self._seen = step
        try:
            found = evaluate_bounded(self._timeouts.eval_secs, self._evaluator, path, self._stop)
        except (tf.errors.OpError, ValueError, UserCodeError) as error:
            if not checkpoints.exists(path):
                _log.info("%s was removed while it was evaluated: there are newer ones", path)
                return
            self._fail(error)
            return
        self._timer.evaluated(found.global_step)
        write_summaries(found, self._train_dir)
        _log.info("evaluation at %s", evaluation_line(found))
        self._selector.consider(found, path)


def evaluation_line(found: Evaluation) -> str:
    """Returns an evaluation in one line: `step 300: loss 0.1234, accuracy 0.9712`."""
    metrics = "".join(f", {name} {value:.4f}" for name, value in sorted(found.metrics.items()))
    return f"step {found.global_step}: loss {found.loss_mean:.6g}{metrics}"
