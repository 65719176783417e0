"""SIGTERM and Ctrl-C: the first asks the task to stop, the second ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


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
