"""Which tasks are started again after their end, and when.

    a task ended with 128 or above --> one line --> a pause: 1, 2, 4, ... 30 s --> the same command again
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Callable

from ps_train.launch.process import Process
from ps_train.launch.supervision import Tasks

FIRST_RETRYABLE_CODE = 128  # below are 0 and the permanent ones: see errors.py
_LONGEST_PAUSE_SECS = 30


class Restarts:
    """Starts tasks again that were lost or killed, each one a limited number of times."""

    def __init__(self, most: int, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Prepares it.

        Args:
          most: restarts of each task, at most.
          say: shows a line about each restart to come.
          clock: returns seconds.
        """
        self._most = most
        self._say = say
        self._clock = clock
        self._due_secs: dict[Process, float] = {}

    def revive(self, tasks: Tasks) -> Collection[Process]:
        """Starts the tasks again whose pause is over, and plans the restart of those that have ended since.

        Returns:
          The tasks that have ended and wait for their restart.
        """
        if _is_training_over(tasks):
            self._due_secs.clear()
            return ()
        for task in tasks.everyone:
            if task in self._due_secs:
                if self._clock() >= self._due_secs[task]:
                    del self._due_secs[task]
                    task.restart()
            elif (task.exit_code or 0) >= FIRST_RETRYABLE_CODE and task.restarts < self._most:
                self._plan(task)
        return self._due_secs.keys()

    def _plan(self, task: Process) -> None:
        pause_secs = min(2**task.restarts, _LONGEST_PAUSE_SECS)
        self._due_secs[task] = self._clock() + pause_secs
        self._say(f"{task.name} ended with {task.exit_code}; starting it again in {pause_secs} s "
                  f"(restart {task.restarts + 1} of {self._most})")


def _is_training_over(tasks: Tasks) -> bool:
    """Tells whether the chief or a ps is done: a task that came back then would wait for it in vain."""
    return any(task.exit_code == 0 for task in [*tasks.ps, *tasks.workers[:1]])
