"""The roles of chief and workers in a common evaluation: a plan, the shares, and the sum of their results.

    chief   the workers that have finished and are alive --> plan --> own share --> results --> merged Evaluation
                                                                          ^
                                                          share of a worker that died or left

    other   trained --> plan with this worker?  --> evaluate --> deliver --> end
                        no, and the training is done, or the chief does not come back --> end
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, StoppedError
from ps_train.parts.evaluation_by_workers.exchange import Plan, ResultExchange, Share, ShareResult, new_plan
from ps_train.parts.evaluation_by_workers.share_graph import ShareGraph
from ps_train.runtime import tensorflow_errors, waits
from ps_train.runtime.reports import Evaluation
from ps_train.tasks.worker import ConnectedWorker, PreparedWorker
from ps_train.training import evaluation

_POLL_SECS = 0.2
_log = logging.getLogger(__name__)


class EvaluationLostError(ClusterLostError):
    """A ps was lost during the evaluation, and the parameters with it; they can be restored."""


class _Role:
    """What both roles have."""

    def __init__(self, task: PreparedWorker, connected: ConnectedWorker, exchange: ResultExchange) -> None:
        self._task, self._exchange, self._timeouts = task, exchange, task.settings.timeouts
        self._cluster, self._target, self._board = task.cluster, connected.target, connected.board

    def _evaluate(self, plan: Plan, share: int) -> ShareResult:
        """Returns the result of a share.

        Raises:
          UserCodeError: a plug-in breaks its contract, or the share takes longer than --eval_timeout_secs.
          StoppedError: the task was stopped.
          BlackboardError: it has taken so long because a ps does not answer.
          tf.errors.OpError: a ps is lost, or the user's code failed.
        """
        graph = ShareGraph(self._task, (share, len(plan.shares)))
        _log.info("evaluating share %d of %d", share + 1, len(plan.shares))
        return self._bounded(lambda: graph.evaluate(self._target),
                             f"the evaluation of share {share + 1} of {len(plan.shares)}")

    def _bounded(self, call: Callable[[], Any], awaited: str) -> Any:
        try:
            return waits.bounded(call, self._timeouts.eval_secs, awaited, self._task.stop)
        except ClusterLostError as error:
            self._board.incarnations()  # raises BlackboardError if a ps is frozen: then the data are not to blame
            raise evaluation.too_long(str(error)) from None


class EvaluationByWorkers(_Role):
    """The chief's role."""

    def __init__(
        self, task: PreparedWorker, connected: ConnectedWorker, exchange: ResultExchange, all_shares: ShareGraph
    ) -> None:
        """Prepares it; `all_shares` is the graph of the share (0, 1), whose metrics take the sums of all shares."""
        super().__init__(task, connected, exchange)
        self._all_shares = all_shares

    def evaluate(self, path: str) -> Evaluation:
        """Returns the metrics of all held-out examples on the parameters on the ps.

        Args:
          path: the checkpoint of these parameters.

        Raises:
          EvaluationLostError: a ps was lost, or did not answer.
          DataError: the held-out set is empty.
          UserCodeError: the user's code is at fault, or the evaluation takes too long.
          StoppedError: the task was stopped.
        """
        try:
            incarnations = self._board.incarnations()
            self._bounded(lambda: self._all_shares.restore_packed(self._target, path), "the small variables on the ps")
            shares = self._collect(self._open(), incarnations)
            metrics = self._bounded(lambda: self._all_shares.metrics(self._target, shares), "the metrics of all shares")
        except BlackboardError as error:
            raise EvaluationLostError("evaluation_lost", str(error)) from error
        except tf.errors.OpError as error:
            if not sessions.is_lost(error):
                raise
            raise EvaluationLostError("evaluation_lost", tensorflow_errors.reason(error)) from error
        return self._merged(shares, metrics)

    def _open(self) -> Plan:
        """Returns the plan, with a share for each worker that takes no more steps and is alive, this one included."""
        snapshot, chief = self._board.snapshot(), self._cluster.worker_number
        others = [worker for worker in snapshot.alive() if snapshot.finished[worker] and worker != chief]
        if not self._task.plugins.dataset.is_eval_sharded:
            others = []
        plan = new_plan([Share(worker, int(snapshot.claims[worker])) for worker in [chief, *others]])
        self._exchange.open(plan)
        _log.info("evaluating on %d worker%s", len(plan.shares), "s" * (len(plan.shares) > 1))
        return plan

    def _collect(self, plan: Plan, incarnations: tuple[int, ...]) -> list[ShareResult]:
        """Returns the result of each share, once all are there; of ps with these incarnations."""
        end_secs = time.monotonic() + self._timeouts.eval_secs
        results = {0: self._evaluate(plan, 0)}
        missing = list(range(1, len(plan.shares)))
        reminder = waits.Reminder(lambda: f"the shares of {self._names(plan, missing)}", self._timeouts.eval_secs)
        while missing:
            if self._board.incarnations() != incarnations:  # then the others wait for another plan
                raise EvaluationLostError("evaluation_lost", "a ps has restarted")
            snapshot = self._board.snapshot()  # before the results: a worker leaves when it has delivered
            results.update(self._exchange.results(plan, missing))
            missing = [share for share in missing if share not in results]
            alive = {int(snapshot.claims[worker]) for worker in snapshot.alive()}
            lost = [share for share in missing if plan.shares[share].claim not in alive]
            if lost:  # one at a time: another worker may have delivered in the meantime
                _log.warning("%s has died or left: its share is evaluated here", self._names(plan, lost[:1]))
                results[lost[0]] = self._evaluate(plan, lost[0])
                missing.remove(lost[0])
                continue
            if missing and time.monotonic() > end_secs:
                raise evaluation.too_long(f"waited {self._timeouts.eval_secs:g} s for {reminder.name()}")
            reminder.remind()
            if missing and self._task.stop.wait(_POLL_SECS):
                raise StoppedError("stopped", f"stopped while waiting for {reminder.name()}")
        return [results[share] for share in range(len(plan.shares))]

    def _names(self, plan: Plan, shares: list[int]) -> str:
        return ", ".join(self._cluster.worker_name(plan.shares[share].worker) for share in shares)

    def _merged(self, shares: list[ShareResult], metrics: dict[str, float]) -> Evaluation:
        num_examples = sum(share.num_examples for share in shares)
        evaluation.refuse_empty(self._task.plugins.dataset, num_examples)
        first, last = (function(share.global_step for share in shares) for function in (min, max))
        if first != last:
            _log.warning("the parameters changed during the evaluation, from step %d to step %d: a worker still "
                         "trained", first, last)
        return Evaluation(first, num_examples, self._all_shares.loss_name,
                          math.fsum(share.loss_sum for share in shares), metrics)


class Participation(_Role):
    """The role of a worker other than the chief."""

    def __init__(self, task: PreparedWorker, connected: ConnectedWorker, exchange: ResultExchange) -> None:
        """Prepares it."""
        super().__init__(task, connected, exchange)
        # At existing servers the state "idle" means that all is over, too.
        self._end_states = (State.DONE, State.IDLE) if task.settings.has_server else (State.DONE,)
        self._number = task.cluster.worker_number

    def run(self) -> None:
        """Returns when this worker has delivered its share, or needs to evaluate no share.

        Raises:
          ClusterLostError: the chief does not come back.
          ChiefFailedError: the chief's own code failed.
          UserCodeError: the user's code is at fault, or the share takes too long.
          StoppedError: the task was stopped.
        """
        last_round = 0
        while (assignment := self._wait_for_plan(last_round)) is not None:
            plan, share = assignment
            last_round = plan.round
            try:
                self._exchange.deliver(plan, share, self._evaluate_insistently(plan, share))
                if self._exchange.plan() == plan:
                    return
                # Otherwise the chief has begun another evaluation in the meantime.
            except (tf.errors.OpError, BlackboardError) as error:
                if isinstance(error, tf.errors.OpError) and not sessions.is_lost(error):
                    raise
                _log.warning("the evaluation of share %d was lost: %s; waiting for %s (chief)", share + 1,
                             tensorflow_errors.reason(error), self._cluster.chief)

    def _evaluate_insistently(self, plan: Plan, share: int) -> ShareResult:
        """Does what `_evaluate` does, a second time if an answer was lost: the chief waits for this share."""
        try:
            return self._evaluate(plan, share)
        except tf.errors.DeadlineExceededError as error:
            if self._exchange.plan() != plan:
                raise
            _log.warning("the evaluation of share %d begins again: %s", share + 1, tensorflow_errors.reason(error))
            return self._evaluate(plan, share)

    def _wait_for_plan(self, last_round: int) -> tuple[Plan, int] | None:
        """Returns a new plan and this worker's share in it, or None if training has ended without one."""
        answered_secs = chief_secs = time.monotonic()
        reminder = waits.Reminder(f"{self._cluster.chief} (chief) to begin the evaluation")
        while True:
            now_secs = time.monotonic()
            try:
                snapshot = self._board.snapshot()
                answered_secs = now_secs
                if snapshot.state in self._end_states:
                    return None
                if snapshot.state == State.FAILED:
                    raise ChiefFailedError
                if snapshot.is_alive(self._cluster.number_of(self._cluster.chief)):
                    chief_secs = now_secs
                if assignment := self._find_share(snapshot, last_round):
                    return assignment
            except BlackboardError as error:
                _log.debug("%s", error)
            # A ps 0 that has ended means that training has, too, or that the chief continues without this worker.
            if not last_round and now_secs - answered_secs > 2 * self._timeouts.heartbeat_secs:
                _log.warning("%s is unreachable, and no evaluation has begun: this worker ends", self._board.first_ps)
                return None
            if now_secs - chief_secs > self._timeouts.start_secs:
                raise ClusterLostError("timed_out", f"waited {self._timeouts.start_secs:g} s for {reminder.name()}")
            reminder.remind(now_secs)
            if self._task.stop.wait(_POLL_SECS):
                raise StoppedError("stopped", f"stopped while waiting for {reminder.name()}")

    def _find_share(self, snapshot: Snapshot, last_round: int) -> tuple[Plan, int] | None:
        if not snapshot.finished[self._number]:  # ps 0 has restarted: others would wait for steps of this worker
            self._board.report_finished(self._number)
        plan = self._exchange.plan()
        share = plan and plan.share_of(int(snapshot.claims[self._number]))
        return None if plan is None or share is None or plan.round == last_round else (plan, share)
