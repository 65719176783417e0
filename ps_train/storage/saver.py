"""Saves checkpoints: in a thread while the chief trains, and once more at the end.

    is it time? --> write model.ckpt-N --> read it back --> record it, remove old checkpoints
                       |                     |
                       +- if one fails: --- remove what was written, warn, retry after a growing pause; training goes on

A checkpoint is removed only after a newer one was read back, so at every moment there is one that can be loaded.
docs/decisions/checkpoints.md says more.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, ClusterLostError, FolderLostError, SaveError
from ps_train.runtime import waits
from ps_train.runtime.tensorflow_errors import reason
from ps_train.storage import checkpoints, deltas
from ps_train.storage.folder_lock import FolderLock
from ps_train.storage.schedule import DeltaTimer, SaveSchedule, SaveTimer

_FIRST_PAUSE_SECS = 1.0
_MAX_LAST_PAUSE_SECS = 10.0
_LONGEST_WAIT_SECS = 3600.0  # of a thread that saves on request only
# From the folder, from TensorFlow; from the Saver if its folder is gone (ValueError), or its session (RuntimeError).
_FAILURES = (OSError, tf.errors.OpError, ValueError, RuntimeError, CheckpointError)
_log = logging.getLogger(__name__)


class Savable(NamedTuple):
    """The part of a graph that is saved.

    Attributes:
      save: `save(session, path)` writes a checkpoint with this path prefix.
      global_step: variable, int64 scalar.
      before_save_op: updates the variables before each save.
      save_delta: `save_delta(session, path)` writes what has changed since `delta_base()`.
      delta_base: returns the path of the checkpoint that a delta follows, "" if there is none.
    """

    save: Callable[[tf.Session, str], None]
    global_step: tf.Variable
    before_save_op: tf.Operation
    save_delta: Callable[[tf.Session, str], None] | None = None
    delta_base: Callable[[], str] = str


class CheckpointSaver:
    """Saves the checkpoints of one training, across its sessions."""

    def __init__(
        self, savable: Savable, train_dir: str, schedule: SaveSchedule, is_lost: Callable[[tf.errors.OpError], bool],
        lock: FolderLock | None = None,
    ) -> None:
        """Prepares; nothing is started yet.

        Args:
          is_lost: tells whether an error means that the session is lost, which the session's owner handles.
          lock: the lock of the folder, checked before a file there is written or removed; None to skip the check.
        """
        self._savable = savable
        self._train_dir = train_dir
        self._schedule = schedule
        self._is_lost = is_lost
        self._lock = lock
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._waiting: collections.deque[Callable[[str, str], None]] = collections.deque()
        self._last_path = ""  # of the last step, once it is saved

    def request(self, answer: Callable[[str, str], None]) -> None:
        """Asks for a checkpoint now, or when the next session is there.

        Args:
          answer: is called once with the path of the checkpoint and "", or with "" and what went wrong.
        """
        self._waiting.append(answer)
        if self._last_path:
            self._answer_all()
        self._wake.set()

    def _answer_all(self) -> None:
        """Answers who waits with the last step, behind which there is nothing to save."""
        _answer(self._take_waiting(), path=self._last_path)

    def _take_waiting(self) -> list[Callable[[str, str], None]]:
        taken = []
        with contextlib.suppress(IndexError):  # one by one, as another thread may add one at any time
            while True:
                taken.append(self._waiting.popleft())
        return taken

    def start(self, session: tf.Session) -> None:
        """Starts a thread that saves for as long as the session lasts."""
        self.stop()
        self._last_path = ""
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._keep_saving, args=(session, self._stop, self._wake), daemon=True, name="saving")
        self._thread.start()

    def stop(self) -> None:
        """Tells the thread to end after its current save; does not wait, because that save may be blocked."""
        self._stop.set()
        self._wake.set()

    def _keep_saving(self, session: tf.Session, stop: threading.Event, wake: threading.Event) -> None:
        timer, delta_timer = SaveTimer(self._schedule), DeltaTimer(self._schedule.delta_secs)
        while not self._is_over_after(stop, wake, min(timer.wait_secs(), delta_timer.wait_secs())):
            asked = self._take_waiting()
            try:
                step = self._step(session)
                if asked or timer.is_due(step):
                    self._save(session, step, stop)
                    _answer(asked, path=checkpoints.path_of(self._train_dir, step))
                    timer.saved(step)
                    delta_timer.restart()
                elif delta_timer.wait_secs() == 0:
                    delta_timer.restart()
                    self._save_delta(session, step, stop)
            except FolderLostError as error:  # the lock has already stopped the training
                _answer(asked, problem=str(error))
                _log.debug("no more checkpoints: %s", error)
                return
            except _FAILURES as error:
                _answer(asked, problem=reason(error))
                if stop.is_set() or self._is_over(error):
                    _log.debug("no more checkpoints in this session: %s", error)
                    return
                _log.warning("cannot save to %s: %s; training goes on, the next try is in %.3g s", self._train_dir,
                             reason(error), timer.failed())

    def _is_over_after(self, stop: threading.Event, wake: threading.Event, wait_secs: float) -> bool:
        """Waits for so long, or until somebody asks for a checkpoint; tells whether the session is over."""
        if not self._waiting:
            wake.wait(min(wait_secs, _LONGEST_WAIT_SECS))
        wake.clear()
        return stop.is_set()

    def _save_delta(self, session: tf.Session, step: int, stop: threading.Event) -> None:
        """Writes a delta, unless its checkpoint is gone; raises one of _FAILURES, or FolderLostError."""
        base = self._savable.delta_base()
        if not base or not checkpoints.exists(base):  # one that was not sound was removed
            return
        path = deltas.delta_path(base, step)
        self._check_folder()
        try:
            session.run(self._savable.before_save_op)
            self._savable.save_delta(session, path)
            checkpoints.verify(path)
        except _FAILURES:
            if not stop.is_set():
                self._remove(path)
            raise
        deltas.remove_older_deltas(base, keep=2)
        _log.info("saved %s", path)

    def save_last(self, session: tf.Session) -> None:
        """Saves the current global step, with retries.

        Raises:
          SaveError: no attempt succeeded.
          FolderLostError: another training has taken the folder.
          ClusterLostError: an attempt did not return.
          tf.errors.OpError: the session is lost.
        """
        self.stop()
        timeout_secs = self._schedule.timeout_secs
        deadline_secs = time.monotonic() + timeout_secs
        try:
            waits.bounded(lambda: self._save_before(session, deadline_secs), timeout_secs, "the last checkpoint")
        except FolderLostError:
            raise
        except ClusterLostError as error:
            raise ClusterLostError(f"{error}; {self._last_good()}") from None

    def _save_before(self, session: tf.Session, deadline_secs: float) -> None:
        if self._thread is not None:
            self._thread.join()  # it may be in the middle of a save
        never = threading.Event()
        pause_secs = min(_FIRST_PAUSE_SECS, self._schedule.timeout_secs / 4)
        while True:
            try:
                step = self._step(session)
                self._save(session, step, never)
                self._last_path = checkpoints.path_of(self._train_dir, step)
                self._answer_all()
                return
            except _FAILURES as error:
                if self._is_over(error):
                    raise
                if time.monotonic() + pause_secs >= deadline_secs:
                    raise SaveError(
                        f"cannot save the last step to {self._train_dir} within {self._schedule.timeout_secs:g} s: "
                        f"{reason(error)}; {self._last_good()}; fix that, then run the same command again") from error
                _log.warning("cannot save the last step to %s: %s; the next try is in %.3g s", self._train_dir,
                             reason(error), pause_secs)
            time.sleep(pause_secs)
            pause_secs = min(2 * pause_secs, _MAX_LAST_PAUSE_SECS)

    def _last_good(self) -> str:
        path = checkpoints.newest_sound(self._train_dir)
        return f"the last good checkpoint is {path}" if path else "there is no good checkpoint"

    def _step(self, session: tf.Session) -> int:
        return int(session.run(self._savable.global_step))

    def _save(self, session: tf.Session, step: int, stop: threading.Event) -> None:
        """Makes sure that this global step has a sound checkpoint; raises one of _FAILURES, or FolderLostError."""
        path = checkpoints.path_of(self._train_dir, step)
        self._check_folder()
        if not checkpoints.is_sound(path):
            self._write(session, step, path, stop)
        self._check_folder()
        if not stop.is_set():  # otherwise the thread of another session may be working in the folder
            checkpoints.record_and_prune(self._train_dir, path, self._schedule.keep_max)

    def _check_folder(self) -> None:
        if self._lock is not None:
            self._lock.check()

    def _write(self, session: tf.Session, step: int, path: str, stop: threading.Event) -> None:
        try:
            os.makedirs(self._train_dir, exist_ok=True)
            session.run(self._savable.before_save_op)
            self._savable.save(session, path)
            checkpoints.verify(path)
        except _FAILURES:
            if not stop.is_set():
                self._remove(path)
            raise
        _log.info("saved %s", path)

    def _remove(self, path: str) -> None:
        self._check_folder()
        try:
            checkpoints.remove(path)
            checkpoints.remove_leftovers(self._train_dir)
        except OSError as error:  # the failure that led here says more
            _log.debug("cannot remove %s: %s", path, error)

    def _is_over(self, error: Exception) -> bool:
        """Tells whether an error means that the session is closed or lost, so that no retry can succeed."""
        if isinstance(error, tf.errors.OpError):
            return isinstance(error, tf.errors.CancelledError) or self._is_lost(error)
        return isinstance(error, RuntimeError) and "closed Session" in str(error)


def _answer(asked: Sequence[Callable[[str, str], None]], *, path: str = "", problem: str = "") -> None:
    for answer in asked:
        answer(path, problem)
