"""What a worker learns while its script is inside TensorFlow, waiting for something that may never come.

    another process has its number       --> ClusterLostError
    it was told of another cluster       --> ConfigError
    the chief's script has failed        --> ChiefFailedError, unless the script ends by itself first
    a ps, or in sync the chief, is gone  --> ClusterLostError, after the start time-out
"""

from __future__ import annotations

import math
import time

from ps_train.cluster.spec import Cluster
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.heartbeat import Heartbeat
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, ConfigError
from ps_train.runtime.waits import Timeouts

_CHIEF_FAILED_SECS = 3.0  # for the script to end by itself


class Watch:
    """Raises the error that must end a worker which has joined."""

    def __init__(self, cluster: Cluster, board: Blackboard, heartbeat: Heartbeat, timeouts: Timeouts) -> None:
        """Begins to count.

        Args:
          board: the worker's view of the blackboard.
          heartbeat: it has claimed the worker's number.
          timeouts: a ps, or in sync the chief, may be gone for its `start_secs`.
        """
        self._cluster, self._board, self._heartbeat, self._timeouts = cluster, board, heartbeat, timeouts
        self._answered_secs = self._chief_seen_secs = time.monotonic()
        self._chief_failed_secs = math.inf

    def check_own(self) -> None:
        """Checks what this worker's heartbeat has learnt.

        Raises:
          ClusterLostError: another process has taken the place of this one.
          ConfigError: the tasks were told of different clusters.
          ChiefFailedError: the chief's script has failed, and this one has not ended because of that.
        """
        heartbeat, cluster = self._heartbeat, self._cluster
        if heartbeat.is_replaced:
            raise ClusterLostError(f"another process has taken the place of {cluster.task}, which was not heard of for "
                                   f"{self._timeouts.heartbeat_secs:g} s; this one ends")
        if heartbeat.mismatch:
            raise ConfigError(heartbeat.mismatch)
        if heartbeat.has_chief_failed and not cluster.is_chief:
            self._chief_failed_secs = min(self._chief_failed_secs, time.monotonic())
            if time.monotonic() - self._chief_failed_secs > _CHIEF_FAILED_SECS:
                raise ChiefFailedError

    def check_others(self, *, waits_for_chief: bool) -> None:
        """Asks every ps.

        Args:
          waits_for_chief: whether this worker trains in sync, with the updates of the chief.

        Raises:
          ClusterLostError: a ps, or a chief that is waited for, has been gone for the start time-out.
        """
        start_secs, now_secs = self._timeouts.start_secs, time.monotonic()
        try:
            self._board.is_prepared()  # asks every ps
            chief = self._cluster.number_of(self._cluster.chief)
            snapshot = self._board.snapshot()
        except BlackboardError as error:
            if now_secs - self._answered_secs > start_secs:
                raise ClusterLostError(f"waited {start_secs:g} s for an answer of "
                                       f"{', '.join(map(str, self._cluster.ps))}: {error}") from error
            return
        self._answered_secs = now_secs
        if snapshot.is_alive(chief) or not waits_for_chief:
            self._chief_seen_secs = now_secs
        elif now_secs - self._chief_seen_secs > start_secs:
            raise ClusterLostError(f"waited {start_secs:g} s for {self._cluster.chief} (chief), which makes the "
                                   "updates")
