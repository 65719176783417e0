"""SIGTERM and Ctrl-C: the first asks the task to stop, the second ends it at once.

Python runs signal handlers in the main thread only, and not while that is inside TensorFlow. So a task does its work in
another thread, and the main thread waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Callable

from ps_train.errors import StoppedError
from ps_train.runtime.threads import Call

_POLL_SECS = 0.2
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def on_signals() -> Iterator[threading.Event]:
    """Yields an event that SIGTERM or SIGINT sets; a second signal ends the process with 128 + its number.

    It must be entered in the main thread; the handlers that were there before come back at the end.
    """
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def run_until_stopped(body: Callable[[], None], stop: threading.Event, grace_secs: float) -> None:
    """Runs a task's work in a thread, so that signals are heard whatever it is waiting for.

    Args:
      stop: set by a signal: the work then has `grace_secs` to end by itself.

    Raises:
      StoppedError: it did not.
      Exception: whatever the work raised.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    thread = Call(body, "task")
    while thread.is_alive() and not stop.is_set():
        thread.join(_POLL_SECS)
        # TensorFlow's coordination service (MultiWorkerMirroredStrategy) takes SIGTERM for itself when it starts, and
        # then nothing ends the process (preemption_notifier.cc): take it back.
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if thread.is_alive():
        _log.info("stopping: what it is doing has %g s to end; another signal ends it at once", grace_secs)
    thread.join(grace_secs)
    if thread.is_alive():
        raise StoppedError(f"told to stop, and ended without saving: what it was doing did not end in {grace_secs:g} s")
    thread.result()
