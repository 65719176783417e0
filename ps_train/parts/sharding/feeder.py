"""A thread of a worker that fetches ranges from ps 0 for the input, and reports those that are done.

    repeat:   read the notes of the steps --> which ranges are done? --+
              does the input have a range that waits?  no -------------+--> one call to ps 0 --> the next range
                                                        none is free: the data ends for now

Each worker also looks after workers that are silent: the chief every second, the others when no range is free.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination.heartbeat import WorkerProgress
from ps_train.errors import BlackboardError, ConfigError
from ps_train.parts.sharding.accounts import Accounts
from ps_train.parts.sharding.local_ranges import LocalRanges
from ps_train.parts.sharding.range_queue import Assignment, RangeQueue

_PAUSE_SECS = 0.03
_PAUSE_AFTER_ERROR_SECS = 0.5
_RELEASE_SECS = 1.0
_CALL_SECS = 15.0  # longer than a call to ps 0 may take, see coordination/connection.py
# In a row; then the input ends for now: a step that waits for it would not see that a ps is lost.
_MOST_ERRORS = 3
_CALL = tf.RunOptions(timeout_in_ms=30_000)  # bounds operations that wait for no other worker
_log = logging.getLogger(__name__)


class RangeFeeder:
    """Feeds one worker's input, in one session after the other."""

    def __init__(
        self, local: LocalRanges, queue: RangeQueue, cluster: Cluster, progress: WorkerProgress, silent_secs: float
    ) -> None:
        """Prepares it; nothing is sent yet.

        Args:
          progress: has the number of steps that this worker has taken.
          silent_secs: the heartbeat time-out, for messages.
        """
        self._local, self._queue, self._cluster, self._progress = local, queue, cluster, progress
        self._silent_secs = silent_secs
        self._accounts = self._new_accounts()
        self._lost: set[int] = set()  # ranges that this worker still has in hand on ps 0, to be given again
        self._generation = 0
        self._has_ended = False
        self._misfit: ConfigError | None = None  # a new chief's files are not here
        self._released_secs = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, session: tf.Session) -> None:
        """Starts feeding the input of a session, which must be initialised and not in use.

        Raises:
          BlackboardError: a call to ps 0 from an earlier session is still under way.
          ConfigError: a file of the training is not here.
        """
        self._join(_CALL_SECS)
        self._local.adopt(self._queue.plan())
        session.run(self._local.reset_op, options=_CALL)
        self._accounts, self._has_ended = self._new_accounts(), False
        self._stop = stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, args=(session, stop), daemon=True, name="ranges")
        self._thread.start()

    def stop(self) -> None:
        """Tells the thread to stop; its last call may still be under way."""
        self._stop.set()

    def _join(self, timeout_secs: float) -> None:
        if self._thread is None:
            return
        self._thread.join(timeout_secs)
        if self._thread.is_alive():  # what it is given would be lost between two accounts
            raise BlackboardError("a call to the queue of ranges is still under way")

    def settle(self, session: tf.Session, *, is_data_end: bool) -> None:
        """Stops feeding and reports what is done. No step may be under way.

        Args:
          is_data_end: whether the steps have taken all batches of the input.

        Raises:
          BlackboardError: ps 0 does not answer.
          ConfigError: a file of the training is not here.
        """
        self.stop()
        self._join(_CALL_SECS)
        if self._misfit:
            raise self._misfit
        self._read_notes(session)
        if is_data_end and self._has_ended:
            self._accounts.end()
        self._forget_lost()
        if done := self._accounts.done(None):
            self._exchange(session, done, wants_another=False)
        if is_data_end and self._lost:
            self.give_back()

    def give_back(self) -> None:
        """Gives back what this worker has in hand and is not done, so that others get it at once.

        Raises:
          BlackboardError: ps 0 does not answer.
        """
        if numbers := self._queue.give_back():
            _log.info("this worker gives back %s", self._local.shown(numbers))

    def release_silent(self) -> None:
        """Takes the ranges of workers that are silent from their hands.

        Raises:
          BlackboardError: ps 0 does not answer.
        """
        self._released_secs = time.monotonic()
        for worker, numbers in self._queue.release_silent().items():
            _log.warning("%s was not heard of for %g s; what it had in hand is given again: %s",
                         self._cluster.worker_name(worker), self._silent_secs, self._local.shown(numbers))

    def _feed(self, session: tf.Session, stop: threading.Event) -> None:
        num_errors, pause_secs = 0, 0.0
        while not stop.wait(pause_secs):
            try:
                has_changed = self._advance(session)
                num_errors, pause_secs = 0, 0.0 if has_changed else _PAUSE_SECS
            except BlackboardError as error:
                _log.debug("%s", error)
                num_errors, pause_secs = num_errors + 1, _PAUSE_AFTER_ERROR_SECS
                if num_errors == _MOST_ERRORS:
                    self._end(session)
            except ConfigError as error:  # raised by `settle`, once the input has ended
                self._misfit = error
                self._end(session)
                return
            except (tf.errors.OpError, RuntimeError) as error:  # the session is lost or closed
                _log.debug("no more ranges in this session: %s", error)
                return

    def _advance(self, session: tf.Session) -> bool:
        """Makes the next call to ps 0, if there is a reason for one; returns whether that has changed anything."""
        num_waiting = self._read_notes(session)
        self._forget_lost()
        done = self._accounts.done(self._progress.local_steps)
        wants_another = not num_waiting and not self._has_ended
        if self._cluster.is_chief and time.monotonic() - self._released_secs > _RELEASE_SECS:
            self.release_silent()
        return bool(done or wants_another) and self._exchange(session, done, wants_another=wants_another)

    def _read_notes(self, session: tf.Session) -> int:
        """Returns how many ranges wait for the input."""
        num_waiting, notes = session.run(self._local.poll, options=_CALL)
        self._accounts.note(((number, bool(is_last)) for number, is_last in notes.tolist()), self._progress.local_steps)
        return int(num_waiting)

    def _new_accounts(self) -> Accounts:
        return Accounts(has_verdicts=self._local.has_verdicts)

    def _forget_lost(self) -> None:
        """Forgets ranges whose gradients were lost: ps 0 then gives them again."""
        if lost := [one.number for one in self._accounts.take_lost()]:
            self._lost.update(lost)
            _log.warning("a task was lost, or training has ended, before an update had all gradients of this worker; "
                         "given again: %s", self._local.shown(lost))

    def _exchange(self, session: tf.Session, done: Sequence[Assignment], *, wants_another: bool) -> bool:
        held = [one for one in self._accounts.held if one not in done]
        answer = self._queue.exchange(self._generation, done, held, wants_another=wants_another)
        if answer.generation != self._generation:
            self._forget(int(answer.generation))
            return True
        for one, is_accepted in zip(done, answer.accepted):
            if not is_accepted:
                _log.warning("range %d of epoch %d was given to another worker meanwhile, since this one was not heard "
                             "of for %g s: it is trained on twice", one.number, one.epoch, self._silent_secs)
        self._accounts.confirm(done)
        if answer.taken >= 0:
            self._give(session, Assignment(int(answer.taken), int(answer.epoch)), bool(answer.is_again))
        elif wants_another:
            self.release_silent()
            self._end(session)
        return True

    def _forget(self, generation: int) -> None:
        if held := self._accounts.held:
            _log.warning("the queue of ranges has begun anew; what this worker had in hand is given again: %s",
                         self._local.shown([one.number for one in held]))
        self._accounts, self._generation = self._new_accounts(), generation
        self._local.adopt(self._queue.plan())  # before any of its ranges is given

    def _give(self, session: tf.Session, one: Assignment, is_again: bool) -> None:
        if is_again and one.number not in self._lost:
            _log.warning("this worker had ranges in hand when its process or session before this one ended; given "
                         "again: %s", self._local.shown([one.number]))
        self._lost.discard(one.number)
        session.run(self._local.give_op, dict(zip(self._local.given, self._local.plan[one.number])), _CALL)
        self._accounts.give(one)  # not before: a range in the accounts is done when the input has ended

    def _end(self, session: tf.Session) -> None:
        if not self._has_ended:
            self._has_ended = True
            session.run(self._local.end_op, options=_CALL)
