"""Which tasks are restarted, and when.

    a task ended with 128 or above --> one line --> a pause of 1, 2, 4, ... 30 s --> the same command again
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Callable

from ps_train.launch.process import Process
from ps_train.launch.supervision import ClusterProcesses

FIRST_RETRYABLE_CODE = 128  # 0 is success, 1 to 127 are permanent: see errors.py
_LONGEST_PAUSE_SECS = 30


class Restarts:
    """Restarts tasks that were lost or killed, each a limited number of times."""

    def __init__(
        self, max_restarts: int, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates it.

        Args:
          max_restarts: of each task.
          write: shows a line about each planned restart.
          clock: returns seconds.
        """
        self._max_restarts = max_restarts
        self._write = write
        self._clock = clock
        self._due_secs: dict[Process, float] = {}

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
                    process.restart()
            elif (process.exit_code or 0) >= FIRST_RETRYABLE_CODE and process.restarts < self._max_restarts:
                self._plan(process)
        return self._due_secs.keys()

    def _plan(self, process: Process) -> None:
        pause_secs = min(2**process.restarts, _LONGEST_PAUSE_SECS)
        self._due_secs[process] = self._clock() + pause_secs
        self._write(f"{process.name} ended with {process.exit_code}; starting it again in {pause_secs} s "
                    f"(restart {process.restarts + 1} of {self._max_restarts})")


def _is_training_over(cluster: ClusterProcesses) -> bool:
    """Returns whether the chief or a ps is done: a restarted task would wait for it in vain."""
    return any(process.exit_code == 0 for process in [*cluster.ps, *cluster.workers[:1]])
