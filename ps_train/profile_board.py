"""What the workers exchange through ps 0 for a profile of all of them: the time, and what each has recorded.

    every worker   asks each ps, and its own server, for the time --> how far their clocks are ahead of ps 0's
    every worker   delivers its part to ps 0
    chief          collects the parts

So no folder needs to be shared, and no port to be opened.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.blackboard import Blackboard
from ps_train.cluster import Cluster

_QUESTIONS = 10  # for the time, to each task: the quickest answer counts


class Reading(NamedTuple):
    """How far a clock is ahead of another one, in seconds, and how far off that may be."""

    ahead_secs: float
    error_secs: float


class ProfileBoard(Blackboard):
    """The blackboard, with what a profile needs besides."""

    def __init__(self, target: str, cluster: Cluster) -> None:
        """Prepares the operations; nothing is sent yet.

        Args:
          target: address of this worker's server.
        """
        self._cluster = cluster
        super().__init__(target, cluster.ps, cluster.task)

    def _build(self) -> None:
        super()._build()
        self._times = {}
        for task in [*self._ps, self._cluster.task]:
            with tf.device(task.device):
                self._times[task.name] = tf.timestamp()
        with tf.device(self.first_ps.device):
            self._slots = {number: _Slot(number) for number in range(self._cluster.num_workers)}

    def clocks(self) -> dict[str, Reading]:
        """Returns how far the clock of each ps, and of this worker's server, is ahead of this process's own.

        Raises:
          BlackboardError: one of them does not answer.
        """
        found: dict[str, Reading] = {}
        for name, timestamp in self._times.items():
            found[name] = read_clock(lambda timestamp=timestamp: float(self._run(timestamp)), found.values())
        return found

    def clear(self, worker: int) -> None:
        """Takes back what a worker of that number has delivered."""
        self._run(self._slots[worker].clear)

    def deliver(self, worker: int, part: bytes) -> None:
        """Leaves a worker's part on ps 0."""
        slot = self._slots[worker]
        self._run(slot.write, {slot.value: part})

    def collect(self, workers: Iterable[int]) -> dict[int, bytes]:
        """Takes the parts of these workers that are there."""
        slots = {worker: self._slots[worker] for worker in workers}
        are_there = self._run({worker: slot.is_there for worker, slot in slots.items()})
        found = self._run({worker: slot.read for worker, slot in slots.items() if are_there[worker]})
        self._run([slots[worker].clear for worker in found])
        return found


class _Slot:
    """The operations on one worker's part, which is a variable that is there once it was written."""

    def __init__(self, worker: int) -> None:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=f"ps_train/profile/{worker}")
        self.value = tf.placeholder(tf.string, [])
        self.write = tf.raw_ops.AssignVariableOp(resource=handle, value=self.value)
        self.is_there = tf.raw_ops.VarIsInitializedOp(resource=handle)
        self.read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string)
        self.clear = tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def read_clock(
    ask: Callable[[], float], others: Iterable[Reading] = (), clock: Callable[[], float] = time.time
) -> Reading:
    """Returns how far a clock is ahead of ours: its answer is taken to be of half-way between question and answer.

    Args:
      ask: returns what the other clock shows, in seconds.
      others: other clocks; where it may be the same as ours, or as one of these, it is, as with tasks of one machine.
      clock: our own clock.
    """
    best = Reading(0.0, float("inf"))
    for _ in range(_QUESTIONS):
        asked_secs = clock()
        answer_secs = ask()
        answered_secs = clock()
        error_secs = (answered_secs - asked_secs) / 2
        if error_secs < best.error_secs:
            best = Reading(answer_secs - (asked_secs + error_secs), error_secs)
    for other in (Reading(0.0, 0.0), *others):
        if abs(best.ahead_secs - other.ahead_secs) <= best.error_secs + other.error_secs:
            return Reading(other.ahead_secs, best.error_secs)
    return best
