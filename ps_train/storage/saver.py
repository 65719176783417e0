"""When and how the chief saves: in a thread while it trains, and once more at the end.

    is it time? --> write model.ckpt-N --> read it back --> note it, remove old ones
                       |                     |
                       +-- it failed: remove what there is of it, warn, train on, try again after a growing pause

A checkpoint is removed only when a newer one was read back, so at every moment there is one that loads.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, ClusterLostError, FolderLostError, SaveError
from ps_train.runtime import waits
from ps_train.runtime.tensorflow_errors import reason
from ps_train.storage import checkpoints
from ps_train.storage.folder_lock import FolderLock

_POLL_SECS = 0.5  # how often the global step is asked for, where it decides
_FIRST_PAUSE_SECS = 1.0
_LONGEST_PAUSE_SECS = 60.0  # where no interval in seconds was asked for
_LONGEST_LAST_PAUSE_SECS = 10.0
# Of the folder, of TensorFlow; of the Saver, whose folder is gone (ValueError); of a closed session (RuntimeError).
_FAILURES = (OSError, tf.errors.OpError, ValueError, RuntimeError, CheckpointError)
_log = logging.getLogger(__name__)


class SaveSchedule(NamedTuple):
    """When the chief saves, and how much it keeps.

    Attributes:
      every_secs: time between checkpoints, 0 for none by time.
      every_steps: global steps between checkpoints, 0 for none by steps.
      keep_max: checkpoints to keep, at least 1.
      timeout_secs: bound of the last save, with all its tries.
    """

    every_secs: float
    every_steps: int
    keep_max: int
    timeout_secs: float


class Savable(NamedTuple):
    """What is saved of a graph.

    Attributes:
      saver: writes the variables.
      global_step: the variable, int64 scalar.
      before_save_op: brings the variables up to date before each save.
    """

    saver: tf.train.Saver
    global_step: tf.Variable
    before_save_op: tf.Operation


class Turns:
    """Tells when it is time to save: at once, and again after so many seconds or steps, whichever comes first."""

    def __init__(self, schedule: SaveSchedule) -> None:
        self._every_secs = schedule.every_secs or math.inf
        self._every_steps = schedule.every_steps or math.inf
        self._due_secs = time.monotonic()
        self._due_step = -math.inf
        self._pause_secs = 0.0

    def wait_secs(self) -> float:
        """Returns how long to wait before asking again."""
        remaining_secs = max(0.0, self._due_secs - time.monotonic())
        return remaining_secs if self._every_steps == math.inf else min(remaining_secs, _POLL_SECS)

    def is_due(self, step: int) -> bool:
        """Tells whether to save now, at this global step; after a failure the pause comes first."""
        is_time = time.monotonic() >= self._due_secs
        return is_time or (not self._pause_secs and step >= self._due_step)

    def saved(self, step: int) -> None:
        """Notes that a checkpoint of this global step is there."""
        self._pause_secs = 0.0
        self._due_secs = time.monotonic() + self._every_secs
        self._due_step = step + self._every_steps

    def failed(self) -> float:
        """Notes a failure; returns the seconds until the next try, twice as many each time up to the interval."""
        longest_secs = min(self._every_secs, _LONGEST_PAUSE_SECS)
        self._pause_secs = min(2 * self._pause_secs or _FIRST_PAUSE_SECS, longest_secs)
        self._due_secs = time.monotonic() + self._pause_secs
        return self._pause_secs


class Saving:
    """Saves the parameters of one training, over all its sessions."""

    def __init__(
        self, savable: Savable, train_dir: str, schedule: SaveSchedule, is_lost: Callable[[tf.errors.OpError], bool],
        lock: FolderLock | None = None,
    ) -> None:
        """Prepares; nothing is started yet.

        Args:
          is_lost: tells whether an error means that the session is lost, which its owner notices without us.
          lock: of the folder, asked before a file there is written or removed; None where nobody shares it.
        """
        self._savable = savable
        self._train_dir = train_dir
        self._schedule = schedule
        self._is_lost = is_lost
        self._lock = lock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, session: tf.Session) -> None:
        """Starts the thread that saves as long as the session lasts."""
        self.stop()
        if not self._schedule.every_secs and not self._schedule.every_steps:
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._keep_saving, args=(session, self._stop), daemon=True, name="saving")
        self._thread.start()

    def stop(self) -> None:
        """Lets the thread end after the save that it is in; it may be blocked there, so nobody waits for it."""
        self._stop.set()

    def _keep_saving(self, session: tf.Session, stop: threading.Event) -> None:
        turns = Turns(self._schedule)
        while not stop.wait(turns.wait_secs()):
            try:
                step = self._step(session)
                if turns.is_due(step):
                    self._save(session, step, stop)
                    turns.saved(step)
            except FolderLostError as error:  # it has stopped the training, which ends with it
                _log.debug("no more checkpoints: %s", error)
                return
            except _FAILURES as error:
                if stop.is_set() or self._is_over(error):
                    _log.debug("no more checkpoints in this session: %s", error)
                    return
                _log.warning("cannot save to %s: %s; training goes on, the next try is in %.3g s", self._train_dir,
                             reason(error), turns.failed())

    def save_last(self, session: tf.Session) -> None:
        """Saves the global step that the ps hold now, in several tries if need be.

        Raises:
          SaveError: none of them succeeded.
          FolderLostError: another training has taken the folder.
          ClusterLostError: a try did not come back.
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
            self._thread.join()  # it may be saving just now
        never = threading.Event()
        pause_secs = min(_FIRST_PAUSE_SECS, self._schedule.timeout_secs / 4)
        while True:
            try:
                step = self._step(session)
                self._save(session, step, never)
                return
            except _FAILURES as error:
                if self._is_over(error):
                    raise
                if time.monotonic() + pause_secs >= deadline_secs:
                    raise SaveError(
                        f"cannot save the last step to {self._train_dir} within {self._schedule.timeout_secs:g} s: "
                        f"{reason(error)}; {self._last_good()}; mend that and run the same command again") from error
                _log.warning("cannot save the last step to %s: %s; the next try is in %.3g s", self._train_dir,
                             reason(error), pause_secs)
            time.sleep(pause_secs)
            pause_secs = min(2 * pause_secs, _LONGEST_LAST_PAUSE_SECS)

    def _last_good(self) -> str:
        path = checkpoints.newest_sound(self._train_dir)
        return f"the last good checkpoint is {path}" if path else "there is no good checkpoint"

    def _step(self, session: tf.Session) -> int:
        return int(session.run(self._savable.global_step))

    def _save(self, session: tf.Session, step: int, stop: threading.Event) -> None:
        """Makes sure of a sound checkpoint of this global step; raises one of _FAILURES, or FolderLostError."""
        path = checkpoints.path_of(self._train_dir, step)
        self._check_folder()
        if not checkpoints.is_sound(path):
            self._write(session, step, path, stop)
        self._check_folder()
        if not stop.is_set():  # else another session's thread may be at work in the folder
            checkpoints.settle(self._train_dir, path, self._schedule.keep_max)

    def _check_folder(self) -> None:
        if self._lock is not None:
            self._lock.check()

    def _write(self, session: tf.Session, step: int, path: str, stop: threading.Event) -> None:
        try:
            os.makedirs(self._train_dir, exist_ok=True)
            session.run(self._savable.before_save_op)
            # The note would be written, and the oldest checkpoint removed, before the new one was read back.
            self._savable.saver.save(
                session, os.path.join(self._train_dir, checkpoints.BASENAME), step, write_state=False)
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
        except OSError as error:  # the failure that led here tells more
            _log.debug("cannot remove %s: %s", path, error)

    def _is_over(self, error: Exception) -> bool:
        """Tells whether an error means that the session is closed or lost, so that no further try can succeed."""
        if isinstance(error, tf.errors.OpError):
            return isinstance(error, tf.errors.CancelledError) or self._is_lost(error)
        return isinstance(error, RuntimeError) and "closed Session" in str(error)
