"""What the chief does: it gives each worker that is there a share, waits for the results, and adds them.

    the workers that have finished and are alive --> plan --> own share --> results --> merged Evaluation
                                                                  ^
                                                  share of a worker that died or left
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Snapshot
from ps_train.errors import BlackboardError, ClusterLostError, StoppedError
from ps_train.parts.evaluation_by_workers import exchange as exchanges
from ps_train.parts.evaluation_by_workers.exchange import Plan, ResultExchange, Share, ShareResult
from ps_train.parts.evaluation_by_workers.participation import evaluate_share
from ps_train.parts.evaluation_by_workers.share_graph import Evaluated, ShareGraph
from ps_train.runtime import tensorflow_errors, waits
from ps_train.runtime.reports import Evaluation
from ps_train.runtime.waits import Timeouts
from ps_train.training import evaluation

_POLL_SECS = 0.2
_log = logging.getLogger(__name__)


class EvaluationLostError(ClusterLostError):
    """A ps was lost during the evaluation, and with it the parameters; they can be restored."""


class Wanted(NamedTuple):
    """What is still missing of a plan: the shares of workers that evaluate, and of those that have died or left."""

    awaited: list[int]
    orphaned: list[int]


class EvaluationByWorkers:
    """The chief's part in an evaluation by all workers."""

    def __init__(
        self, evaluated: Evaluated, whole: ShareGraph, target: str, board: Blackboard, exchange: ResultExchange,
        timeouts: Timeouts, stop: threading.Event,
    ) -> None:
        """Prepares it.

        Args:
          whole: the graph of the share (0, 1), whose metrics take the sums of all shares.
          target: address of this worker's server.
        """
        self._evaluated, self._whole, self._target = evaluated, whole, target
        self._board, self._exchange = board, exchange
        self._timeouts = timeouts
        self._stop = stop

    def evaluate(self, path: str) -> Evaluation:
        """Returns the metrics of all held-out examples on the parameters on the ps.

        Args:
          path: the checkpoint of these parameters.

        Raises:
          EvaluationLostError: a ps was lost.
          DataError: the held-out set is empty.
          UserCodeError: the user's code is at fault, or the evaluation takes too long.
          StoppedError: told to stop.
        """
        try:
            self._bounded(lambda: self._whole.restore_packed(self._target, path), "the small variables on the ps")
            plan = self._open()
            shares = self._collect(plan)
            metrics = self._bounded(lambda: self._whole.metrics(self._target, shares), "the metrics of all shares")
        except BlackboardError as error:
            raise EvaluationLostError(str(error)) from error
        except tf.errors.OpError as error:
            if not sessions.is_lost(error):
                raise
            raise EvaluationLostError(tensorflow_errors.reason(error)) from error
        return self._merged(shares, metrics)

    def _open(self) -> Plan:
        """Returns the plan, with a share for each worker that takes no more steps and is alive, this one included."""
        snapshot, own = self._board.snapshot(), self._evaluated.cluster.worker_number
        others = [worker for worker in snapshot.alive() if snapshot.finished[worker] and worker != own]
        if not self._evaluated.plugins[2].is_eval_sharded:
            others = []
        plan = exchanges.new_plan([Share(worker, int(snapshot.claims[worker])) for worker in [own, *others]])
        self._exchange.open(plan)
        _log.info("evaluating on %d worker%s", len(plan.shares), "s" * (len(plan.shares) > 1))
        return plan

    def _collect(self, plan: Plan) -> list[ShareResult]:
        """Returns the result of each share, once all are there."""
        end_secs = time.monotonic() + self._timeouts.eval_secs
        found = {0: self._evaluate(plan, 0)}
        reminder = waits.Reminder(
            lambda: "the shares of " + ", ".join(
                self._name(plan, share) for share in range(len(plan.shares)) if share not in found),
            self._timeouts.eval_secs)
        while len(found) < len(plan.shares):
            snapshot = self._board.snapshot()  # before the results: a worker leaves when it has delivered
            for share in {*self._exchange.delivered(plan)} - {*found}:
                if (result := self._exchange.result(plan, share)) is not None:
                    found[share] = result
            missing = self._missing(plan, found, snapshot)
            for share in missing.orphaned[:1]:  # one at a time: another worker may have delivered meanwhile
                _log.warning("%s has died or left: its share is evaluated here", self._name(plan, share))
                found[share] = self._evaluate(plan, share)
            if missing.awaited and time.monotonic() > end_secs:
                names = ", ".join(self._name(plan, share) for share in missing.awaited)
                raise evaluation.too_long(f"waited {self._timeouts.eval_secs:g} s for the shares of {names}")
            reminder.remind()
            if missing.awaited and not missing.orphaned and self._stop.wait(_POLL_SECS):
                raise StoppedError("told to stop while waiting for the other workers' evaluation")
        return [found[share] for share in range(len(plan.shares))]

    @staticmethod
    def _missing(plan: Plan, found: dict[int, ShareResult], snapshot: Snapshot) -> Wanted:
        there = {int(snapshot.claims[worker]) for worker in snapshot.alive()}
        missing = [index for index in range(len(plan.shares)) if index not in found]
        return Wanted(awaited=[index for index in missing if plan.shares[index].claim in there],
                      orphaned=[index for index in missing if plan.shares[index].claim not in there])

    def _evaluate(self, plan: Plan, share: int) -> ShareResult:
        return evaluate_share(self._evaluated, self._target, share, plan, self._timeouts.eval_secs, self._stop)

    def _name(self, plan: Plan, share: int) -> str:
        return self._evaluated.cluster.worker_name(plan.shares[share].worker)

    def _bounded(self, call: Callable[[], Any], what: str) -> Any:
        try:
            return waits.bounded(call, self._timeouts.eval_secs, what, self._stop)
        except ClusterLostError as error:
            raise evaluation.too_long(str(error)) from None

    def _merged(self, shares: list[ShareResult], metrics: dict[str, float]) -> Evaluation:
        num_examples = sum(share.num_examples for share in shares)
        evaluation.refuse_empty(self._evaluated.plugins[2], num_examples)
        first, last = (function(share.global_step for share in shares) for function in (min, max))
        if first != last:
            _log.warning("the parameters changed during the evaluation, from step %d to step %d: a worker still "
                         "trained", first, last)
        return Evaluation(first, num_examples, self._whole.loss_name, math.fsum(share.loss_sum for share in shares),
                          metrics)
