"""Watches and ends the processes of a cluster: the workers first, so that the chief can still save on the ps."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Callable, NamedTuple

from ps_train.launch.process import POLL_SECS, Process

GRACE_SECS = 10.0  # between the end of the workers and that of the ps; and, unless told otherwise, SIGTERM and SIGKILL


_CAUSE_SECS = 2.0  # a task that ends because of another one's failure may end before it


class Tasks(NamedTuple):
    """The processes of a cluster."""

    ps: list[Process]
    workers: list[Process]

    @property
    def everyone(self) -> list[Process]:
        """All of them, the ps first."""
        return [*self.ps, *self.workers]


def worst(codes: Sequence[int]) -> int:
    """Returns the exit code of a whole whose parts ended with these; of equals, the first.

    The order, from bad to good: 1 to 127 permanent, running it again does not help; 128 and above, but 143: lost or
    killed by a signal, may be run again; 143 stopped when told to; 0 done.
    """
    return max(codes, key=lambda code: (0 if code == 0 else 1 if code == 143 else 2 if code >= 128 else 3), default=0)


@contextlib.contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Yields a list to which SIGINT, SIGTERM and SIGHUP are added as they arrive, instead of ending the process."""
    noted: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup asks for that
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, lambda number, frame: noted.append(number)) for number in numbers}
    try:
        yield noted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _never(tasks: Tasks) -> Collection[Process]:
    return ()


def watch(
    tasks: Tasks, show: Callable[[], None], signals: Sequence[int],
    revive: Callable[[Tasks], Collection[Process]] = _never,
) -> Sequence[Process]:
    """Returns when all have ended, a signal came, one failed, or a ps does not end after the workers.

    Args:
      show: called again and again; shows what the tasks print.
      signals: see `noted_signals`.
      revive: called again and again; starts tasks again, and returns those that have ended and wait for that, which
        count as running. It must not block.

    Returns:
      The processes that failed, those only that failed for good where there is one, or those that are overdue.
    """
    overdue_secs = told_secs = float("inf")
    first_failed: list[Process] = []
    while not signals:
        for process in tasks.everyone:
            process.poll()
        show()
        waiting = revive(tasks)
        failed = [process for process in tasks.everyone if process.exit_code and process not in waiting]
        running = [process for process in tasks.everyone if process.exit_code is None or process in waiting]
        if failed and not first_failed:
            first_failed, told_secs = failed, time.monotonic() + _CAUSE_SECS
        causes = [process for process in failed if (process.exit_code or 0) < 128]
        if causes or not running or time.monotonic() > told_secs:
            return causes or first_failed
        if not any(process in running for process in tasks.workers):
            overdue_secs = min(overdue_secs, time.monotonic() + GRACE_SECS)
            if time.monotonic() > overdue_secs:
                return running
        time.sleep(POLL_SECS)
    return []


def end(
    tasks: Tasks, show: Callable[[], None], signals: Sequence[int], grace_secs: float | None = None
) -> None:
    """Ends what still runs: SIGTERM, and SIGKILL after the grace period or, at once, when a (further) signal comes.

    Args:
      signals: see `noted_signals`.
      grace_secs: of the workers, and then of the ps; None for GRACE_SECS.
    """
    grace_secs = GRACE_SECS if grace_secs is None else grace_secs
    patience = 1 if signals else 0  # the signal that asked for the end is no reason to hurry
    for group in (tasks.workers, tasks.ps):
        for process in group:
            process.terminate()
        deadline_secs = time.monotonic() + grace_secs
        while (any(process.poll() is None for process in group) and len(signals) <= patience
               and time.monotonic() < deadline_secs):
            show()
            time.sleep(POLL_SECS)
        for process in group:
            process.kill()
    show()
