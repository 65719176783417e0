"""Time, events, locks and threads, as everything uses them that waits for another task.

    now, sleep            seconds of a monotonic clock
    event, lock           to wait for another thread
    start_call            a call in a thread of its own
    call                  the same, and a wait for its end that has a bound

`use` replaces all of them at once: the tests run the tasks of a cluster on a virtual clock, where an hour takes no time
and one thread runs at a time (docs/decisions/exploring.md).
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable

_POLL_SECS = 0.2  # how soon `call` notices that `stop` was set


class AbandonedError(Exception):
    """A call took longer than its bound, or its wait was stopped; its thread goes on."""


class Call(threading.Thread):
    """A call of a function without arguments, in a thread that starts at once and does not keep the process alive."""

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        """Starts the call; `name` is the name of the thread, for stack dumps."""
        super().__init__(daemon=True, name=name)
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Makes the call."""
        try:
            self._value = self._function()
        except BaseException as error:  # noqa: BLE001 (`result` raises it again)
            self._error = error

    def result(self) -> Any:
        """Returns the function's value or raises its error; call this when the thread has ended."""
        if self._error is not None:
            raise self._error
        return self._value


class Clock:
    """The clock and the threads of this machine."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, secs: float) -> None:
        time.sleep(secs)

    def event(self) -> threading.Event:
        return threading.Event()

    def lock(self) -> Any:
        return threading.Lock()

    def start_call(self, function: Callable[[], Any], name: str) -> Call:
        return Call(function, name)

    def call(
        self, function: Callable[[], Any], name: str, *, timeout_secs: float, stop: threading.Event | None,
        remind: Callable[[], None],
    ) -> Any:
        thread = Call(function, name)
        end_secs = time.monotonic() + timeout_secs
        while thread.is_alive() and (remaining_secs := end_secs - time.monotonic()) > 0:
            thread.join(min(remaining_secs, _POLL_SECS))
            if thread.is_alive() and time.monotonic() < end_secs:  # else the error says it
                remind()
            if stop is not None and stop.is_set():
                break
        if thread.is_alive():
            raise AbandonedError(name)
        return thread.result()


_clock = Clock()


@contextlib.contextmanager
def use(clock: Any) -> Iterator[None]:
    """Replaces the clock, which has the methods of `Clock`, while its body runs."""
    global _clock
    last, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = last


def now() -> float:
    """Returns seconds that never go back; only their difference means something."""
    return _clock.now()


def sleep(secs: float) -> None:
    """Waits."""
    _clock.sleep(secs)


def event() -> threading.Event:
    """Returns an event that is not set."""
    return _clock.event()


def lock() -> Any:
    """Returns a lock, a context manager."""
    return _clock.lock()


def start_call(function: Callable[[], Any], name: str) -> Call:
    """Calls a function in a thread of its own; `join` waits for its end, `result` hands over its outcome."""
    return _clock.start_call(function, name)


def call(
    function: Callable[[], Any], name: str, *, timeout_secs: float = math.inf, stop: threading.Event | None = None,
    remind: Callable[[], None] = lambda: None,
) -> Any:
    """Returns `function()`, called in a thread of its own.

    Args:
      name: of the thread.
      stop: ends the wait when it is set.
      remind: called several times a second while the wait goes on.

    Raises:
      AbandonedError: the call took longer than `timeout_secs`, or `stop` was set; its thread goes on.
      Exception: from the call.
    """
    return _clock.call(function, name, timeout_secs=timeout_secs, stop=stop, remind=remind)
