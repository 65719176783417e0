"""The life of a ps: it serves until training is over, as its own blackboard says."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Callable

from ps_train.cluster import reachability
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, ConfigError, StoppedError
from ps_train.runtime import threads
from ps_train.runtime.timeouts import Timeouts

_POLL_SECS = 0.25
_TICK_SECS = 0.25
_LATE_SECS = 12.0  # longer than a call to a blackboard that hangs, see coordination/blackboard.py
_LINGER_SECS = 1.0  # so that the chief gets the answer to its announcement before the server is gone
_FAILURE_SECS = 3.0  # so that each worker hears of it with one of its beats, whatever it is waiting for
_ASK_PERIOD_SECS = 2.0
_SHARE_OF_GRACE = 0.9  # so that a ps that is told to stop ends by itself, and says why
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def running_clock(board: Blackboard) -> Iterator[None]:
    """Lets the clock of a ps's own blackboard go while its body runs."""
    def tick() -> None:
        with contextlib.suppress(BlackboardError):  # not put up yet, or too busy
            board.tick()

    with threads.repeating(tick, period_secs=_TICK_SECS, name="clock", join_secs=_TICK_SECS):
        yield


class PsTask:
    """How long a ps serves.

    The server works in threads of its own. Its `join()` would never return (tensorflow/tensorflow#4713) and would
    keep Python's signal handlers from running.
    """

    def __init__(
        self, own: Blackboard, find_first: Callable[[], Blackboard], worker_addresses: Mapping[int, str],
        timeouts: Timeouts, stop: threading.Event,
    ) -> None:
        """Prepares it.

        Args:
          own: this ps's view of itself.
          find_first: returns its view of ps 0, which knows the workers; raises BlackboardError as long as this ps
            does not know where that is.
          worker_addresses: worker's number -> "host:port", for the workers that the cluster names.
          timeouts: `idle_secs` bounds how long it serves without any worker; `stop_secs` how long it goes on once it
            is told to stop, since the chief needs every ps for its last save.
          stop: asks it to end as soon as no worker needs it any more.
        """
        self._own = own
        self._find_first = find_first
        self._worker_addresses = worker_addresses
        self._idle_timeout_secs = timeouts.idle_secs
        self._last_save_secs = timeouts.stop_secs * _SHARE_OF_GRACE
        self._stop = stop
        self._needed_secs = self._asked_secs = time.monotonic()

    def run(self) -> None:
        """Serves until the chief has announced that training is done.

        Raises:
          StoppedError: `stop` was set, and the workers have ended or were waited for in vain.
          ClusterLostError: the chief gave up, or no worker was there for the idle time-out.
          ConfigError: the tasks were told of different clusters.
        """
        self._own.put_up()
        while (state := self._state()) != State.DONE:
            if state == State.FAILED:
                self._stop.wait(_FAILURE_SECS)
                raise ChiefFailedError
            self._look_around()
            if self._stop.wait(_POLL_SECS):
                self._serve_the_last_save()
                raise StoppedError("told to stop while serving")
        self._serve_the_late()

    def _state(self) -> State | None:
        """Returns the training state, or None where even this machine's own server was too busy to say."""
        try:
            return self._own.state()
        except BlackboardError as error:
            _log.warning("%s", error)
            return None

    def _look_around(self) -> None:
        """Looks from time to time whether this ps is of use."""
        now_secs = time.monotonic()
        if now_secs - self._asked_secs < _ASK_PERIOD_SECS:
            return
        self._asked_secs = now_secs
        self._check_agreement()
        self._check_needed(now_secs)

    def _check_agreement(self) -> None:
        """Raises ConfigError where the tasks were told of different clusters, once they had time to hear of it."""
        mismatch = self._mismatch_on(lambda: self._own) or self._mismatch_on(self._find_first)
        if mismatch:
            self._stop.wait(_LATE_SECS)  # a task that is started later would wait for a ps that is gone
            self._serve_the_last_save()
            raise ConfigError(mismatch)

    def _mismatch_on(self, find: Callable[[], Blackboard]) -> str:
        """Returns what a ps knows of that, "" where it is gone or not known yet."""
        try:
            board = find()
            return board.mismatch() if reachability.accepts(board.first_ps.address) else ""
        except BlackboardError:
            return ""

    def _check_needed(self, now_secs: float) -> None:
        """Raises ClusterLostError where no worker was there for the idle time-out."""
        if self._is_needed():
            self._needed_secs = now_secs
        elif now_secs - self._needed_secs > self._idle_timeout_secs:
            raise ClusterLostError(f"no worker was there for {self._idle_timeout_secs:g} s; were they ended, or never "
                                   "started?")

    def _is_needed(self) -> bool:
        snapshot = self._snapshot_of_first()
        return snapshot is not None and bool(snapshot.alive())

    def _snapshot_of_first(self) -> Snapshot | None:
        """Returns what ps 0 knows, or None where it is gone or not known yet."""
        try:
            first = self._find_first()
            # A call to a server that is gone takes seconds to say so.
            return first.snapshot() if reachability.accepts(first.first_ps.address) else None
        except BlackboardError:
            return None

    def _serve_the_late(self) -> None:
        """Returns when every worker knows that training is done, or is not back after a while.

        One that has just lost ps 0, or was killed and is started again, would wait for a cluster that is gone.
        """
        is_awaited = self._is_awaited()
        self._stop.wait(_LINGER_SECS)
        end_secs = time.monotonic() + _LATE_SECS
        while is_awaited and time.monotonic() < end_secs and not self._stop.wait(_POLL_SECS):
            is_awaited = self._is_awaited()

    def _is_awaited(self) -> bool:
        """Tells whether a worker that was heard of lately has neither finished nor left, and may still do so."""
        snapshot = self._snapshot_of_first()
        return snapshot is not None and any(not snapshot.finished[worker] and self._may_come(worker, snapshot)
                                            for worker in snapshot.alive(_LATE_SECS))

    def _may_come(self, worker: int, snapshot: Snapshot) -> bool:
        """Tells whether a worker is there or, for as long as its beats may miss, on its way back.

        One that was killed leaves its claim behind, but nobody at its address. One that only cannot reach ps 0 for a
        while is still there.
        """
        address = self._worker_addresses.get(worker)
        return snapshot.is_alive(worker) or address is None or reachability.accepts(address)

    def _serve_the_last_save(self) -> None:
        """Returns when no worker is there, or the grace period is nearly over.

        A ps cannot know whether it alone was told to stop. All are, as a rule, and then the chief needs it for its last
        save. If it is alone, these are some more steps, which are lost with it.
        """
        end_secs = time.monotonic() + self._last_save_secs
        while self._is_needed() and (left_secs := end_secs - time.monotonic()) > 0:
            time.sleep(min(_POLL_SECS, left_secs))
