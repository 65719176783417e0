"""Tells an evaluator, which has no server and no claim, whether the training that TF_CONFIG describes is over."""

from __future__ import annotations

import logging
import os
import time

from ps_train.cluster import reachability, resolve
from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ClusterLostError
from ps_train.runtime.waits import Timeouts

_ASK_PERIOD_SECS = 1.0
_log = logging.getLogger(__name__)


class Observer:
    """Asks ps 0 about the chief: once its script has ended, no further checkpoint is to come."""

    def __init__(self, cluster: Cluster, timeouts: Timeouts) -> None:
        """Prepares it; nothing is sent yet."""
        self._cluster, self._timeouts = cluster, timeouts
        self._board: Blackboard | None = None
        self._begun_secs = self._asked_secs = time.monotonic()
        self._answered_secs: float | None = None
        self._is_over = False

    def is_over(self) -> bool:
        """Tells whether training is over, asking at most once a second.

        Raises:
          ClusterLostError: ps 0 was not there within the start time-out.
        """
        now_secs = time.monotonic()
        if not self._is_over and now_secs - self._asked_secs >= _ASK_PERIOD_SECS:
            self._asked_secs = now_secs
            self._is_over = self._ask(now_secs)
        return self._is_over

    def _ask(self, now_secs: float) -> bool:
        first = self._cluster.ps[0]
        try:
            if not reachability.accepts(first.address):
                raise BlackboardError(f"{first} is not there")
            if self._board is None:
                self._board = blackboard.for_client(self._cluster, self._timeouts.heartbeat_secs)
            snapshot = self._board.snapshot()
        except BlackboardError as error:
            return self._is_gone(now_secs, error)
        self._answered_secs = now_secs
        return snapshot.state == State.FAILED or bool(snapshot.finished[self._cluster.number_of(self._cluster.chief)])

    def _is_gone(self, now_secs: float, error: BlackboardError) -> bool:
        """Tells whether ps 0 has ended; one that was killed may come back within the heartbeat time-out."""
        if self._answered_secs is not None:
            return now_secs - self._answered_secs > self._timeouts.heartbeat_secs
        if now_secs - self._begun_secs > self._timeouts.start_secs:
            raise ClusterLostError(f"waited {self._timeouts.start_secs:g} s for {self._cluster.ps[0]}: {error}")
        return False


def from_environment(timeouts: Timeouts) -> Observer | None:
    """Returns the observer of the cluster in TF_CONFIG if this task is its evaluator and the cluster has a ps."""
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text or '"evaluator"' not in text or '"ps"' not in text:
        return None
    cluster = resolve.find_cluster(tf_config=text)
    return Observer(cluster, timeouts) if cluster.job == "evaluator" else None
