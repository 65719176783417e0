"""The state of training, the workers, and the process behind each worker's number, as the blackboard has them.

A claim is the number with which a process claims to be worker i:

    31 bits from its place (the boot of the machine, the network namespace, the port)  |  31 random bits

Only one process at a time can bind a port. If two claims have the same place, the earlier process must therefore have
ended, and the later one need not wait until its heartbeats are overdue. See docs/decisions/blackboard.md.
"""

from __future__ import annotations

import enum
import hashlib
import os
import secrets
from typing import NamedTuple

import numpy as np

from ps_train.runtime.waits import Timeouts

NO_DATA = "the data ran out"  # how a reason for the end of training begins
_BITS = 31
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NETWORK = "/proc/self/ns/net"  # two containers on one machine may use the same port, each in its own network


class State(enum.IntEnum):
    """The state of training. It only increases, until the servers are used for another run."""

    IDLE = 0  # the ps are up; the chief has not prepared the parameters
    RUNNING = 1  # the parameters are ready; workers may train
    STOPPING = 2  # no more steps; workers report that they have finished
    DONE = 3  # saved and evaluated; every process ends
    FAILED = 4  # the chief's own code failed: training cannot continue


class Finished(enum.IntEnum):
    """Whether a worker has finished: no other worker waits for the steps of one that has."""

    NO = 0
    ENDED = 1  # it takes no more steps
    PAUSES = 2  # it takes none until there is new data
    RETURNS = 3  # it takes some once synchronous updates wait for it again


class Beat(NamedTuple):
    """The answer to a heartbeat: whether the worker's number belongs to its claim, and what the worker must know."""

    is_accepted: bool
    state: State
    mismatch: str  # how the cluster descriptions of two tasks differ, "" if they agree
    is_stop_requested: bool


class Snapshot(NamedTuple):
    """The values on ps 0 at one moment.

    Attributes:
      state: the state of training.
      now_secs: ps 0's clock, which counts the time for which ps 0 has served (`Blackboard.tick`).
      claims: int64 [MAX_WORKERS], 0 if no process has the worker's number.
      heartbeats: float64 [MAX_WORKERS], ps 0's clock at each worker's last heartbeat.
      steps: int64 [MAX_WORKERS], the global step that each worker has seen.
      local_steps: int64 [MAX_WORKERS], the steps that each worker has taken in this training, restarts included.
      finished: int64 [MAX_WORKERS], a `Finished` of each worker.
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
        """Returns whether a worker sent a heartbeat within the heartbeat time-out, or within `within_secs`."""
        bound_secs = self.heartbeat_timeout_secs if within_secs is None else within_secs
        return bool(self.claims[worker]) and self.age_secs(worker) < bound_secs

    def age_secs(self, worker: int) -> float:
        """Returns the seconds since a worker's last heartbeat."""
        return float(self.now_secs - self.heartbeats[worker])

    def alive(self, within_secs: float | None = None) -> list[int]:
        """Returns the numbers of the workers for which `is_alive` is true."""
        return [int(worker) for worker in np.flatnonzero(self.claims) if self.is_alive(worker, within_secs)]


class AdmissionView(NamedTuple):
    """The values that decide whether a worker may train.

    Attributes:
      state: the state of training.
      is_prepared: whether a chief has prepared the parameters, and no ps has restarted since.
      fingerprint: the chief's, "" if it has written none.
      mismatch: how the cluster descriptions of two tasks differ, "" if none was recorded.
      admitted: the numbers of the workers that are alive and use the parameters; others may still wait for them.
    """

    state: State
    is_prepared: bool
    fingerprint: str
    mismatch: str
    admitted: frozenset[int]


def new_claim(port: int | None = None) -> int:
    """Returns a number above 0 that no other process has.

    Args:
      port: the port that this process has bound, or None if it has bound none.
    """
    place = None if port is None else _place(port)
    return ((secrets.randbits(_BITS) if place is None else place) << _BITS) + secrets.randbelow(2**_BITS - 1) + 1


def is_same_place(claim: int, other: int) -> bool:
    """Returns whether the processes of two claims have bound the same port of the same machine."""
    return claim >> _BITS == other >> _BITS


def _place(port: int) -> int | None:
    """Returns a number of _BITS bits for a port of this machine, or None if the machine has no identity to read."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            identity = f"{file.read()} {os.readlink(_NETWORK)} {port}"
    except OSError:  # not Linux
        return None
    return int.from_bytes(hashlib.sha256(identity.encode()).digest(), "big") >> (256 - _BITS)
