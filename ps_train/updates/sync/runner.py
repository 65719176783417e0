"""Runs the updates of synchronous training on the chief, with as many gradients as the live workers compute.

    thread "updates"   one update after the other; each waits on the ps until the required gradients are there
    thread "quorum"    once a second: which workers are alive? how many gradients are required? is every worker stuck?

    snapshot of the blackboard --Quorum.check--> QuorumStatus: how many gradients the next update has, and whose

It waits for the workers that are alive and not finished, and for a time for those that have not arrived yet. See
docs/decisions/sync.md.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.state import NO_DATA, Finished, Snapshot, State
from ps_train.errors import BlackboardError, ClusterLostError, UserCodeError
from ps_train.graph import nan_guard
from ps_train.runtime import clock, threads
from ps_train.updates.sync.aggregation import SyncOperations, SyncStatus
from ps_train.updates.update import CHECK_SECS, RUN_OPTIONS, ChiefContext, ChiefService, SyncSettings

_log = logging.getLogger(__name__)


class QuorumStatus(NamedTuple):
    """What the next update waits for. Workers are given by number.

    Attributes:
      members: the workers that it waits for.
      missing: the workers that are dead or have not arrived, but may still come.
      finished: the workers that take no more steps, or none for now.
      returning: the members that take none until they know that updates wait for them.
      required: the number of gradients.
      short_secs: for how long the workers that are here have been too few for the floor, 0 if enough or all pause.
      is_hopeless: whether they will always be too few, because too many have finished.
    """

    members: frozenset[int]
    missing: frozenset[int]
    finished: frozenset[int]
    returning: frozenset[int]
    required: int
    short_secs: float
    is_hopeless: bool


class Quorum:
    """The workers of one training, as the chief knows them."""

    def __init__(self, settings: SyncSettings, *, now: Callable[[], float] = clock.now) -> None:
        """Creates a quorum that expects no worker before its first heartbeat; `now` returns seconds."""
        self._settings = settings
        self._all = frozenset(range(settings.num_workers))
        self._now = now
        self._members = self._all
        self._expected: frozenset[int] = frozenset()
        self._expected_until_secs = 0.0
        self._enough_secs: float | None = None

    def expect(self, timeout_secs: float) -> None:
        """Awaits, for this long at most, workers that have not arrived yet.

        At first these are all workers; later, the members at the last check. Call it when the parameters
        are new or restored: the workers have to come, or to come back.
        """
        self._expected = self._members
        self._expected_until_secs = self._now() + timeout_secs
        self._enough_secs = None

    def check(self, snapshot: Snapshot, chief_number: int) -> QuorumStatus:
        """Returns what the next update waits for.

        Args:
          snapshot: what ps 0 knows of the workers.
          chief_number: the number of the chief, which is alive because it asks.
        """
        now_secs, floor = self._now(), self._settings.min_replicas_to_aggregate
        here = self._all & {chief_number, *snapshot.alive()}
        self._expected = self._expected - here if now_secs < self._expected_until_secs else frozenset()
        ended, pausing, returning = (frozenset(worker for worker in self._all if snapshot.finished[worker] == report)
                                     for report in (Finished.ENDED, Finished.PAUSES, Finished.RETURNS))
        finished = ended | pausing
        self._members = members = (here | self._expected) - finished
        if self._enough_secs is None or self._num_gradients(here - finished or pausing) >= floor:
            self._enough_secs = now_secs
        return QuorumStatus(
            members=members, missing=self._all - members - finished, finished=finished, returning=returning,
            required=max(floor, self._num_gradients(members)), short_secs=now_secs - self._enough_secs,
            is_hopeless=self._num_gradients(self._all - finished or pausing) < floor)

    def _num_gradients(self, workers: Iterable[int]) -> int:
        """Returns how many gradients of an update these workers compute."""
        return min(self._settings.replicas_to_aggregate, sum(map(self._settings.gradients_of, workers)))


class UpdateRunner(ChiefService):
    """Runs the updates of one training, in all its sessions."""

    _required_text = "gradients per update from now on: {}"
    _advice = "start them again, or lower --min_replicas_to_aggregate"

    def __init__(self, operations: SyncOperations, quorum: Quorum) -> None:
        self._operations = operations
        self._quorum = quorum
        self._last_quorum: QuorumStatus | None = None
        self._last_status: tuple | None = None
        self._threads: list[threads.Call] = []
        self._stopped = clock.event()

    def start(self, session: tf.Session, context: ChiefContext) -> None:
        """Starts the updates; they run until the session is closed."""
        self.error = None
        self._last_status = None
        self._stopped = stopped = clock.event()
        if not context.is_resumed:
            self._quorum.expect(context.start_timeout_secs)
        self._threads = [
            clock.start_call(functools.partial(self._repeat, work, session, context, stopped), name)
            for name, work in (("updates", self._update), ("quorum", self._check_and_pause))]

    def stop(self) -> None:
        """Stops the checks. An update that waits ends when the session is closed."""
        self._stopped.set()
        for thread in self._threads[1:]:
            thread.join(CHECK_SECS)

    def conclude(self, session: tf.Session) -> None:
        """Logs how many gradients were dropped."""
        num_dropped = sessions.run_bounded(session, self._operations.status.dropped, options=RUN_OPTIONS)
        _log.info("%d gradients came too late for their update and were dropped", num_dropped)

    def _repeat(self, work: Callable, session: tf.Session, context: ChiefContext, stopped: threading.Event) -> None:
        """Repeats the work until stopped. An error closes the session, as a training step may wait for the work."""
        try:
            while not stopped.is_set():
                work(session, context)
        except Exception as error:  # noqa: BLE001 (raised again in the thread that trains)
            if stopped.is_set():
                _log.debug("no more updates in this session: %s", error)
                return
            stopped.set()
            fault = nan_guard.nan_in(error) if isinstance(error, tf.errors.InvalidArgumentError) else None
            self.error = UserCodeError("not_finite", f"in an update of all workers: {fault}; nothing of it was applied."
                                       " Look at the model and its data, or lower --learning_rate") if fault else error
            sessions.close_in_background(session)

    def _update(self, session: tf.Session, context: ChiefContext) -> None:
        session.run(self._operations.update_op)

    def _check_and_pause(self, session: tf.Session, context: ChiefContext) -> None:
        try:
            self._check_quorum(session, context)
        except (BlackboardError, tf.errors.DeadlineExceededError) as error:
            _log.debug("a check of the quorum was not answered: %s", error)  # if a ps is lost, the updates fail
        self._stopped.wait(CHECK_SECS)

    def _check_quorum(self, session: tf.Session, context: ChiefContext) -> None:
        quorum = self._quorum.check(context.board.snapshot(), context.chief_number)
        if quorum.is_hopeless:
            self._end_for_lack_of_data(session, context, quorum)
            return
        if quorum.short_secs > context.start_timeout_secs:
            raise ClusterLostError("workers_missing", f"waited {quorum.short_secs:.0f} s for "
                                   f"{context.names_of(quorum.missing)}: an update needs {quorum.required} gradients; "
                                   f"{self._advice}")
        self._apply_quorum(session, context, quorum)

    def _apply_quorum(self, session: tf.Session, context: ChiefContext, quorum: QuorumStatus) -> None:
        """Lets the updates wait for the gradients that are required from now on."""
        self._log_change(context, quorum)
        _, status = sessions.run_bounded(
            session, [self._operations.require_op, self._operations.status],
            {self._operations.required: quorum.required}, options=RUN_OPTIONS)
        for worker in quorum.returning:
            context.board.await_again(worker)
        if self._is_stuck(quorum, status):
            _log.warning("step %d: every worker waits, and gradients were lost; going on with the next step",
                         status.step)
            sessions.run_bounded(session, self._operations.flush_op, options=RUN_OPTIONS)

    def _log_change(self, context: ChiefContext, quorum: QuorumStatus) -> None:
        """Logs the quorum if it has changed since the last check."""
        last, self._last_quorum = self._last_quorum, quorum
        if last is None and not quorum.missing:
            return
        if last and (last.required, last.missing) == (quorum.required, quorum.missing):
            return
        texts = [self._required_text.format(quorum.required)]
        if quorum.missing:
            texts.append(f"dead or never started: {context.names_of(quorum.missing)}")
        if quorum.finished:
            texts.append(f"finished: {context.names_of(quorum.finished)}")
        _log.log(logging.WARNING if quorum.missing else logging.INFO, "; ".join(texts))

    def _is_stuck(self, quorum: QuorumStatus, status: SyncStatus) -> bool:
        """Returns whether all workers of the quorum wait, too few gradients are there, and nothing has changed.

        This happens after a chief was cut off from the network in the middle of an update.
        """
        waiting = {worker for worker in quorum.members if status.awaited[worker] > status.step}
        # With those who wait: between two checks the last worker may have come, whose update is just taking the gate.
        last, self._last_status = self._last_status, (int(status.step), int(status.gathered), waiting)
        # While an update is under way, its gradients are out of the gate already: however long it takes, no worker is
        # stuck then.
        return (self._last_status == last and bool(waiting) and waiting == quorum.members and quorum.short_secs == 0
                and status.gathered < quorum.required and not status.is_updating)

    def _end_for_lack_of_data(self, session: tf.Session, context: ChiefContext, quorum: QuorumStatus) -> None:
        if context.board.state() < State.STOPPING:
            who = context.names_of(quorum.finished)
            _log.info("%s ran out of data, and too few workers are left for an update: training ends", who)
            context.board.announce_stopping(f"{NO_DATA} for {who}, and too few workers are left for an update")
        sessions.run_bounded(session, self._operations.release_op, options=RUN_OPTIONS)
