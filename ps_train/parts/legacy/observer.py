"""How does an Estimator's evaluator know that training is over? It asks ps 0 about the chief.

    ps 0 answers       the chief's script has ended --> over        it has failed --> ChiefFailedError
    ps 0 is silent     a checkpoint of `max_steps` was evaluated, or no chief or worker answers either --> over

TensorFlow's own evaluator asks nobody, see estimator.py.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time

from ps_train.cluster import reachability, resolve
from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError
from ps_train.parts.legacy.classic import script_cluster
from ps_train.runtime.waits import Timeouts

_ASK_PERIOD_SECS = 1.0


class Observer:
    """Asks ps 0 about the chief: once its script has ended, no further checkpoint is to come."""

    def __init__(self, cluster: Cluster, timeouts: Timeouts) -> None:
        self._cluster, self._timeouts = cluster, timeouts
        self._board: Blackboard | None = None
        self._begun_secs = self._asked_secs = time.monotonic()
        self._answered_secs: float | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def is_over(self, has_max_steps: bool) -> bool:
        """Returns whether training is over; asks at most once a second. Threads may call it.

        Args:
          has_max_steps: whether there is a checkpoint of `max_steps`; a ps that does not answer then has ended.

        Raises:
          ClusterLostError: ps 0 did not answer within the start time-out.
          ChiefFailedError: the chief's script has failed.
        """
        with self._lock:
            now_secs = time.monotonic()
            if not self._is_over and now_secs - self._asked_secs >= _ASK_PERIOD_SECS:
                self._asked_secs = now_secs
                self._is_over = self._ask(now_secs, has_max_steps)
                if self._is_over and self._board is not None:
                    # TensorFlow would close the session when it is deleted, and wait for a ps that has ended.
                    self._board.close()
            return self._is_over

    def _ask(self, now_secs: float, has_max_steps: bool) -> bool:
        first = self._cluster.ps[0]
        try:
            if not reachability.accepts(first.address):
                raise BlackboardError("ps_unreachable", f"{first} does not answer")
            if self._board is None:
                self._board = blackboard.for_client(self._cluster, self._timeouts.heartbeat_secs)
            snapshot = self._board.snapshot()
        except BlackboardError as error:
            return self._has_ended(now_secs, has_max_steps, error)
        self._answered_secs = now_secs
        if snapshot.state == State.FAILED:
            self._board.close()
            raise ChiefFailedError
        return bool(snapshot.finished[self._cluster.number_of(self._cluster.chief)])

    def _has_ended(self, now_secs: float, has_max_steps: bool, error: BlackboardError) -> bool:
        """Returns whether ps 0 has ended; one that was killed may come back, and the chief waits for it."""
        if has_max_steps:  # the original evaluator ends then in any case
            return True
        if self._answered_secs is not None:
            is_silent = now_secs - self._answered_secs > self._timeouts.heartbeat_secs
            return is_silent and not any(reachability.accepts(task.address) for task in self._cluster.workers)
        if now_secs - self._begun_secs > self._timeouts.start_secs:
            raise ClusterLostError(
                "timed_out", f"waited {self._timeouts.start_secs:g} s for {self._cluster.ps[0]}: {error}")
        return False


def observer_from_environment(timeouts: Timeouts) -> Observer | None:
    """Returns the observer of the cluster in TF_CONFIG if this task is its evaluator and the cluster has a ps.

    Raises:
      ConfigError: TF_CONFIG is malformed, or has another number of tasks than the launcher has started.
    """
    tf_config = os.environ.get("TF_CONFIG", "").strip()
    if '"evaluator"' not in tf_config or '"ps"' not in tf_config:
        return None
    cluster = resolve.find_cluster(tf_config=tf_config)
    if cluster.job != "evaluator":
        return None
    # The script may have set TF_CONFIG itself; its servers have the launcher's addresses.
    addresses = script_cluster.launched_addresses(dict(cluster.addresses), cluster.partial)
    return Observer(dataclasses.replace(cluster, addresses=addresses), timeouts)
