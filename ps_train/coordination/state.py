"""What the blackboard says: the state of training, and which workers are there."""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from ps_train.runtime.waits import Timeouts

NO_DATA = "the data ran out"  # how a reason for the end of training begins


class State(enum.IntEnum):
    """The state of training. It only increases, until the servers are used for another run."""

    IDLE = 0  # the ps are up; the chief has not prepared the parameters
    RUNNING = 1  # the parameters are ready; workers may train
    STOPPING = 2  # no more steps; workers report that they have finished
    DONE = 3  # saved and evaluated; every process ends
    FAILED = 4  # the chief's own code failed: training cannot continue


class Snapshot(NamedTuple):
    """What ps 0 knew at one moment.

    Attributes:
      state: the state of training.
      now_secs: ps 0's clock, which counts the time for which ps 0 has served (`Blackboard.tick`).
      claims: int64 [MAX_WORKERS], 0 if no process has the worker's number.
      heartbeats: float64 [MAX_WORKERS], ps 0's clock at each worker's last heartbeat.
      steps: int64 [MAX_WORKERS], the global step that each worker has seen.
      local_steps: int64 [MAX_WORKERS], the steps that each worker has taken in this training, restarts included.
      finished: bool [MAX_WORKERS], whether the worker will take no more steps.
      heartbeat_timeout_secs: a worker without a heartbeat for this long is dead.
      staleness: float64 [MAX_WORKERS], of the updates of each worker's process, in the mean; None if it was not read.
    """

    state: State
    now_secs: float
    claims: np.ndarray
    heartbeats: np.ndarray
    steps: np.ndarray
    local_steps: np.ndarray
    finished: np.ndarray
    heartbeat_timeout_secs: float = Timeouts.heartbeat_secs
    staleness: np.ndarray | None = None

    def is_alive(self, worker: int, within_secs: float | None = None) -> bool:
        """Tells whether a worker sent a heartbeat within the heartbeat time-out, or within `within_secs`."""
        bound_secs = self.heartbeat_timeout_secs if within_secs is None else within_secs
        return bool(self.claims[worker]) and self.age_secs(worker) < bound_secs

    def age_secs(self, worker: int) -> float:
        """Returns the seconds since a worker's last heartbeat."""
        return float(self.now_secs - self.heartbeats[worker])

    def alive(self, within_secs: float | None = None) -> list[int]:
        """Returns the numbers of the workers for which `is_alive` is true."""
        return [int(worker) for worker in np.flatnonzero(self.claims) if self.is_alive(worker, within_secs)]


class AdmissionView(NamedTuple):
    """What decides whether a worker may train.

    Attributes:
      state: the state of training.
      is_prepared: whether a chief has prepared the parameters, and no ps has restarted since.
      fingerprint: the chief's, "" if it has written none.
      mismatch: how the cluster descriptions of two tasks differ, "" if no task has found that.
      admitted: the numbers of the workers that are alive and use the parameters; others may still wait for them.
    """

    state: State
    is_prepared: bool
    fingerprint: str
    mismatch: str
    admitted: frozenset[int]
