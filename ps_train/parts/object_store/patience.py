"""Repeats calls of a store that fail for a reason that may pass, for a bounded time.

    insist     for whom the store must do it: the errors are those of the user's command
    persist    the same, with the store's own errors
    PatientStore   a store that insists on each of its calls by itself

The time counts from the last progress: a large file may take as long as it needs, while more of it arrives.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from typing import Any, Callable

from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.parts.object_store.store import UNFINISHED, ObjectStore, StoreError
from ps_train.runtime import clock, waits

_PAUSE_SECS = 2.0  # until a request is repeated
_log = logging.getLogger(__name__)


def insist(
    call: Callable[[], Any], place: str, timeout_secs: float, stop: threading.Event, *,
    progress: Callable[[], Any] = lambda: None,
) -> Any:
    """Returns `call()`, which uses a store; calls it again as long as the store fails for a reason that may pass.

    Args:
      place: the flag and its URL, for errors.
      timeout_secs: of the wait, since the value of `progress()` changed last.
      stop: ends the wait.
      progress: is asked five times a second.

    Raises:
      ConfigError: the bucket does not exist, or this process has no right to use it.
      ClusterLostError: the time is over.
      StoppedError: `stop` was set.
    """
    try:
        return persist(call, place, timeout_secs, stop, progress=progress)
    except StoreError as error:
        if error.kind == "missing":
            raise ConfigError("store_missing", f"{place}: {error}; make the bucket, or give another URL") from None
        raise ConfigError("store_denied", f"{place}: {error}; give this process credentials that may list, read, "
                          "write and remove there, and the region of the bucket, in the way of the store's library"
                          ) from None


def persist(
    call: Callable[[], Any], place: str, timeout_secs: float, stop: threading.Event, *,
    progress: Callable[[], Any] = lambda: None,
) -> Any:
    """Does what `insist` does, but raises StoreError as it is if the bucket or a right is missing."""
    reasons = ["no answer"]
    is_over = threading.Event()

    def attempt() -> Any:
        while not is_over.is_set():
            try:
                return call()
            except StoreError as error:
                if error.kind:
                    raise
                if str(error) != reasons[-1]:
                    _log.warning("%s: %s; trying again, for at most %g s", place, error, timeout_secs)
                    reasons.append(str(error))
            is_over.wait(_PAUSE_SECS)
        return None

    watch = _Watch(place, timeout_secs, stop, progress)
    try:
        return clock.call(attempt, f"bounded {place}", stop=watch.ended, remind=watch.look)
    except clock.AbandonedError:
        if stop.is_set():
            raise StoppedError("stopped", f"stopped while waiting for an answer of {place}") from None
        raise ClusterLostError("store_unreachable", f"{place}: no answer in {timeout_secs:g} s: {reasons[-1]}; mend "
                               "the store or its address, then run the same command again") from None
    finally:
        is_over.set()


class _Watch:
    """Ends a wait when it was stopped, or without progress for too long.

    Attributes:
      ended: is set then.
    """

    def __init__(self, place: str, timeout_secs: float, stop: threading.Event, progress: Callable[[], Any]) -> None:
        self._timeout_secs, self._stop, self._progress = timeout_secs, stop, progress
        self._reminder = waits.Reminder(f"an answer of {place}", timeout_secs)
        self._last, self._since_secs = progress(), clock.now()
        self.ended = threading.Event()

    def look(self) -> None:
        """Compares the progress with that of the last look."""
        value = self._progress()
        if value != self._last:
            self._last, self._since_secs = value, clock.now()
        if self._stop.is_set() or clock.now() - self._since_secs > self._timeout_secs:
            self.ended.set()
        else:
            self._reminder.remind()


class PatientStore(ObjectStore):
    """A store whose reads and uploads are repeated while they fail for a reason that may pass, each for a bounded time.

    So a transfer of many files has no bound as a whole, and does not begin again after a failure.
    """

    def __init__(self, store: ObjectStore, timeout_secs: float, stop: threading.Event) -> None:
        """Sends nothing yet.

        Args:
          timeout_secs: of the wait for a listing, or for more of a file; then ClusterLostError is raised.
          stop: ends the wait.
        """
        super().__init__(store._fs, store._root, store.url, store.flag)  # noqa: SLF001 (of the same class)
        self._timeout_secs, self._stop = timeout_secs, stop

    def below(self, folder: str) -> PatientStore:
        return PatientStore(super().below(folder), self._timeout_secs, self._stop)

    def names(self, *, is_deep: bool = False) -> dict[str, int]:
        return self._insist("", functools.partial(super().names, is_deep=is_deep))

    def read(self, name: str) -> bytes | None:
        return self._insist(name, functools.partial(super().read, name))

    def get(self, name: str, path: str) -> None:
        most_bytes = 0
        with contextlib.suppress(FileNotFoundError):  # of a process that was killed: it would look like progress
            os.remove(f"{path}{UNFINISHED}")

        def received() -> int:
            nonlocal most_bytes  # an attempt that begins again is no progress
            with contextlib.suppress(FileNotFoundError):
                most_bytes = max(most_bytes, os.path.getsize(f"{path}{UNFINISHED}"))
            return most_bytes

        self._insist(name, functools.partial(super().get, name, path), received)

    def put(self, name: str, path: str) -> None:
        self._insist(name, functools.partial(super().put, name, path))

    def stamp(self, name: str) -> str:
        return self._insist(name, functools.partial(super().stamp, name))

    def _insist(self, name: str, call: Callable[[], Any], progress: Callable[[], Any] = lambda: None) -> Any:
        place = f"{self.flag}={self.url}{name and '/'}{name}"
        return insist(call, place, self._timeout_secs, self._stop, progress=progress)
