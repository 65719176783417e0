"""Runs the updates of synchronous training, in the chief, with as many gradients as there are live workers for.

    thread "updates"   one update after the other; each waits on the ps until the required gradients are there
    thread "look"      each second: who is there? how many gradients are required? is every worker stuck?
"""

from __future__ import annotations

import logging
import threading
from typing import Callable

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ClusterLostError
from ps_train.updates.chief import LOOK_SECS, RUN_OPTIONS, ChiefService, Watch
from ps_train.updates.sync.aggregation import Operations, SyncStatus
from ps_train.updates.sync.quorum import Need, Quorum

_log = logging.getLogger(__name__)


class UpdateRunner(ChiefService):
    """Runs the updates of one training, over all its sessions."""

    _need_told = "gradients per update from now on: {}"
    _advice = "start them again, or lower --min_replicas_to_aggregate"

    def __init__(self, operations: Operations, quorum: Quorum) -> None:
        """Prepares; nothing is started yet."""
        self._operations = operations
        self._quorum = quorum
        self._last_need: Need | None = None
        self._last_status: tuple | None = None
        self._threads: list[threading.Thread] = []
        self._stopped = threading.Event()

    def start(self, session: tf.Session, watch: Watch) -> None:
        """Runs the updates as long as the session lasts."""
        self.error = None
        self._last_status = None
        self._stopped = stopped = threading.Event()
        if not watch.is_live:
            self._quorum.expect(watch.start_timeout_secs)
        self._threads = [
            threading.Thread(target=self._repeat, args=(work, session, watch, stopped), daemon=True, name=name)
            for name, work in (("updates", self._update), ("look", self._look_and_pause))]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the looks; the update that waits ends when the session is closed."""
        self._stopped.set()
        for thread in self._threads[1:]:
            thread.join(LOOK_SECS)

    def conclude(self, session: tf.Session) -> None:
        """Says how many gradients were dropped."""
        num_dropped = session.run(self._operations.status.dropped, options=RUN_OPTIONS)
        _log.info("%d gradients came too late for their update and were dropped", num_dropped)

    def _repeat(self, work: Callable, session: tf.Session, watch: Watch, stopped: threading.Event) -> None:
        """Does the work until stopped; an error closes the session, for the step at hand may be waiting for it."""
        try:
            while not stopped.is_set():
                work(session, watch)
        except Exception as error:  # noqa: BLE001 (raised in the thread that trains, whatever it is)
            if stopped.is_set():
                _log.debug("no more updates in this session: %s", error)
                return
            stopped.set()
            self.error = error
            sessions.close_in_background(session)

    def _update(self, session: tf.Session, watch: Watch) -> None:
        session.run(self._operations.update_op)

    def _look_and_pause(self, session: tf.Session, watch: Watch) -> None:
        try:
            self._look(session, watch)
        except (BlackboardError, tf.errors.DeadlineExceededError) as error:
            _log.debug("a look was not answered: %s", error)  # where a ps is gone, the updates fail
        self._stopped.wait(LOOK_SECS)

    def _look(self, session: tf.Session, watch: Watch) -> None:
        need = self._quorum.look(watch.board.snapshot(), watch.own)
        if need.is_hopeless:
            self._end_for_want_of_data(session, watch, need)
            return
        if need.short_secs > watch.start_timeout_secs:
            raise ClusterLostError(f"waited {need.short_secs:.0f} s for {watch.name(need.missing)}: an update needs "
                                   f"{need.required} gradients; {self._advice}")
        self._follow(session, watch, need)

    def _follow(self, session: tf.Session, watch: Watch, need: Need) -> None:
        """Lets the updates wait for those who are needed from now on."""
        self._tell(watch, need)
        _, status = session.run([self._operations.look_op, self._operations.status],
                                  {self._operations.required: need.required}, RUN_OPTIONS)
        if self._is_stuck(need, status):
            _log.warning("step %d: every worker waits, and gradients were lost; going on with the next step",
                         status.step)
            session.run(self._operations.flush_op, options=RUN_OPTIONS)

    def _tell(self, watch: Watch, need: Need) -> None:
        """Says who is waited for, when that has changed."""
        last, self._last_need = self._last_need, need
        if last is None and not need.missing or last and (last.required, last.missing) == (need.required, need.missing):
            return
        told = [self._need_told.format(need.required)]
        if need.missing:
            told.append(f"dead, or did not come: {watch.name(need.missing)}")
        if need.finished:
            told.append(f"finished: {watch.name(need.finished)}")
        _log.log(logging.WARNING if need.missing else logging.INFO, "; ".join(told))

    def _is_stuck(self, need: Need, status: SyncStatus) -> bool:
        """Tells whether nobody will push, and nothing has moved since the last look, though all who are needed live.

        So it is after a chief was cut off from the network, its last update half done on the ps. While an update is
        under way, nobody is stuck, however long it takes: its gradients are out of the gate already.
        """
        last, self._last_status = self._last_status, (int(status.step), int(status.gathered))
        waiting = {worker for worker in need.living if status.awaited[worker] > status.step}
        return (self._last_status == last and bool(waiting) and waiting == need.living and need.short_secs == 0
                and status.gathered < need.required and not status.is_updating)

    def _end_for_want_of_data(self, session: tf.Session, watch: Watch, need: Need) -> None:
        if watch.board.state() < State.STOPPING:
            _log.info("the data of %s is out, and too few workers are left for an update: training ends",
                      watch.name(need.finished))
            watch.board.announce(State.STOPPING)
        session.run(self._operations.release_op, options=RUN_OPTIONS)
