"""Saves checkpoints: in a thread while the chief trains, and once more at the end.

    is it time? --> write model.ckpt-N --> read it back --> record it, remove old checkpoints
                       |                     |
                       +- if one fails: --- remove the files, warn, retry after a growing pause; training goes on
                       +- if none ends: --- a new session, which saves soon

A checkpoint is removed only after a newer one was read back, so at every moment one can be loaded.
docs/decisions/checkpoints.md says more.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import logging
import math
import os
import threading
from collections.abc import Sequence
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, ClusterLostError, FolderLostError, SaveError
from ps_train.runtime import clock, threads, waits
from ps_train.runtime.tensorflow_errors import reason
from ps_train.storage import checkpoints
from ps_train.storage.folder_lock import FolderLock

_POLL_SECS = 0.5  # how often the global step is read, if saves go by steps
_FIRST_SAVE_SECS = 2.0  # of a session: until then TensorFlow builds the graph of the first step, which it would delay
_FIRST_PAUSE_SECS = 1.0
_MAX_PAUSE_SECS = 60.0  # if saves do not go by seconds
_MAX_LAST_PAUSE_SECS = 10.0
_LONGEST_WAIT_SECS = 3600.0  # of a thread that saves on request only
# From the folder, from TensorFlow; from the Saver if its folder is missing (ValueError), or its session (RuntimeError).
_FAILURES = (OSError, tf.errors.OpError, ValueError, RuntimeError, CheckpointError, MemoryError)
_OF_FOLDER = tuple(map(os.strerror, (errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.ENOLCK)))  # else a lost session
_log = logging.getLogger(__name__)


class SaveSchedule(NamedTuple):
    """When the chief saves, and how many checkpoints it keeps.

    Attributes:
      every_secs: time between checkpoints, 0 to save only by steps.
      every_steps: global steps between checkpoints, 0 to save only by time.
      keep_max: checkpoints to keep, at least 1.
      timeout_secs: time for one save; for the last one, including its retries.
    """

    every_secs: float
    every_steps: int
    keep_max: int
    timeout_secs: float


# Writes a checkpoint or a delta: `write(session, path, cut)`. Large parts may be written first, while training goes on.
# Then `cut()` begins the parts that must be of one moment: it returns the path, with the global step of that moment.
# The first path is for temporary files next to it.
Write = Callable[[tf.Session, str, Callable[[], str]], None]


class Deltas(NamedTuple):
    """The changes since the last checkpoint, saved between checkpoints. By default nothing.

    Attributes:
      every_secs: time between two of them, 0 for none.
      path_of: returns a function that names a delta by its global step; None without a checkpoint that it could follow.
      write: writes a delta.
      remove_old: removes the deltas that the one with this path replaces.
    """

    every_secs: float = 0.0
    path_of: Callable[[], Callable[[int], str] | None] = lambda: None
    write: Write | None = None
    remove_old: Callable[[str], None] = lambda path: None


class Savable(NamedTuple):
    """The part of a graph that is saved.

    Attributes:
      save: writes a checkpoint.
      global_step: variable, int64 scalar.
      before_save_op: updates the variables at the cut of each save.
      deltas: the saves between checkpoints.
    """

    save: Write
    global_step: tf.Variable
    before_save_op: tf.Operation
    deltas: Deltas = Deltas()


class CheckpointSaver:
    """Saves the checkpoints of one training, across its sessions."""

    error: tf.errors.OpError | None = None  # why this saver has closed the session

    def __init__(
        self, savable: Savable, train_dir: str, schedule: SaveSchedule, is_lost: Callable[[tf.errors.OpError], bool],
        lock: FolderLock | None = None, note_saved: Callable[[str], None] = lambda path: None,
    ) -> None:
        """Prepares; nothing is started yet.

        Args:
          is_lost: returns whether an error means that the session is lost, which the session's owner handles.
          lock: the lock of the folder, checked before a file there is written or removed; None to skip the check.
          note_saved: takes the path of each checkpoint that was read back.
        """
        self._savable = savable
        self._train_dir, self._schedule = train_dir, schedule
        self._is_lost = is_lost
        self._lock, self._note_saved = lock, note_saved
        self._stop, self._wake = clock.event(), clock.event()
        self._thread: threads.Call | None = None
        self._requests: collections.deque[Callable[[str, str], None]] = collections.deque()
        self._last_path = ""  # of the last step, once it is saved
        self._good_path = ""  # the newest one
        self._bound_secs = schedule.timeout_secs  # of a save; grows with one that takes longer

    def request(self, answer: Callable[[str, str], None]) -> None:
        """Asks for a checkpoint now, or in the next session.

        Args:
          answer: is called once with the path of the checkpoint and "", or with "" and the problem.
        """
        self._requests.append(answer)
        if self._last_path:
            _complete(self._take_requests(), path=self._last_path)
        self._wake.set()

    def _take_requests(self) -> list[Callable[[str, str], None]]:
        requests = []
        with contextlib.suppress(IndexError):  # one by one, as another thread may add one at any time
            while True:
                requests.append(self._requests.popleft())
        return requests

    def start(self, session: tf.Session) -> None:
        """Starts a thread that saves for as long as the session lasts."""
        self.stop()
        self._last_path = ""
        stop, wake = self._stop, self._wake = clock.event(), clock.event()
        self._thread = threads.start_thread(lambda: self._keep_saving(session, stop, wake), "saving")

    def stop(self) -> None:
        """Asks the thread to end after its current save; does not wait, because that save may be blocked."""
        self._stop.set()
        self._wake.set()

    def _keep_saving(self, session: tf.Session, stop: threading.Event, wake: threading.Event) -> None:
        timer, delta_timer = SaveTimer(self._schedule), DeltaTimer(self._savable.deltas.every_secs)

        def save_due(is_requested: bool) -> str:
            step = self._step(session)
            if is_requested or timer.is_due(step):
                return self._save(session, step, stop)
            if delta_timer.wait_secs() == 0 and delta_timer.is_due(step):
                self._save_delta(session, step, stop)
            return ""

        while not self._is_over_after(stop, wake, min(timer.wait_secs(), delta_timer.wait_secs())):
            requests = self._take_requests()
            try:
                # TensorFlow gives a call no time-out of its own, and the answer of a ps can be lost while others come.
                if path := waits.bounded(functools.partial(save_due, bool(requests)), self._bound_secs,
                                         f"a checkpoint in {self._train_dir} (--save_timeout_secs)"):
                    _complete(requests, path=path)
                    timer.saved(checkpoints.step_in_name(path))
                    delta_timer.restart()
            except (*_FAILURES, ClusterLostError) as error:
                _complete(requests, problem=reason(error))
                if stop.is_set() or isinstance(error, FolderLostError):  # the lock has already stopped the training
                    _log.debug("no more checkpoints in this session: %s", error)
                    return
                if isinstance(error, ClusterLostError) or self._is_over(error):
                    stop.set()  # the save may go on: then it records and removes nothing
                    self._bound_secs *= 2 if isinstance(error, ClusterLostError) else 1  # it may have been slow only
                    self.error = tf.errors.UnavailableError(None, None, reason(error))
                    clock.start_call(session.close, threads.CLOSING)  # who trains may not have noticed
                    return
                _log.warning("cannot save to %s: %s; training goes on, the next try is in %.3g s", self._train_dir,
                             reason(error), timer.failed())

    def _is_over_after(self, stop: threading.Event, wake: threading.Event, wait_secs: float) -> bool:
        """Waits for this time, or until a checkpoint is requested; returns whether the session is over."""
        if not self._requests:
            wake.wait(min(wait_secs, _LONGEST_WAIT_SECS))
        wake.clear()
        return stop.is_set()

    def _save_delta(self, session: tf.Session, step: int, stop: threading.Event) -> None:
        """Writes a delta, if there is a checkpoint that it can follow; raises one of _FAILURES, or FolderLostError."""
        deltas = self._savable.deltas
        if (path_of := deltas.path_of()) is None:
            return
        self._check_folder()
        deltas.remove_old(self._write(deltas.write, session, path_of, step, stop))

    def save_last(self, session: tf.Session) -> str:
        """Saves the current global step, with retries; returns the path of its checkpoint.

        Raises:
          SaveError: no attempt succeeded.
          FolderLostError: another training has taken the folder.
          ClusterLostError: an attempt did not return.
          tf.errors.OpError: the session is lost.
        """
        self.stop()
        if self._thread is not None:
            self._thread.join(self._bound_secs)  # it may be in the middle of a save, whose time is not that of this one
        deadline_secs = clock.now() + self._bound_secs
        try:
            waits.bounded(lambda: self._save_before(session, deadline_secs), self._bound_secs,
                          "the last checkpoint (--save_timeout_secs)")
        except FolderLostError:
            raise
        except ClusterLostError as error:
            raise ClusterLostError(error.code, f"{error}; {self._last_good()}") from None
        return self._last_path

    def _save_before(self, session: tf.Session, deadline_secs: float) -> None:
        pause_secs = min(_FIRST_PAUSE_SECS, self._bound_secs / 4)
        while True:
            try:
                self._last_path = self._save(session, self._step(session), clock.event())
                _complete(self._take_requests(), path=self._last_path)
                return
            except _FAILURES as error:
                if self._is_over(error):
                    raise
                if clock.now() + pause_secs >= deadline_secs:
                    raise SaveError(
                        "last_save_failed", f"cannot save the last step to {self._train_dir} within "
                        f"{self._bound_secs:g} s (--save_timeout_secs): {reason(error)}; {self._last_good()}; fix "
                        "that, then run the same command again") from error
                _log.warning("cannot save the last step to %s: %s; the next try is in %.3g s", self._train_dir,
                             reason(error), pause_secs)
            clock.sleep(pause_secs)
            pause_secs = min(2 * pause_secs, _MAX_LAST_PAUSE_SECS)

    def _last_good(self) -> str:
        # The folder itself may be what does not answer.
        return f"the last good checkpoint is {self._good_path}" if self._good_path else "this process has saved none"

    def _step(self, session: tf.Session) -> int:
        return int(session.run(self._savable.global_step))

    def _save(self, session: tf.Session, step: int, stop: threading.Event) -> str:
        """Returns the path of a sound checkpoint of this global step or a later one; raises as `_save_delta` does."""
        path = self._path_of(step)
        self._check_folder()
        if not checkpoints.is_sound(path):
            path = self._write(self._savable.save, session, self._path_of, step, stop)
            self._note_saved(path)
        self._good_path = path
        self._check_folder()
        if not stop.is_set():  # otherwise the thread of another session may be working in the folder
            checkpoints.record_and_prune(self._train_dir, path, self._schedule.keep_max)
        return path

    def _path_of(self, step: int) -> str:
        return checkpoints.path_of(self._train_dir, step)

    def _check_folder(self) -> None:
        if self._lock is not None:
            self._lock.check()

    def _write(
        self, write: Write, session: tf.Session, path_of: Callable[[int], str], step: int, stop: threading.Event
    ) -> str:
        """Returns the path of the files that were written and read back; raises one of _FAILURES."""
        path = path_of(step)

        def cut() -> str:
            nonlocal path
            path = path_of(self._step(session))
            session.run(self._savable.before_save_op)
            return path

        try:
            os.makedirs(self._train_dir, exist_ok=True)
            write(session, path, cut)
            checkpoints.verify(path)
        except _FAILURES:
            if not stop.is_set():
                self._remove(path)
            raise
        _log.info("saved %s", path)
        return path

    def _remove(self, path: str) -> None:
        self._check_folder()
        try:
            checkpoints.remove(path)
            checkpoints.remove_leftovers(self._train_dir)
        except (OSError, CheckpointError) as error:  # the failure that led here says more
            _log.debug("cannot remove %s: %s", path, error)

    def _is_over(self, error: Exception) -> bool:
        """Returns whether an error means that the session is closed or lost, so no retry can succeed."""
        if isinstance(error, tf.errors.OpError):
            is_of_folder = reason(error).endswith(_OF_FOLDER)
            return not is_of_folder and (isinstance(error, tf.errors.CancelledError) or self._is_lost(error))
        return isinstance(error, RuntimeError) and "closed Session" in str(error)


def _complete(requests: Sequence[Callable[[str, str], None]], *, path: str = "", problem: str = "") -> None:
    for answer in requests:
        answer(path, problem)


class SaveTimer:
    """Decides when to save: at once if it goes by steps, else soon; then after some seconds or steps."""

    def __init__(self, schedule: SaveSchedule) -> None:
        self._every_secs = schedule.every_secs or math.inf
        self._every_steps = schedule.every_steps or math.inf
        self._due_secs = clock.now() + min(self._every_secs, _FIRST_SAVE_SECS) if schedule.every_secs else math.inf
        self._due_step = -math.inf if schedule.every_steps else math.inf
        self._pause_secs = 0.0

    def wait_secs(self) -> float:
        """Returns how long to wait before the next call of `is_due`."""
        remaining_secs = max(0.0, self._due_secs - clock.now())
        return remaining_secs if self._every_steps == math.inf else min(remaining_secs, _POLL_SECS)

    def is_due(self, step: int) -> bool:
        """Returns whether to save now, at this global step; after a failure, only after a pause."""
        return clock.now() >= self._due_secs or (not self._pause_secs and step >= self._due_step)

    def saved(self, step: int) -> None:
        """Starts the next interval, after a save at this global step."""
        self._pause_secs = 0.0
        self._due_secs = clock.now() + self._every_secs
        self._due_step = step + self._every_steps

    def failed(self) -> float:
        """Starts a pause, which doubles with each failure up to the interval; returns its length in seconds."""
        self._pause_secs = min(2 * self._pause_secs or _FIRST_PAUSE_SECS, self._every_secs, _MAX_PAUSE_SECS)
        self._due_secs = clock.now() + self._pause_secs
        return self._pause_secs


class DeltaTimer:
    """Decides when to save a delta: some seconds after the last save of any kind."""

    def __init__(self, every_secs: float) -> None:
        self._every_secs = every_secs or math.inf
        self._last_steps = (-1, -1)
        self.restart()

    def restart(self) -> None:
        """Starts the interval again."""
        self._due_secs = clock.now() + self._every_secs

    def wait_secs(self) -> float:
        """Returns how long to wait before the next call of `is_due`."""
        return max(0.0, self._due_secs - clock.now())

    def is_due(self, step: int) -> bool:
        """Starts the interval again; returns whether to save, which is at most twice at one global step."""
        self.restart()
        before, self._last_steps = self._last_steps[0], (self._last_steps[1], step)
        return step != before  # twice, as a range of the input may be noted as done a moment after its last step
