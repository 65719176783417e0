"""What an evaluator does besides evaluating: it says that it is there, chooses checkpoints, and may end training."""

from __future__ import annotations

import contextlib
import logging

from ps_train.errors import BlackboardError
from ps_train.parts.selection.selector import EvalTimer, Selector
from ps_train.parts.selection.signals import EvaluationSignals
from ps_train.runtime.reports import Evaluation

_log = logging.getLogger(__name__)


class EvaluatorPart:
    """The part of one evaluator in the selection."""

    def __init__(self, selector: Selector, signals: EvaluationSignals) -> None:
        """Prepares it; nothing is sent yet."""
        self._selector, self._signals = selector, signals
        self._timer = EvalTimer(selector.settings, selector.last_step())
        self._has_told = False

    def tell(self) -> None:
        """Says that there is an evaluator, and ends the training if that is due."""
        with contextlib.suppress(BlackboardError):  # the next time may succeed
            self._signals.beat()
            if reason := self._selector.should_stop():
                if not self._has_told:
                    _log.info("%s", reason)
                self._has_told = True
                self._signals.end_training(reason)

    def is_due(self, path: str) -> bool:
        """Tells whether a new checkpoint is to be evaluated."""
        step = path.rpartition("-")[2]
        return not step.isdigit() or self._timer.is_due(int(step))

    def consider(self, evaluation: Evaluation, path: str) -> None:
        """Draws the conclusions from an evaluation."""
        self._timer.evaluated(evaluation.global_step)
        self._selector.consider(evaluation, path)
