"""A thread of a worker that fetches ranges from ps 0 for the input, and reports those that are done.

    repeat:   read the notes of the steps --> which ranges are done? --+
              does the input have a range that waits?  no -------------+--> one call to ps 0 --> the next range
                                                        none is free: the data ends for now

Each worker also looks after silent workers: the chief every second, the others when no range is free.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import sessions
from ps_train.coordination.heartbeat import WorkerProgress
from ps_train.errors import BlackboardError, UserCodeError
from ps_train.parts.sharding.growth_watch import GrowthWatch
from ps_train.parts.sharding.local_ranges import EXHAUSTED, VERDICT, LocalRanges
from ps_train.parts.sharding.range_queue import Assignment, RangeQueue
from ps_train.runtime import clock, tensorflow_errors, threads

_PAUSE_SECS = 0.03
_PAUSE_AFTER_ERROR_SECS = 0.5
_RELEASE_SECS = 1.0
_CALL_SECS = 15.0  # longer than a call to ps 0 may take, see coordination/sessions.py
# In a row; then the input ends for now: a step that waits for it would not see that a ps is lost.
_MAX_ERRORS = 3
_CALL = tf.RunOptions(timeout_in_ms=30_000)  # bounds operations that wait for no other worker
_log = logging.getLogger(__name__)


@dataclasses.dataclass
class _HeldRange:
    assignment: Assignment
    # The worker's count of steps when the last batch was known to be taken; None before that.
    last_taken: int | None = None
    is_pending: bool = False  # whether a batch waits for its verdict
    is_lost: bool = False  # whether the gradients of a batch were lost


class Accounts:
    """Which ranges a worker holds in one session, and which of them it has trained on.

        assigned --> a step takes the last batch, or one of a later range --> that session run has succeeded --> done
                                                                              its gradients were lost --> lost

    In sync, a session run may succeed although its gradients are in no update: then its verdict says so. The input
    reads ranges in the order in which they were assigned.
    """

    def __init__(self, *, has_verdicts: bool = False) -> None:
        """Holds no range yet.

        Args:
          has_verdicts: whether a batch counts as trained on only after a verdict.
        """
        self._has_verdicts = has_verdicts
        self._held: list[_HeldRange] = []
        self._is_exhausted = False

    @property
    def is_read(self) -> bool:
        """Whether the input has read all ranges that are held."""
        return self._is_exhausted or all(entry.last_taken is not None for entry in self._held)

    @property
    def held(self) -> list[Assignment]:
        """The ranges that were assigned and are not confirmed, in their order."""
        return [entry.assignment for entry in self._held]

    def assign(self, assignment: Assignment) -> None:
        """Adds a range."""
        self._held.append(_HeldRange(assignment))

    def note(self, notes: Iterable[tuple[int, int]], num_steps: int) -> None:
        """Adds notes on batches that steps have taken.

        Args:
          notes: the number of each batch's range, and whether it is the last batch of the range; or VERDICT, and
            whether the batches before it are lost; or EXHAUSTED.
          num_steps: the steps that this worker has taken, read after the notes.
        """
        for number, is_last in notes:
            if number == VERDICT:
                for entry in self._held:
                    entry.is_lost |= entry.is_pending and bool(is_last)
                    entry.is_pending = False
                continue
            self._is_exhausted |= number == EXHAUSTED
            numbers = [entry.assignment.number for entry in self._held]
            if number not in numbers:  # of a queue that has started again since
                continue
            # All before it was read: ranges without a batch, too, such as those with malformed lines only.
            num_ended = numbers.index(number) + int(is_last)
            self._held[numbers.index(number)].is_pending = self._has_verdicts
            for entry in self._held[:num_ended]:
                entry.last_taken = num_steps if entry.last_taken is None else entry.last_taken

    def end(self) -> None:
        """Notes that the input has read all ranges, and that every batch was trained on except for those lost."""
        for entry in self._held:
            entry.last_taken, entry.is_pending = -1, False

    def done(self, num_steps: int | None) -> list[Assignment]:
        """Returns the ranges that this worker has trained on.

        Args:
          num_steps: the steps that it has taken; None if no session run is under way.
        """
        # A batch may be of the run that was under way when the notes were read. Once there are more steps, a run has
        # succeeded since, and all that began before it.
        return [entry.assignment for entry in self._held if not (entry.is_pending or entry.is_lost)
                and entry.last_taken is not None and (num_steps is None or num_steps > entry.last_taken)]

    def take_lost(self) -> list[Assignment]:
        """Returns and forgets the ranges that were read to their end, and of which gradients were lost."""
        lost = [entry.assignment for entry in self._held
                if entry.is_lost and not entry.is_pending and entry.last_taken is not None]
        self.confirm(lost)
        return lost

    def confirm(self, assignments: Iterable[Assignment]) -> None:
        """Forgets ranges that ps 0 knows to be done."""
        confirmed = set(assignments)
        self._held = [entry for entry in self._held if entry.assignment not in confirmed]


class RangeFeeder:
    """Feeds one worker's input, in one session after the other.

    Attributes:
      watch: looks for new data, in the chief, if the files grow.
    """

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
        self._accounts = Accounts(has_verdicts=local.has_verdicts)
        self._lost: set[int] = set()  # ranges that this worker still holds on ps 0, to be assigned again
        self._unanswered: set[Assignment] = set()  # ranges that a call has reported as done that had no answer
        self._generation = 0
        self._has_ended = False
        self._failure: Exception | None = None  # has ended the thread; it lacks files of a new chief, for example
        self._released_secs = 0.0
        self.watch = GrowthWatch(local, queue)
        self._stop = clock.event()
        self._thread: threads.Call | None = None

    def start(self, session: tf.Session) -> None:
        """Starts feeding the input of a session, which must be initialised and not in use.

        Raises:
          BlackboardError: a call to ps 0 from an earlier session is still under way.
          ConfigError: this worker lacks a file of the training.
          tf.errors.OpError: the session is lost.
        """
        self._join()
        self._local.adopt(self._queue.plan())
        _run(session, self._local.reset_op)
        self._accounts, self._has_ended = Accounts(has_verdicts=self._local.has_verdicts), False
        self._failure = None  # of an earlier session
        self._unanswered.clear()
        self.watch.restart()
        self._stop = stop = clock.event()
        self._thread = threads.start_thread(lambda: self._feed(session, stop), "ranges")

    def stop(self) -> None:
        """Asks the thread to stop; its last call may still be under way."""
        self._stop.set()

    def _join(self) -> None:
        if self._thread:
            self._thread.join(_CALL_SECS)
            if self._thread.is_alive():  # a range that its call returns would be in no accounts
                raise BlackboardError("ps_unreachable", "a call to the queue of ranges is still under way")

    def settle(self, session: tf.Session, *, is_data_end: bool) -> None:
        """Stops feeding and reports the ranges that are done. No step may be under way.

        Args:
          is_data_end: whether the steps have taken all batches of the input.

        Raises:
          BlackboardError: ps 0 does not answer.
          ConfigError: this worker lacks a file of the training.
          UserCodeError: the input has ended before its ranges.
          tf.errors.OpError: the session is lost.
          Exception: what else has ended the thread.
        """
        self.stop()
        self._join()
        if self._failure:
            raise self._failure
        self._read_notes(session)
        if is_data_end and not (self._has_ended and self._accounts.is_read):
            raise UserCodeError("dataset_ends_early", "--dynamic_sharding: the dataset of input_fn ends before the "
                                "ranges of its files, which would count as trained on, or be read for ever; leave out "
                                "take() and the like, and limit training by --train_steps or --num_epochs")
        if is_data_end:
            self._accounts.end()
        self._forget_lost()
        if done := self._accounts.done(None):
            self._exchange(session, done, wants_another=False)
        if is_data_end and self._lost:
            self.give_back()

    def give_back(self) -> None:
        """Returns the ranges that this worker holds to the queue, for others to get at once.

        Raises:
          BlackboardError: ps 0 does not answer.
        """
        if numbers := self._queue.give_back():
            _log.info("returning ranges to the queue: %s", self._description(numbers))

    def release_silent(self) -> None:
        """Returns the ranges of silent workers to the queue.

        Raises:
          BlackboardError: ps 0 does not answer.
        """
        self._released_secs = clock.now()
        for worker, numbers in self._queue.release_silent().items():
            _log.warning("%s: no heartbeat for %g s; reassigning its ranges: %s", self._cluster.worker_name(worker),
                         self._silent_secs, self._description(numbers))

    def look_around(self) -> None:
        """Returns the ranges of silent workers to the queue; the chief also looks for new data, see `GrowthWatch.look`.

        Raises:
          BlackboardError: ps 0 does not answer.
          Exception: what has ended a look.
        """
        self.release_silent()
        if self._cluster.is_chief and self._local.growing and self._generation:
            self.watch.look(self._generation)

    def _know(self, number: int) -> None:
        """Makes the range of a number known; new data may have come since the last look at the plan on ps 0."""
        if number >= len(self._local.plan):
            self._local.adopt(self._queue.plan())

    def _description(self, numbers: Sequence[int]) -> str:
        """Returns ranges of the queue as text; no more than their numbers if ps 0 does not tell what is new."""
        try:
            self._know(max(numbers))
        except BlackboardError as error:
            return f"number {', '.join(map(str, sorted(numbers)))}; how many bytes is not known ({error})"
        return self._local.describe(numbers)

    def _feed(self, session: tf.Session, stop: threading.Event) -> None:
        num_errors, pause_secs = 0, 0.0
        while not stop.wait(pause_secs):
            try:
                try:
                    has_changed = self._advance(session)
                    num_errors, pause_secs = 0, 0.0 if has_changed else _PAUSE_SECS
                except BlackboardError as error:
                    _log.debug("%s", error)
                    num_errors, pause_secs = num_errors + 1, _PAUSE_AFTER_ERROR_SECS
                    if num_errors == _MAX_ERRORS:
                        self._end(session)
            except tf.errors.DeadlineExceededError as error:
                # The steps may not notice, as after a freeze of this process. The notes of a poll may be lost, or a
                # range that was added: only a new session knows again what the input has.
                self._fail(session, tf.errors.UnavailableError(None, None, f"a call to the input: {error.message}"))
                return
            except (tf.errors.OpError, RuntimeError) as error:  # the session is lost or closed
                _log.debug("no more ranges in this session: %s", error)
                return
            except Exception as error:  # noqa: BLE001 (raised by `settle`)
                self._fail(session, error)
                return

    def _fail(self, session: tf.Session, error: Exception) -> None:
        """Ends the input, so that the steps end soon; then `settle` raises the error."""
        self._failure = error
        try:
            self._has_ended = False  # perhaps not, if that call was not answered
            self._end(session)
        except (tf.errors.OpError, RuntimeError) as end_error:
            _log.warning("the input gets no more ranges, and cannot be ended: %s; a step that waits for it ends after "
                         "--step_timeout_secs", tensorflow_errors.reason(end_error))

    def _advance(self, session: tf.Session) -> bool:
        """Makes the next call to ps 0, if there is a reason for one; returns whether that has changed anything."""
        num_waiting = self._read_notes(session)
        self._forget_lost()
        done = self._accounts.done(self._progress.local_steps)
        wants_another = not num_waiting and not self._has_ended
        if self._cluster.is_chief and clock.now() - self._released_secs > _RELEASE_SECS:
            self.look_around()
        return bool(done or wants_another) and self._exchange(session, done, wants_another=wants_another)

    def _read_notes(self, session: tf.Session) -> int:
        """Returns how many ranges wait for the input."""
        num_waiting, notes = _run(session, self._local.poll)
        self._accounts.note(notes.tolist(), self._progress.local_steps)
        return int(num_waiting)

    def _forget_lost(self) -> None:
        """Forgets ranges whose gradients were lost: ps 0 then assigns them again."""
        if lost := [assignment.number for assignment in self._accounts.take_lost()]:
            self._lost.update(lost)
            _log.warning("gradients of this worker are in no update: a task was lost, they came too late, or training "
                         "has ended; reassigning %s", self._local.describe(lost))

    def _exchange(self, session: tf.Session, done: Sequence[Assignment], *, wants_another: bool) -> bool:
        held = [assignment for assignment in self._accounts.held if assignment not in done]
        try:
            answer = self._queue.exchange(self._generation, done, held, wants_another=wants_another)
        except BlackboardError:
            self._unanswered.update(done)  # ps 0 may have counted them
            raise
        if answer.generation != self._generation:
            self._restart(int(answer.generation))
            return True
        for assignment, is_accepted in zip(done, answer.accepted):
            if not is_accepted and assignment in self._unanswered:
                _log.debug("range %d of epoch %d was reported before", assignment.number, assignment.epoch)
            elif not is_accepted:
                _log.warning("range %d of epoch %d is trained on twice: another worker got it, because this one sent "
                             "no heartbeat for %g s", assignment.number, assignment.epoch, self._silent_secs)
        self._accounts.confirm(done)
        self._unanswered.difference_update(done)
        if answer.taken >= 0:
            self._assign(session, Assignment(int(answer.taken), int(answer.epoch)), bool(answer.is_again))
        elif wants_another:
            self.look_around()
            self._end(session)
        return True

    def _restart(self, generation: int) -> None:
        """Follows a queue that the chief has started again."""
        if held := self._accounts.held:
            _log.warning("the queue of ranges has started again; reassigning the ranges of this worker: %s",
                         self._local.describe([assignment.number for assignment in held]))
        self._accounts, self._generation = Accounts(has_verdicts=self._local.has_verdicts), generation
        self._unanswered.clear()
        self._local.adopt(self._queue.plan())  # before it assigns any of its ranges
        self.watch.freshness.restart()

    def _assign(self, session: tf.Session, assignment: Assignment, is_again: bool) -> None:
        self._know(assignment.number)
        if is_again and assignment.number not in self._lost:
            _log.warning("an earlier process or session of this worker held ranges; reassigning %s",
                         self._local.describe([assignment.number]))
        self._lost.discard(assignment.number)
        _run(session, self._local.add_op, dict(zip(self._local.added, self._local.plan[assignment.number])))
        self._accounts.assign(assignment)  # not before: a range in the accounts is done when the input has ended

    def _end(self, session: tf.Session) -> None:
        if not self._has_ended:
            self._has_ended = True
            _run(session, self._local.end_op)


def _run(session: tf.Session, fetches: Any, feed: Mapping[Any, Any] | None = None) -> Any:
    """Returns `session.run(fetches, feed)`, in bounded time."""
    return sessions.run_bounded(session, fetches, feed, options=_CALL)
