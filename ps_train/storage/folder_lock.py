"""Holds the lock of a train_dir, so that only one training at a time saves there.

    create training.lock (O_EXCL) --> held: raise its count every second --> remove
       | the file exists
       v
    its holder is alive: refuse       its holder is gone: move its lock aside, then create

A holder that was suspended for so long that another training took its folder notices that before it saves.
docs/decisions/checkpoints.md says why this is not `flock`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator

from ps_train.errors import FolderLostError, StoppedError
from ps_train.storage import lock_file

_BEAT_SECS = 1.0
_RELEASE_SECS = 2.0  # a file system that hangs does not hold up the end
_log = logging.getLogger(__name__)


class FolderLock:
    """The lock of one process that saves to a train_dir."""

    def __init__(self, train_dir: str, silent_secs: float, stop: threading.Event) -> None:
        """Prepares the lock; nothing is written yet.

        Args:
          silent_secs: a holder on another machine counts as gone if its count stays the same for this long.
          stop: ends that wait; this object sets it when the folder is lost.
        """
        self._train_dir = train_dir
        self._path = os.path.join(train_dir, lock_file.LOCK_NAME)
        self._silent_secs = silent_secs
        self._stop = stop
        self._token = secrets.token_hex(8)
        self._file: int | None = None  # the lock that this process created, wherever it was moved since
        self._count = 0
        self._since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        self._lost: FolderLostError | None = None
        self._mutex = threading.Lock()
        self._released = threading.Event()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Holds the lock while its body runs; if the lock cannot be written, warns and runs the body without it.

        Raises:
          ConfigError: another training holds the lock.
          FolderLostError: another training took the folder, so this one was stopped.
          StoppedError: told to stop while finding out whether the holder is alive.
        """
        self._acquire()
        thread = threading.Thread(target=self._keep, daemon=True, name="folder lock")
        thread.start()
        try:
            yield
        except StoppedError as error:
            if self._lost is not None:
                raise self._lost from error
            raise
        finally:
            self._released.set()
            thread.join(_RELEASE_SECS)

    def check(self) -> None:
        """Checks that no other training has taken the folder; call this before changing files in it.

        Raises:
          FolderLostError: another training has taken the folder.
        """
        with self._mutex:
            self._check()

    def _acquire(self) -> None:
        try:
            while not self._create():
                lock_file.make_free(self._train_dir, self._silent_secs, self._stop.wait)
        except OSError as error:
            _log.warning("cannot write %s: %s; a second training in this folder would not be noticed", self._path,
                         error.strerror)

    def _create(self) -> bool:
        """Creates the lock file; returns false if there is one already."""
        try:
            made = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            lock_file.write_lock(made, self._text())
        except OSError:
            os.close(made)
            os.remove(self._path)
            raise
        if self._file is not None:
            os.close(self._file)
        self._file = made
        return True

    def _text(self) -> bytes:
        return lock_file.lock_text(self._since, self._token, self._count)

    def _keep(self) -> None:
        """Shows every second that this process is alive, and removes the lock at the end."""
        self._keep_alive()
        with self._mutex:
            self._release()

    def _keep_alive(self) -> None:
        is_failing = False
        while not self._released.wait(_BEAT_SECS):
            try:
                with self._mutex:
                    self._show_life()
                is_failing = False
            except FolderLostError:
                return
            except OSError as error:
                if not is_failing and self._file is not None:
                    _log.warning("cannot write %s: %s; training goes on, and the next try is in %g s", self._path,
                                 error.strerror, _BEAT_SECS)
                is_failing = True

    def _show_life(self) -> None:
        if self._file is None:  # the lock could not be written before; O_EXCL touches no other lock
            self._create()
            return
        self._check()
        self._count += 1
        lock_file.write_lock(self._file, self._text())

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._file is None:
            return
        try:
            content = lock_file.read_lock(self._path)
            if content is None and not self._create():  # None: the folder was emptied
                content = lock_file.read_lock(self._path)
        except OSError as error:  # the folder is gone or full: the next save will say so
            _log.debug("cannot read %s: %s", self._path, error)
            return
        if content is not None and lock_file.token_of(content) != self._token:
            self._lost = FolderLostError(
                f"{lock_file.describe_holder(content)} has taken {self._train_dir} while this process was suspended; "
                "this one ends without saving")
            self._stop.set()
            raise self._lost

    def _release(self) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError):  # the next training will find that this process is gone
            if lock_file.token_of(lock_file.read_lock(self._path) or b"") == self._token:
                os.remove(self._path)
        os.close(self._file)
        self._file = None
