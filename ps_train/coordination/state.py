"""What the blackboard says: where training stands, and who is there."""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np


class State(enum.IntEnum):
    """Where training stands; it only ever rises, until the servers are used for another run."""

    IDLE = 0  # the ps are up; the chief has not prepared the parameters
    RUNNING = 1  # the parameters are ready; workers may train
    STOPPING = 2  # no more steps; workers report that they finished
    DONE = 3  # saved and evaluated; every process ends
    FAILED = 4  # the chief's own code failed: training cannot go on


class Snapshot(NamedTuple):
    """What ps 0 knew at one moment.

    Attributes:
      state: the training state.
      now_secs: ps 0's clock, which goes while ps 0 serves; see `Blackboard.tick`.
      claims: int64 [MAX_WORKERS], 0 where no worker is there.
      beats: float64 [MAX_WORKERS], ps 0's clock when each worker was last heard of.
      steps: int64 [MAX_WORKERS], the global step that each worker has seen.
      local_steps: int64 [MAX_WORKERS], the steps that it has taken itself in this training, in all of its lives.
      finished: bool [MAX_WORKERS].
    """

    state: State
    now_secs: float
    claims: np.ndarray
    beats: np.ndarray
    steps: np.ndarray
    local_steps: np.ndarray
    finished: np.ndarray

    def is_alive(self, worker: int, timeout_secs: float) -> bool:
        """Tells whether a worker is there and was heard of within the time-out."""
        return bool(self.claims[worker]) and self.age_secs(worker) < timeout_secs

    def age_secs(self, worker: int) -> float:
        """Returns how long ago a worker was last heard of, in seconds."""
        return float(self.now_secs - self.beats[worker])

    def alive(self, timeout_secs: float) -> list[int]:
        """Returns the numbers of the workers that are there."""
        return [int(worker) for worker in np.flatnonzero(self.claims) if self.is_alive(worker, timeout_secs)]
