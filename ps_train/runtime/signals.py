"""Handles SIGTERM, Ctrl-C and SIGHUP: the first asks the task to stop, the second ends it at once.

    main thread      on_signals --> run_until_stopped: waits, handles signals
    another thread                  the task's work

Python runs signal handlers only in the main thread, and not while that is inside TensorFlow, so the main thread does
nothing but wait. docs/decisions/processes.md says more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable

from ps_train.errors import StoppedError, StopRequestedError
from ps_train.runtime.threads import Call
from ps_train.runtime.waits import StopEvent, is_stop_requested

_POLL_SECS = 0.2
_ECHO_SECS = 2.0  # who signals all processes at once (systemd, pkill) signals the launcher, too, which passes it on
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the last one: the terminal has closed
_before: dict[int, Any] = {}  # the handlers from before `on_signals`, while it is entered
_log = logging.getLogger(__name__)


def _restore() -> None:
    for number, handler in _before.items():
        signal.signal(number, handler)
    _before.clear()


# Called in each child process of the user's code before a signal reaches it: the first one ends it, as in plain Python.
restores_in_child: list[Callable[[], None]] = [_restore]


def _begin_child() -> None:
    for restore in restores_in_child:
        restore()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)


os.register_at_fork(before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS),
                    after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS),
                    after_in_child=_begin_child)


class NotedSignals(list[int]):
    """The signals that a process was sent: the first asks it to stop, the second to end at once.

    SIGHUP is never the second one: the shell and the kernel may both send it when a terminal closes, and systemd sends
    it behind SIGTERM when a session ends. Nor is a SIGTERM within 2 s of the first one, which is its echo.
    """

    _first_secs = 0.0

    def note(self, number: int) -> bool:
        """Adds a signal that has just come, and returns true, unless it only follows from the first one."""
        if not self:
            self._first_secs = time.monotonic()
        elif number == signal.SIGHUP or (number == signal.SIGTERM and time.monotonic() < self._first_secs + _ECHO_SECS):
            return False
        self.append(number)
        return True


@contextlib.contextmanager
def on_signals() -> Iterator[StopEvent]:
    """Yields an event that SIGTERM, SIGINT or SIGHUP sets; a second one ends the process with 128 + its number.

    `NotedSignals` says which one is the second. A SIGHUP that is ignored (`nohup`) stays ignored.

    Must be entered in the main thread. At the end it restores the previous handlers.
    """
    stop = StopEvent()
    noted = NotedSignals()  # not the event: `ps_train stop` may have set that, and the save goes on

    def handle(number: int, frame: object) -> None:
        if not noted.note(number):
            return
        if len(noted) > 1:
            os._exit(128 + number)
        stop.set()

    _before.update((number, signal.signal(number, handle)) for number in _STOP_SIGNALS
                   if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN)
    try:
        yield stop
    finally:
        _restore()


def run_until_stopped(body: Callable[[], None], stop: threading.Event, grace_secs: float) -> None:
    """Runs a task's work in a thread, so signals are handled while the work waits.

    Args:
      stop: the event that a signal sets.
      grace_secs: how long the work may then take to end by itself.

    Raises:
      StoppedError: it did not end in that time.
      StopRequestedError: it was stopped, and `ps_train stop` was the reason.
      Exception: from the work.
    """
    handlers = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    thread = Call(body, "task")
    while thread.is_alive() and not stop.is_set():
        thread.join(_POLL_SECS)
        # TensorFlow's coordination service (MultiWorkerMirroredStrategy) replaces the handler of SIGTERM when it
        # starts, and then the signal no longer ends the process (preemption_notifier.cc).
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if thread.is_alive():
        _log.info("stopping: the current work has %g s to end; another signal ends it at once", grace_secs)
    end_secs = time.monotonic() + grace_secs
    while thread.is_alive() and time.monotonic() < end_secs:
        thread.join(_POLL_SECS)  # a signal that comes just before a wait is handled after it
    if thread.is_alive():
        raise StoppedError("stopped_without_saving", "stopped without saving: the current work did not end in "
                           f"{grace_secs:g} s")
    try:
        thread.result()
    except StoppedError as error:
        if is_stop_requested(stop):
            raise StopRequestedError("stop_requested", f"{error} (`ps_train stop`)") from error
        raise
