"""The task of a ps: it serves until its own blackboard says that training is done (docs/decisions/processes.md)."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from ps_train.cluster import reachability
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Finished, Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, ConfigError, StoppedError
from ps_train.runtime import clock, threads, waits
from ps_train.runtime.waits import Reminder, Timeouts
from ps_train.storage import journal

_POLL_SECS = 0.25
_TICK_SECS = 0.25
_LATE_SECS = 12.0  # longer than a call to a blackboard that hangs; see coordination/blackboard.py
_RECENT_SECS = _LATE_SECS + 3.0  # a worker that sent no heartbeat for longer is not waited for at the end
_LINGER_SECS = 1.0  # the chief must get the answer to its announcement before the server ends
_FAILURE_SECS = 3.0  # each worker learns of it with one of its heartbeats
_CHECK_PERIOD_SECS = 2.0
_SHARE_OF_GRACE = 0.9  # a ps that is stopped should end by itself and say why
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def running_clock(board: Blackboard) -> Iterator[None]:
    """Runs the clock of a ps's own blackboard while its body runs."""
    def tick() -> None:
        with contextlib.suppress(BlackboardError):  # not created yet, or too busy
            board.tick()

    with threads.repeating(tick, period_secs=_TICK_SECS, name="clock", join_secs=_TICK_SECS):
        yield


class PsTask:
    """Decides how long a ps serves. The server itself works in other threads."""
    # Its `join()` never returns (tensorflow/tensorflow#4713), and keeps Python's signal handlers from running.

    def __init__(
        self, board: Blackboard, find_first: Callable[[], Blackboard], worker_addresses: Mapping[int, str],
        timeouts: Timeouts, stop: threading.Event, train_dir: str = "", train_steps: int = 0,
    ) -> None:
        """Prepares it.

        Args:
          board: the blackboard of this ps.
          find_first: returns that of ps 0, which knows the workers; raises BlackboardError while it is unknown.
          worker_addresses: worker's number -> "host:port", for the workers that the cluster names.
          timeouts: `idle_secs` bounds how long it serves without any worker; `stop_secs` how long it continues after a
            stop, since the chief needs every ps for its last save; `start_secs` bounds how long a worker waits for it,
            and it for a worker if training to `train_steps` in `train_dir` has ended: it was started again in vain.
          stop: makes it end as soon as no worker needs it.
        """
        self._board = board
        self._find_first = find_first
        self._worker_addresses = worker_addresses
        self._idle_timeout_secs = timeouts.idle_secs
        self._over_timeout_secs = min(timeouts.start_secs, timeouts.idle_secs)
        self._last_save_secs = timeouts.stop_secs * _SHARE_OF_GRACE
        self._stop, self._train_dir, self._train_steps, self._is_over = stop, train_dir, train_steps, False
        self._needed_secs = self._checked_secs = clock.now()
        self._reminder = Reminder("a worker", self._idle_timeout_secs)

    def run(self) -> None:
        """Serves until the chief has announced that training is done, or had noted it before this ps was started.

        Raises:
          StoppedError: `stop` was set, and the workers have ended or did not end in time.
          ClusterLostError: the chief failed, or no worker was alive for the idle time-out.
          ConfigError: two tasks have different clusters.
        """
        waits.until(lambda: self._answer(lambda: [self._board.create()]), self._idle_timeout_secs,
                    f"an answer of {self._board.first_ps}", self._stop)
        while not self._is_over and (state := self._answer(self._board.state)) != State.DONE:
            if state == State.FAILED:
                self._stop.wait(_FAILURE_SECS)
                raise ChiefFailedError
            self._check_periodically()
            self._read_request()
            if self._stop.wait(_POLL_SECS):
                self._serve_the_last_save()
                if self._answer(self._board.state) != State.DONE:
                    raise StoppedError("stopped", "stopped while serving")
        self._serve_late_workers()

    def _answer(self, call: Callable[[], Any]) -> Any:
        """Returns `call()`, or None if its own server was too busy to answer, as after a freeze."""
        try:
            return call()
        except BlackboardError as error:
            _log.warning("%s", error)
            return None

    def _read_request(self) -> None:
        with contextlib.suppress(BlackboardError):  # the next call may succeed
            if self._board.is_stop_requested():
                waits.stop_on_request(self._stop)

    def _check_periodically(self) -> None:
        """Checks every few seconds whether this ps is still needed, and whether the tasks have the same cluster."""
        now_secs = clock.now()
        if now_secs - self._checked_secs < _CHECK_PERIOD_SECS:
            return
        self._checked_secs = now_secs
        self._check_agreement()
        self._check_needed(now_secs)

    def _check_agreement(self) -> None:
        """Raises ConfigError if two tasks have different clusters, after the time that all need to learn of it."""
        mismatch = self._mismatch_on(lambda: self._board) or self._mismatch_on(self._find_first)
        if mismatch:
            self._stop.wait(_LATE_SECS)  # a task that starts later would wait for this ps
            self._serve_the_last_save()
            raise ConfigError("clusters_differ", mismatch)

    def _mismatch_on(self, find: Callable[[], Blackboard]) -> str:
        """Returns the mismatch that a ps knows of; "" without one, or if that ps has ended or is unknown."""
        try:
            board = find()
            return board.mismatch() if reachability.accepts(board.first_ps.address) else ""
        except BlackboardError:
            return ""

    def _check_needed(self, now_secs: float) -> None:
        """Raises ClusterLostError if no worker was alive for the idle time-out; sooner if training is over, ends."""
        if self._is_needed():
            self._needed_secs = now_secs
            self._reminder = Reminder("a worker", self._idle_timeout_secs)
        elif now_secs - self._needed_secs > self._over_timeout_secs and (end := self._noted_end()):
            _log.info("no worker was alive for %g s, and training in %s has ended at step %d",
                      self._over_timeout_secs, self._train_dir, end["step"])
            self._is_over = True
        elif now_secs - self._needed_secs > self._idle_timeout_secs:
            raise ClusterLostError("no_workers", f"no worker was alive for {self._idle_timeout_secs:g} s; have they "
                                   "ended, or were they never started?")
        else:
            self._reminder.remind()

    def _noted_end(self) -> Mapping[str, Any] | None:
        """Returns the end of this training by its journal, and not that of an earlier one, which this one continues."""
        end = journal.noted_end(self._train_dir)
        is_own = end and self._board.first_ps.address in end.get("ps", ()) and (
            end.get("train_steps", end["step"]) >= self._train_steps)
        return end if is_own else None

    def _is_needed(self) -> bool:
        snapshot = self._snapshot_of_first()
        return snapshot is not None and bool(snapshot.alive())

    def _snapshot_of_first(self) -> Snapshot | None:
        """Returns the snapshot of ps 0, or None if ps 0 has ended or its address is unknown."""
        try:
            first = self._find_first()
            # A call to a server that has ended takes seconds to fail.
            return first.snapshot() if reachability.accepts(first.first_ps.address) else None
        except BlackboardError:
            return None

    def _serve_late_workers(self) -> None:
        """Waits until every worker knows that training is done, for a bounded time.

        A worker that has just lost ps 0, or was killed and restarted, would otherwise wait in vain.
        """
        is_awaited = self._is_awaited()
        self._stop.wait(_LINGER_SECS)
        end_secs = clock.now() + _LATE_SECS
        while is_awaited and clock.now() < end_secs and not self._stop.wait(_POLL_SECS):
            is_awaited = self._is_awaited()

    def _is_awaited(self) -> bool:
        """Returns whether a worker with a recent heartbeat has neither finished nor left, and may still do so."""
        snapshot = self._snapshot_of_first()
        return snapshot is not None and any(self._may_come(worker, snapshot) for worker in snapshot.alive(_RECENT_SECS))

    def _may_come(self, worker: int, snapshot: Snapshot) -> bool:
        """Returns whether a worker has not ended, and is alive, or at least still answers at its address.

        A killed worker leaves its claim, but nothing answers at its address. One that lost its way to ps 0 answers.
        """
        address = self._worker_addresses.get(worker)
        return snapshot.finished[worker] != Finished.ENDED and (
            snapshot.is_alive(worker) or address is None or reachability.accepts(address))

    def _serve_the_last_save(self) -> None:
        """Waits until no worker is there, or the grace period is nearly over.

        A ps cannot know whether it is the only task that is stopped. Usually all are, and the chief needs every ps for
        its last save. If it is the only one, the workers take a few more steps, which are lost with it.
        """
        end_secs = clock.now() + self._last_save_secs
        while self._is_needed() and (left_secs := end_secs - clock.now()) > 0:
            clock.sleep(min(_POLL_SECS, left_secs))
        if waits.is_stop_requested(self._stop):
            clock.sleep(_LINGER_SECS)  # an evaluator reads the request within that time
