"""What a worker other than the chief does: it waits for the plan, evaluates its share and delivers the result.

    trained --> plan with this worker?  --> evaluate --> deliver --> end
                no, and the training is done, or the chief stays away --> end
"""

from __future__ import annotations

import logging
import threading
import time

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, StoppedError
from ps_train.parts.evaluation_by_workers.exchange import Plan, ResultExchange, ShareResult
from ps_train.parts.evaluation_by_workers.share_graph import Evaluated, ShareGraph
from ps_train.runtime import tensorflow_errors, waits
from ps_train.runtime.waits import Timeouts
from ps_train.training import evaluation

_POLL_SECS = 0.2
_log = logging.getLogger(__name__)


class Participation:
    """The part of one worker in an evaluation by all workers."""

    def __init__(
        self, evaluated: Evaluated, target: str, board: Blackboard, exchange: ResultExchange, timeouts: Timeouts,
        stop: threading.Event, *, ends_idle: bool
    ) -> None:
        """Prepares it.

        Args:
          target: address of this worker's server.
          ends_idle: whether the state "idle" means that all is over, as with --existing_servers.
        """
        self._evaluated, self._target, self._board, self._exchange = evaluated, target, board, exchange
        self._timeouts = timeouts
        self._stop = stop
        self._over = (State.DONE, State.IDLE) if ends_idle else (State.DONE,)
        self._number = evaluated.cluster.worker_number

    def run(self) -> None:
        """Returns when this worker has delivered its share, or no share is wanted of it any more.

        Raises:
          ClusterLostError: the chief stays away.
          ChiefFailedError: the chief's own code failed.
          UserCodeError: the user's code is at fault, or the share takes too long.
          StoppedError: told to stop.
        """
        last_round = 0
        while (found := self._wait_for_plan(last_round)) is not None:
            plan, share = found
            last_round = plan.round
            try:
                self._exchange.deliver(plan, share, evaluate_share(
                    self._evaluated, self._target, share, plan, self._timeouts.eval_secs, self._stop))
                if self._exchange.plan() == plan:
                    return
                # Otherwise the chief has begun another evaluation meanwhile.
            except (tf.errors.OpError, BlackboardError) as error:
                if isinstance(error, tf.errors.OpError) and not sessions.is_lost(error):
                    raise
                _log.warning("the evaluation of share %d was lost: %s; waiting for %s (chief)", share + 1,
                             tensorflow_errors.reason(error), self._evaluated.cluster.chief)

    def _wait_for_plan(self, last_round: int) -> tuple[Plan, int] | None:
        """Returns a new plan and this worker's share in it, or None if training has ended without one."""
        answered_secs = chief_secs = time.monotonic()
        reminder = waits.Reminder(f"{self._evaluated.cluster.chief} (chief) to begin the evaluation")
        while True:
            now_secs = time.monotonic()
            try:
                snapshot = self._board.snapshot()
                answered_secs = now_secs
                if snapshot.state in self._over:
                    return None
                if snapshot.state == State.FAILED:
                    raise ChiefFailedError
                if snapshot.is_alive(self._evaluated.cluster.number_of(self._evaluated.cluster.chief)):
                    chief_secs = now_secs
                if found := self._find_share(snapshot, last_round):
                    return found
            except BlackboardError as error:
                _log.debug("%s", error)
            if not last_round and self._has_gone(now_secs - answered_secs):
                return None
            if now_secs - chief_secs > self._timeouts.start_secs:
                raise ClusterLostError(f"waited {self._timeouts.start_secs:g} s for {self._evaluated.cluster.chief} "
                                       "(chief) to begin the evaluation")
            reminder.remind(now_secs)
            if self._stop.wait(_POLL_SECS):
                raise StoppedError(f"told to stop while waiting for {self._evaluated.cluster.chief} (chief) to begin "
                                   "the evaluation")

    def _find_share(self, snapshot: Snapshot, last_round: int) -> tuple[Plan, int] | None:
        if not snapshot.finished[self._number]:  # ps 0 has restarted: others would wait for steps of this worker
            self._board.report_finished(self._number)
        plan = self._exchange.plan()
        share = plan and plan.share_of(int(snapshot.claims[self._number]))
        return None if plan is None or share is None or plan.round == last_round else (plan, share)

    def _has_gone(self, silent_secs: float) -> bool:
        """Tells whether ps 0 is gone for good: then training has ended, or the chief goes on without this worker."""
        if silent_secs <= 2 * self._timeouts.heartbeat_secs:
            return False
        _log.warning("%s is gone, and no evaluation has begun: this worker ends", self._board.first_ps)
        return True


def evaluate_share(
    evaluated: Evaluated, target: str, share: int, plan: Plan, timeout_secs: float, stop: threading.Event
) -> ShareResult:
    """Returns what comes out of a share, in bounded time.

    Raises:
      UserCodeError: a plug-in breaks its contract, or the share takes longer.
      StoppedError: `stop` was set first.
      tf.errors.OpError: a ps is lost, or the user's code failed.
    """
    graph = ShareGraph(evaluated, (share, len(plan.shares)))
    _log.info("evaluating share %d of %d", share + 1, len(plan.shares))
    try:
        return waits.bounded(lambda: graph.evaluate(target), timeout_secs,
                             f"the evaluation of share {share + 1} of {len(plan.shares)}", stop)
    except ClusterLostError as error:
        raise evaluation.too_long(str(error)) from None
