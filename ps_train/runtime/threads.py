"""Calls in their own threads: one whose outcome is handed over, and one that is repeated.

    Call(function, name)                 one call; `join` waits for its end, `result` hands over its outcome
    start_thread(function, name)         one whose outcome nobody asks for: its error is logged
    repeating(call, period_secs=...)     a call that is repeated while the body of a `with` runs
    join_named(name, timeout_secs=...)   waits for the threads of one name
    num_cores()                          how many can run at once

All threads are daemons, so a call that never returns does not keep the process alive.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Callable

from ps_train.runtime import clock
from ps_train.runtime.clock import Call

__all__ = ["CLOSING", "Call", "join_named", "num_cores", "repeating", "start_thread"]

_log = logging.getLogger(__name__)
_CPU_LIMIT = "/sys/fs/cgroup/cpu.max"  # of a container: microseconds, of so many
CLOSING = "close session"  # the name of threads that close a session (coordination/sessions.py)


def start_thread(function: Callable[[], None], name: str) -> Call:
    """Starts a call in a thread of its own, and returns it; an error that it raises is logged."""
    def logged() -> None:
        try:
            function()
        except Exception:
            _log.exception("the thread %r has ended", name)
            raise

    return clock.start_call(logged, name)


@contextlib.contextmanager
def repeating(call: Callable[[], None], *, period_secs: float, name: str, join_secs: float = 0.0) -> Iterator[None]:
    """Calls `call()` every `period_secs` in a thread while its body runs.

    Args:
      call: should handle its errors; another one that it raises is logged, as there may be no thread or memory for now.
      name: the name of the thread, for stack dumps.
      join_secs: how long the end waits for a call that is under way.
    """
    is_over = clock.event()

    def repeat() -> None:
        while not is_over.wait(period_secs):
            try:
                call()
            except Exception:  # noqa: BLE001 (a heartbeat must not end by any)
                _log.exception("the thread %r goes on after an error", name)

    thread = start_thread(repeat, name)
    try:
        yield
    finally:
        is_over.set()
        thread.join(join_secs)


def join_named(name: str, *, timeout_secs: float) -> None:
    """Waits until all threads with this name have ended, or the time is over."""
    end_secs = clock.now() + timeout_secs
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(max(0.0, end_secs - clock.now()))


def num_cores() -> int:
    """Returns the cores that this process may use, at most those of a container's limit, such as Kubernetes sets."""
    present = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError):  # no container, or cgroups of version 1
        quota, period = pathlib.Path(_CPU_LIMIT).read_text(encoding="ascii").split()
        return present if quota == "max" else min(present, max(1, int(quota) // int(period)))
    return present
