"""Watches the processes of a cluster, restarts lost ones, and ends them: workers first, because the chief needs the ps.

    a task ended with 128 or above --> one line --> a pause of 0, 1, 2, 4, ... 30 s --> the same command again
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Callable, NamedTuple

from ps_train.launch.fork_server import ForkServer
from ps_train.launch.process import POLL_SECS, Process

GRACE_SECS = 10.0  # for the ps to end after the workers; and, by default, between SIGTERM and SIGKILL
_CAUSE_SECS = 2.0  # a task that ends because another one fails may end before it
FIRST_RETRYABLE_CODE = 128  # 0 is success, 1 to 127 are permanent: see errors.py
_ALONE_SECS = 3.0  # a ps that has no worker any more still waits for one that did not leave, until it counts as dead
_LONGEST_PAUSE_SECS = 30.0
_STEADY_SECS = 30.0  # a task that ran for so long did not fail because of how it starts


class ClusterProcesses(NamedTuple):
    """The processes of a cluster."""

    ps: list[Process]
    workers: list[Process]

    @property
    def all(self) -> list[Process]:
        """The ps, then the workers."""
        return [*self.ps, *self.workers]


def worst(codes: Sequence[int]) -> int:
    """Returns the worst of these exit codes, the first one of equals.

    The order, from bad to good: 1 to 127, permanent; 128 and above, except 143: lost or killed by a signal, may be run
    again; 143, stopped on request; 0, done.
    """
    return max(codes, key=lambda code: (0 if code == 0 else 1 if code == 143 else 2 if code >= 128 else 3), default=0)


@contextlib.contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Yields a list to which SIGINT, SIGTERM and SIGHUP are added when they arrive; they do not end the process.

    As in a task, one that only follows from the first is left out.
    """
    from ps_train.runtime.signals import NotedSignals  # noqa: PLC0415 (a program that only launches forks as before)

    noted = NotedSignals()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # under nohup it stays ignored
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, lambda number, frame: noted.note(number)) for number in numbers}
    try:
        yield noted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def watch(
    cluster: ClusterProcesses, show_output: Callable[[], None], signals: Sequence[int],
    restart_due: Callable[[ClusterProcesses], Collection[Process]] = lambda cluster: (),
) -> Sequence[Process]:
    """Returns when all have ended, a signal came, one failed, or the ps or the workers do not end after the others.

    Args:
      show_output: called repeatedly; shows the new output of the processes.
      signals: see `noted_signals`.
      restart_due: called repeatedly; restarts processes, and returns those that have ended and wait for their restart,
        which count as running. It must not block.

    Returns:
      The processes that failed (only those with a permanent exit code, if there are any), or that are overdue; none
      after `ps_train stop`.
    """
    overdue_secs = cause_secs = float("inf")
    first_failed: list[Process] = []
    while not signals:
        for process in cluster.all:
            process.poll()
        show_output()
        waiting = restart_due(cluster)
        # After `ps_train stop` all tasks end by themselves, after saving.
        failed = [process for process in cluster.all
                  if process.exit_code and process not in waiting and not process.is_stopped_on_request]
        running = [process for process in cluster.all if process.exit_code is None or process in waiting]
        if failed and not first_failed:
            first_failed, cause_secs = failed, time.monotonic() + _CAUSE_SECS
        causes = [process for process in failed if (process.exit_code or 0) < 128]
        if causes or not running or time.monotonic() > cause_secs:
            return causes or first_failed
        have_ps_stopped = _have_ps_stopped(cluster, running)
        if have_ps_stopped or not any(process in running for process in cluster.workers):
            overdue_secs = min(overdue_secs, time.monotonic() + GRACE_SECS)
            if time.monotonic() > overdue_secs:
                return [] if have_ps_stopped else running
        time.sleep(POLL_SECS)
    return []


def _have_ps_stopped(cluster: ClusterProcesses, running: Collection[Process]) -> bool:
    """Returns whether all ps have ended after `ps_train stop`, of which a worker that had not begun does not hear."""
    return any(ps.is_stopped_on_request for ps in cluster.ps) and not any(ps in running for ps in cluster.ps)


def end(
    cluster: ClusterProcesses, show_output: Callable[[], None], signals: Sequence[int],
    grace_secs: float | None = None,
) -> None:
    """Ends all running processes: SIGTERM, then SIGKILL after the grace period, or at once if another signal comes.

    The ps come last. They are asked a second time after some seconds, which ends them at once.

    Args:
      show_output: called repeatedly; shows the new output of the processes.
      signals: see `noted_signals`.
      grace_secs: for the workers, and again for the ps; None for GRACE_SECS.
    """
    grace_secs = GRACE_SECS if grace_secs is None else grace_secs
    patience = 1 if signals else 0  # the first signal has asked for this end
    for group in (cluster.workers, cluster.ps):
        for process in group:
            process.terminate()
        start_secs, is_asked_twice = time.monotonic(), group is cluster.workers
        while (any(process.poll() is None for process in group) and len(signals) <= patience
               and time.monotonic() < start_secs + grace_secs):
            if not is_asked_twice and time.monotonic() > start_secs + _ALONE_SECS:
                is_asked_twice = True
                for process in group:
                    process.terminate()
            show_output()
            time.sleep(POLL_SECS)
        for process in group:
            process.kill()
    show_output()


class Restarts:
    """Restarts tasks that were lost or killed, each a limited number of times."""

    def __init__(
        self, max_restarts: int, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic,
        fork_server: ForkServer | None = None,
    ) -> None:
        """Creates it.

        Args:
          max_restarts: of each task.
          write: shows a line about each planned restart.
          clock: returns seconds.
          fork_server: of which the restarted tasks are forks, kept ready.
        """
        self._max_restarts = max_restarts
        self._write = write
        self._clock = clock
        self._fork_server = fork_server
        self._due_secs: dict[Process, float] = {}
        self._begin_secs = clock()
        self._restart_secs: dict[Process, float] = {}  # the last one of each task
        self._pause_secs: dict[Process, float] = {}  # the next one of each task

    def restart_due(self, cluster: ClusterProcesses) -> Collection[Process]:
        """Restarts the tasks whose pause is over, and plans the restart of those that have ended since the last call.

        Returns:
          The tasks that have ended and wait for their restart.
        """
        if _is_training_over(cluster) or any(process.is_stopped_on_request for process in cluster.all):
            self._due_secs.clear()
            return ()
        for process in cluster.all:
            if process in self._due_secs:
                if self._clock() >= self._due_secs[process]:
                    del self._due_secs[process]
                    self._restart_secs[process] = self._clock()
                    self._restart(process)
            elif (process.exit_code or 0) >= FIRST_RETRYABLE_CODE and process.restarts < self._max_restarts:
                self._plan(process)
        if self._fork_server and not self._due_secs and all(process.exit_code is None for process in cluster.all):
            self._fork_server.keep_ready()
        return self._due_secs.keys()

    def _restart(self, process: Process) -> None:
        try:
            process.restart()
        except OSError as error:  # no process or memory is left for it now
            self._write(f"cannot start {process.name}: {error.strerror}")
            if process.restarts < self._max_restarts:
                self._plan(process)

    def _plan(self, process: Process) -> None:
        start_secs = self._restart_secs.get(process, self._begin_secs)
        is_steady = self._clock() - start_secs >= _STEADY_SECS
        pause_secs = 0.0 if is_steady else self._pause_secs.get(process, 0.0)
        self._pause_secs[process] = min(2 * pause_secs or 1.0, _LONGEST_PAUSE_SECS)
        self._due_secs[process] = self._clock() + pause_secs
        when = f"in {pause_secs:g} s" if pause_secs else "at once"
        self._write(f"{process.name} ended with {process.exit_code}; starting it again {when} "
                    f"(restart {process.restarts + 1} of {self._max_restarts})")


def _is_training_over(cluster: ClusterProcesses) -> bool:
    """Returns whether the chief or a ps is done: a restarted task would wait for it in vain."""
    return any(process.exit_code == 0 for process in [*cluster.ps, *cluster.workers[:1]])
