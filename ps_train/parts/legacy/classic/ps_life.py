"""How long a ps serves whose workers run scripts: nobody announces the end, so it is read from the workers.

    every worker has come, or its start time-out is over --+
    those that came have finished or died                  |
    the chief, whose updates the others need, has left   --+--> the ps ends with 0
    the chief's script has failed                            --> 138
    no worker was there for the idle time-out                --> 138
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, ConfigError, StoppedError
from ps_train.parts.legacy.classic.membership import SERVES_ONLY
from ps_train.runtime.waits import Reminder, Timeouts
from ps_train.tasks import ps

_POLL_SECS = 0.5
_LINGER_SECS = 1.0  # the last worker must get the answer to its report before the server ends
_FAILURE_SECS = 3.0  # each worker learns of it from one of its heartbeats
_SHARE_OF_GRACE = 0.9
_log = logging.getLogger(__name__)


class PsLife:
    """Serves until the workers' scripts have ended."""

    def __init__(self, cluster: Cluster, target: str, timeouts: Timeouts, stop: threading.Event) -> None:
        """Prepares it.

        Args:
          stop: makes it end as soon as no worker needs it.
        """
        self._cluster, self._target, self._timeouts, self._stop = cluster, target, timeouts, stop
        self._begun_secs = self._needed_secs = time.monotonic()
        self._had_first = False
        self._awaited = "a worker"
        self._reminder = self._new_reminder()

    def run(self) -> None:
        """Serves to the end.

        Raises:
          ClusterLostError: the chief's script failed, or no worker was there for the idle time-out.
          ConfigError: two tasks were configured with different clusters.
          StoppedError: a signal asked it to stop.
        """
        heartbeat_secs = self._timeouts.heartbeat_secs
        with contextlib.ExitStack() as stack:
            board = stack.enter_context(contextlib.closing(
                blackboard.for_ps(self._target, self._cluster, heartbeat_secs)))
            stack.enter_context(ps.running_clock(board))

            @functools.cache  # an error is not cached: ps 0 may be found later
            def find_first() -> Blackboard:
                if self._cluster.index == 0:
                    return board
                return stack.enter_context(contextlib.closing(
                    blackboard.for_other_ps(board, self._cluster, heartbeat_secs)))

            board.create()
            while not self._is_over(board, find_first):
                if self._stop.wait(_POLL_SECS):
                    self._serve_the_last_save(find_first)
                    raise StoppedError("told to stop while serving")
            self._stop.wait(_LINGER_SECS)

    def _is_over(self, board: Blackboard, find_first) -> bool:
        try:
            if mismatch := board.mismatch():
                raise ConfigError(mismatch)
            snapshot = self._snapshot(find_first)
        except BlackboardError as error:
            _log.debug("%s", error)
            self._check_needed(has_workers=False)
            return False
        if snapshot is None:
            return True
        if snapshot.state == State.FAILED:
            self._stop.wait(_FAILURE_SECS)
            raise ChiefFailedError
        self._check_needed(has_workers=bool(snapshot.alive()))
        return self._have_all_ended(snapshot)

    def _snapshot(self, find_first) -> Snapshot | None:
        """Returns the snapshot of ps 0, or None if ps 0 has ended, which it does only after the workers."""
        first = find_first()
        if not reachability.accepts(first.first_ps.address):
            if self._had_first:
                return self._first_is_gone()
            raise BlackboardError(f"{first.first_ps} is not there yet")
        self._had_first = True
        return first.snapshot()

    def _first_is_gone(self) -> None:
        """Waits for ps 0 to come back: it may have been killed, and then training continues with it.

        Raises:
          BlackboardError: it may still come back.
        """
        if time.monotonic() - self._needed_secs > self._timeouts.heartbeat_secs:
            _log.info("ps:0 has ended, so this ps ends too")
            return None
        raise BlackboardError("ps:0 is gone")

    def _check_needed(self, *, has_workers: bool) -> None:
        now_secs = time.monotonic()
        if has_workers:
            self._needed_secs = now_secs
            self._reminder = self._new_reminder()
        elif now_secs - self._needed_secs > self._timeouts.idle_secs:
            raise ClusterLostError(f"no worker was there for {self._timeouts.idle_secs:g} s; were they ended, or never "
                                   "started?")
        else:
            self._reminder.remind()

    def _new_reminder(self) -> Reminder:
        return Reminder(lambda: self._awaited, self._timeouts.idle_secs)

    def _have_all_ended(self, snapshot: Snapshot) -> bool:
        expected = {number for number in map(self._cluster.number_of, self._cluster.workers)
                    if snapshot.local_steps[number] != SERVES_ONLY}
        finished = {worker for worker in expected if snapshot.finished[worker]}
        came = finished | {worker for worker in expected if snapshot.claims[worker]}
        is_late = time.monotonic() - self._begun_secs > self._timeouts.start_secs
        # The chief reports its end before that of the updates which it makes for the others, and leaves after it.
        chief = self._cluster.number_of(self._cluster.chief)
        is_there = expected & set(snapshot.alive()) - (finished - {chief})
        self._awaited = ", ".join(map(self._cluster.worker_name, sorted(expected - came))) or "a worker"
        if not finished or is_there or not (came == expected or is_late):
            return False
        _log.info("every worker has ended%s; this ps ends",
                  "" if finished == expected else ", or was lost: " + ", ".join(
                      self._cluster.worker_name(worker) for worker in sorted(expected - finished)))
        return True

    def _serve_the_last_save(self, find_first) -> None:
        """Waits until no worker is there, or the grace period is nearly over: the chief saves to the end."""
        end_secs = time.monotonic() + self._timeouts.stop_secs * _SHARE_OF_GRACE
        while time.monotonic() < end_secs:
            try:
                snapshot = self._snapshot(find_first)
            except BlackboardError:
                snapshot = None
            if snapshot is None or not snapshot.alive():
                return
            time.sleep(_POLL_SECS)
