"""When the chief saves."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

_POLL_SECS = 0.5  # how often the global step is read, if saves go by steps
_FIRST_PAUSE_SECS = 1.0
_MAX_PAUSE_SECS = 60.0  # if saves do not go by seconds


class SaveSchedule(NamedTuple):
    """When the chief saves, and how many checkpoints it keeps.

    Attributes:
      every_secs: time between checkpoints, 0 to save only by steps.
      every_steps: global steps between checkpoints, 0 to save only by time.
      keep_max: checkpoints to keep, at least 1.
      timeout_secs: time for the last save, including its retries.
      delta_secs: time between deltas, 0 for none.
    """

    every_secs: float
    every_steps: int
    keep_max: int
    timeout_secs: float
    delta_secs: float = 0.0


class SaveTimer:
    """Tells when to save: at once, then after a number of seconds or steps, whichever comes first."""

    def __init__(self, schedule: SaveSchedule) -> None:
        self._every_secs = schedule.every_secs or math.inf
        self._every_steps = schedule.every_steps or math.inf
        self._due_secs = time.monotonic() if schedule.every_secs or schedule.every_steps else math.inf
        self._due_step = -math.inf if schedule.every_secs or schedule.every_steps else math.inf
        self._pause_secs = 0.0

    def wait_secs(self) -> float:
        """Returns how long to wait before asking again."""
        remaining_secs = max(0.0, self._due_secs - time.monotonic())
        return remaining_secs if self._every_steps == math.inf else min(remaining_secs, _POLL_SECS)

    def is_due(self, step: int) -> bool:
        """Tells whether to save now, at this global step; after a failure, only after a pause."""
        is_time = time.monotonic() >= self._due_secs
        return is_time or (not self._pause_secs and step >= self._due_step)

    def saved(self, step: int) -> None:
        """Starts the next interval, after a save at this global step."""
        self._pause_secs = 0.0
        self._due_secs = time.monotonic() + self._every_secs
        self._due_step = step + self._every_steps

    def failed(self) -> float:
        """Starts a pause, which doubles with each failure up to the interval; returns its length in seconds."""
        max_secs = min(self._every_secs, _MAX_PAUSE_SECS)
        self._pause_secs = min(2 * self._pause_secs or _FIRST_PAUSE_SECS, max_secs)
        self._due_secs = time.monotonic() + self._pause_secs
        return self._pause_secs


class DeltaTimer:
    """Tells when to save a delta: some seconds after the last save of any kind."""

    def __init__(self, every_secs: float) -> None:
        self._every_secs = every_secs or math.inf
        self.restart()

    def restart(self) -> None:
        """Starts the interval anew."""
        self._due_secs = time.monotonic() + self._every_secs

    def wait_secs(self) -> float:
        """Returns how long to wait; 0 if a delta is due."""
        return max(0.0, self._due_secs - time.monotonic())
