"""One training at a time saves to a train_dir: the lock of the process that does.

    create training.lock (O_EXCL) --> held: it shows life every second --> remove
       | it is there
       v
    its holder is alive: refused      its holder is gone: move that lock aside, then create

A holder that stood still for so long that another training took its folder finds that out before it saves.
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
        """Prepares it; nothing is written yet.

        Args:
          silent_secs: a holder on another machine is gone when its count stood still for this long.
          stop: ends the wait for that; it is set when the folder is lost.
        """
        self._train_dir = train_dir
        self._path = os.path.join(train_dir, lock_file.NAME)
        self._silent_secs = silent_secs
        self._stop = stop
        self._token = secrets.token_hex(8)
        self._file: int | None = None  # the lock that this process made, whoever may have moved it since
        self._count = 0
        self._since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        self._lost: FolderLostError | None = None
        self._mutex = threading.Lock()
        self._released = threading.Event()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Holds the folder while its body runs; where the lock cannot be written, it says so and runs the body.

        Raises:
          ConfigError: another training has the folder.
          FolderLostError: another training took it, which stopped this one.
          StoppedError: told to stop while waiting for a sign of life of the training that has it.
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
        """Returns where no other training has taken the folder; to be called before files in it are changed.

        Raises:
          FolderLostError: one has.
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
        """Makes the lock; returns false where there is one."""
        try:
            made = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            lock_file.write(made, self._text())
        except OSError:
            os.close(made)
            os.remove(self._path)
            raise
        if self._file is not None:
            os.close(self._file)
        self._file = made
        return True

    def _text(self) -> bytes:
        return lock_file.text(self._since, self._token, self._count)

    def _keep(self) -> None:
        """Shows again and again that this process is alive; removes the lock at the end."""
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
        if self._file is None:  # it could not be written; nobody else's is touched
            self._create()
            return
        self._check()
        self._count += 1
        lock_file.write(self._file, self._text())

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._file is None:
            return
        try:
            content = lock_file.read(self._path)
            if content is None and not self._create():  # somebody emptied the folder
                content = lock_file.read(self._path)
        except OSError as error:  # the folder is gone or full: whoever saves there will say so
            _log.debug("cannot read %s: %s", self._path, error)
            return
        if content is not None and lock_file.token_of(content) != self._token:
            self._lost = FolderLostError(
                f"{lock_file.describe(content)} has taken {self._train_dir} while this process stood still; this one "
                "ends without saving")
            self._stop.set()
            raise self._lost

    def _release(self) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError):  # whoever comes next finds that this process is gone
            if lock_file.token_of(lock_file.read(self._path) or b"") == self._token:
                os.remove(self._path)
        os.close(self._file)
        self._file = None
