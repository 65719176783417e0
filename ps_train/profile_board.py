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

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train import notes
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
        self._timed = cluster.peers
        super().__init__(target, cluster.ps, cluster.task, cluster.is_elastic)

    def _build(self) -> None:
        super()._build()
        self._times = {}
        for task in self._timed:
            with tf.device(task.device):
                self._times[task.name] = tf.timestamp()
        with tf.device(self.first_ps.device):
            self._part = tf.placeholder(tf.string, [])
            self._write_part = notes.write_element("profiles", self._worker, self._part)
            self._read_part = notes.read("profiles")[self._worker]
            self._num_bytes = tf.strings.length(notes.read("profiles"))

    def clocks(self) -> dict[str, Reading]:
        """Returns how far the clock of each ps, and of this worker's server, is ahead of this process's own.

        Raises:
          BlackboardError: one of them does not answer.
        """
        found: dict[str, Reading] = {}
        for name, timestamp in self._times.items():
            found[name] = read_clock(lambda timestamp=timestamp: float(self._run(timestamp)), found.values())
        return found

    def deliver(self, worker: int, part: bytes) -> None:
        """Leaves a worker's part on ps 0; an empty one takes back what was there."""
        self._run(self._write_part, {self._worker: worker, self._part: part})

    def collect(self) -> dict[int, bytes]:
        """Takes all parts that are there, by the workers' numbers."""
        found = {}
        for worker in np.flatnonzero(self._run(self._num_bytes)).tolist():
            found[worker] = self._run(self._read_part, {self._worker: worker})
            self.deliver(worker, b"")
        return found

    def present(self) -> list[int]:
        """Returns the numbers of the workers that have claimed theirs."""
        return np.flatnonzero(self.snapshot().claims).tolist()


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
