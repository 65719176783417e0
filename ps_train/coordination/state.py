"""What the blackboard says: where training stands, and who is there."""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from ps_train.runtime.waits import Timeouts


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
      heartbeat_timeout_secs: a worker that was not heard of for this long is dead.
    """

    state: State
    now_secs: float
    claims: np.ndarray
    beats: np.ndarray
    steps: np.ndarray
    local_steps: np.ndarray
    finished: np.ndarray
    heartbeat_timeout_secs: float = Timeouts.heartbeat_secs

    def is_alive(self, worker: int, within_secs: float | None = None) -> bool:
        """Tells whether a worker is there and was heard of within the heartbeat time-out, or `within_secs`."""
        bound_secs = self.heartbeat_timeout_secs if within_secs is None else within_secs
        return bool(self.claims[worker]) and self.age_secs(worker) < bound_secs

    def age_secs(self, worker: int) -> float:
        """Returns how long ago a worker was last heard of, in seconds."""
        return float(self.now_secs - self.beats[worker])

    def alive(self, within_secs: float | None = None) -> list[int]:
        """Returns the numbers of the workers that `is_alive` counts."""
        return [int(worker) for worker in np.flatnonzero(self.claims) if self.is_alive(worker, within_secs)]
