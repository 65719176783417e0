"""Holds `training.lock` in a store: only one training at a time uploads there.

    create (one conditional request) --> held: raise its count every ten seconds --> remove
       | the object exists
       v
    its holder is alive: refuse         its holder has ended: remove its lock, then create

The content is that of the lock in a folder (storage/folder_lock.py). An object cannot be moved aside as a file can. If
two contenders take over from a third one in the same moment, the lock of one replaces that of the other, which notices
by the token, here or before its next checkpoint becomes visible. A store without conditional requests has the same gap
for two trainings that start in the same moment.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time

from ps_train.errors import ConfigError, FolderLostError, StoppedError
from ps_train.parts.object_store.store import ObjectStore, StoreError
from ps_train.runtime import clock
from ps_train.storage import folder_lock

SILENT_SECS = 30.0  # without a rise of its count, after which a holder on another machine has ended
_BEATS = 3  # in that time
_POLLS = 6  # in that time
_SETTLE_SECS = 1.0  # longer than a contender takes from removing a lock to creating its own
_released_here: set[str] = set()  # tokens of this process, whose locks may still be there if the store has failed
_log = logging.getLogger(__name__)


class StoreLock:
    """The lock of one process that uploads to a store."""

    def __init__(self, store: ObjectStore, stop: threading.Event, silent_secs: float = SILENT_SECS) -> None:
        """Prepares the lock; nothing is sent yet.

        Args:
          stop: ends waits; this object sets it when the lock is lost.
          silent_secs: as SILENT_SECS.
        """
        self._store, self._stop, self._silent_secs = store, stop, silent_secs
        self._since, self._token = time.strftime("%Y-%m-%d %H:%M:%S %z"), secrets.token_hex(8)
        self._count = 0
        self._released = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._waited_secs, self._wait_begun_secs = 0.0, math.nan  # NaN: it does not wait now
        self.lost: FolderLostError | None = None

    def acquire(self) -> None:
        """Creates the lock, and keeps it in a thread.

        Raises:
          ConfigError: another training holds it.
          StoppedError: `stop` was set during the wait for a sign of life of its holder.
          StoreError: the store does not answer.
        """
        is_taken_over = False
        while not self._store.create(folder_lock.LOCK_NAME, self._content()):
            content = self._store.read(folder_lock.LOCK_NAME)
            if content is not None and folder_lock.token_of(content) == self._token:
                break  # the answer to an earlier attempt was lost
            if content is not None and self._is_left(content):
                is_taken_over = True
                self._store.remove([folder_lock.LOCK_NAME])
        if is_taken_over or not self._store.is_conditional:
            self._wait(_SETTLE_SECS)
            content = self._store.read(folder_lock.LOCK_NAME) or b""
            if folder_lock.token_of(content) != self._token:
                raise self._in_use(content)
        self._thread = threading.Thread(target=self._keep, daemon=True, name="store lock")
        self._thread.start()

    def waited_secs(self) -> float:
        """Returns for how long `acquire` has waited for other holders: no fault of the store, which has answered.

        It grows until one attempt could be over.
        """
        begun_secs = self._wait_begun_secs
        waiting_secs = 0.0 if math.isnan(begun_secs) else clock.now() - begun_secs
        return min(self._waited_secs + waiting_secs, self._silent_secs + _SETTLE_SECS)

    def _wait(self, secs: float) -> bool:
        """Waits, and returns whether `stop` was set."""
        self._wait_begun_secs = clock.now()
        is_stopped = self._stop.wait(secs)
        self._waited_secs, self._wait_begun_secs = self._waited_secs + clock.now() - self._wait_begun_secs, math.nan
        return is_stopped

    def check(self) -> None:
        """Checks that no other training has taken the lock; call this before a checkpoint becomes visible.

        Raises:
          FolderLostError: another one has, or this process has released it.
          StoreError: the store does not answer.
        """
        with self._mutex:
            if self._released.is_set():  # an upload that nobody waits for any longer; it must not create the lock again
                raise FolderLostError("folder_lost", f"this training no longer holds {self._store.url}")
            self._check()

    def release(self) -> None:
        """Ends the thread, and removes the lock if it is this process's."""
        self._released.set()
        _released_here.add(self._token)
        try:
            with self._mutex:
                if folder_lock.token_of(self._store.read(folder_lock.LOCK_NAME) or b"") == self._token:
                    self._store.remove([folder_lock.LOCK_NAME])
        except StoreError as error:  # the next training sees that this process has ended
            _log.debug("cannot remove the lock in %s: %s", self._store.url, error)

    def _content(self) -> bytes:
        return folder_lock.lock_text(self._since, self._token, self._count)

    def _is_left(self, content: bytes) -> bool:
        """Returns whether the holder of a lock has ended and left it; false if the lock was removed meanwhile.

        Raises:
          ConfigError: the holder is alive, as far as can be seen from here.
          StoppedError: `stop` was set during the wait for a sign of life.
        """
        has_ended = folder_lock.token_of(content) in _released_here or folder_lock.has_ended_here(content)
        now: bytes | None = content
        if has_ended is None:
            _log.info("%s has a lock on %s; waiting %g s for a sign of life", folder_lock.describe_holder(content),
                      self._store.url, self._silent_secs)
            now = self._watched(content)
            has_ended = now in (content, None)
        if not has_ended:
            raise self._in_use(now or content)
        _log.info("%s has ended%s", folder_lock.describe_holder(content),
                  "" if now is None else f": removing its lock on {self._store.url}")
        return now is not None

    def _watched(self, content: bytes) -> bytes | None:
        """Returns what replaces the content of the lock, None if it is removed; the content if nothing does in time."""
        for _ in range(_POLLS):
            if self._wait(self._silent_secs / _POLLS):
                raise StoppedError("stopped", "stopped while waiting for a sign of life of "
                                   f"{folder_lock.describe_holder(content)}")
            if (now := self._store.read(folder_lock.LOCK_NAME)) != content:
                return now
        return content

    def _in_use(self, content: bytes) -> ConfigError:
        return ConfigError("train_dir_in_use", f"--train_dir: {folder_lock.describe_holder(content)} is training in "
                           f"{self._store.url}; wait for its end or stop it, or give this training another --train_dir")

    def _keep(self) -> None:
        failures = 0
        while not self._released.wait(self._silent_secs / _BEATS):
            try:
                with self._mutex:
                    if self._released.is_set():  # while this waited; the object is removed, and would be created again
                        return
                    self._check()
                    self._count += 1
                    self._store.write(folder_lock.LOCK_NAME, self._content())
                failures = 0
            except FolderLostError:
                return
            except StoreError as error:
                failures += 1
                if failures == math.ceil(_BEATS / 2):
                    _log.warning("cannot keep the lock in %s: %s; training goes on", self._store.url, error)

    def _check(self) -> None:
        if self.lost is not None:
            raise self.lost
        content = self._store.read(folder_lock.LOCK_NAME)
        if content is None:  # the folder was emptied
            self._store.create(folder_lock.LOCK_NAME, self._content())
        elif folder_lock.token_of(content) != self._token:
            self.lost = FolderLostError("folder_lost", f"{folder_lock.describe_holder(content)} has taken "
                                        f"{self._store.url} while this process could not reach it; this one ends")
            self._stop.set()
            raise self.lost
