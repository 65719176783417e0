"""How old the parameters were that an update was computed from, and how far a worker may run ahead of the others.

    staleness   the global steps that others made between this worker's pull and the arrival of its update
    lead        the steps that this worker is ahead of the slowest one that lives; --staleness_bound bounds it, and with
                it the staleness (stale synchronous parallel: Ho et al. 2013, "More Effective Distributed ML via a
                Stale Synchronous Parallel Parameter Server")

Both are computed on ps 0 in the session run of the step itself, so they cost no round trip of their own. How far each
worker is, its pace, is a note on the blackboard. A worker that is dead, has finished or still starts
holds nobody up, and one that comes, or comes again, begins at the pace of the slowest.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import liveness, variables


class Bound(NamedTuple):
    """How far workers may be apart.

    Attributes:
      steps: a worker is never more steps than this ahead of the slowest that lives.
      round_steps: steps that a worker takes at once.
      heartbeat_timeout_secs: a worker that was not heard of for this long is dead.
      names: number -> name and address of each worker, for messages.
    """

    steps: int
    round_steps: int
    heartbeat_timeout_secs: float
    names: Mapping[int, str]

    def holds_up(self, lead: int) -> bool:
        """Tells whether a worker with this lead must wait before it takes its next steps."""
        return lead + self.round_steps > self.steps


def of_update(begun: tf.Tensor, reached: tf.Tensor, num_taken: tf.Tensor) -> tf.Tensor:
    """Returns the staleness of an update, an int64 scalar.

    Args:
      begun: the global step when the parameters were pulled.
      reached: after the update.
      num_taken: the steps that the update itself makes.
    """
    return tf.maximum(reached - begun - num_taken, 0)


def advance(worker: int, num_taken: tf.Tensor) -> tf.Operation:
    """Counts steps of a worker; to be placed on ps 0."""
    return variables.add_element("paces", worker, num_taken)


def lead(worker: int, bound: Bound) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns how far a worker is ahead of the slowest that trains, and that one's number; int64 scalars on ps 0."""
    paces = variables.read("paces")
    own = paces[worker]
    is_training = liveness.is_training(bound.heartbeat_timeout_secs)
    slowest = tf.argmin(tf.where(is_training, paces, tf.fill(tf.shape(paces), own)))
    pace = tf.minimum(paces[slowest], own)
    return own - pace, slowest


def join(worker: int, bound: Bound) -> tf.Operation:
    """Lets a worker begin at the pace of the slowest of the others, or, where there are none, where it is."""
    paces = variables.read("paces")
    others = liveness.others(worker, bound.heartbeat_timeout_secs)
    begins = tf.cond(tf.reduce_any(others), lambda: tf.reduce_min(tf.boolean_mask(paces, others)),
                     lambda: paces[worker])
    with tf.control_dependencies([variables.write_element("paces", worker, begins)]):
        return liveness.join(worker)


class Histogram:
    """Counts how often each staleness was seen."""

    def __init__(self) -> None:
        """Begins empty."""
        self._counts: collections.Counter[int] = collections.Counter()

    def add(self, staleness: int) -> None:
        """Counts one update."""
        self._counts[staleness] += 1

    def update(self, other: Histogram) -> None:
        """Counts all updates of another one."""
        self._counts.update(other._counts)

    @property
    def mean(self) -> float:
        """The mean staleness, 0 of none."""
        return self._sum(1) / max(1, self._sum(0))

    def _sum(self, power: int) -> int:
        return sum(count * staleness**power for staleness, count in self._counts.items())

    def line(self) -> str:
        """Returns mean, 95th percentile and maximum in words, "" of none."""
        num = self._sum(0)
        if not num:
            return ""
        seen = 0
        for staleness in sorted(self._counts):
            seen += self._counts[staleness]
            if seen >= 0.95 * num:
                break
        return f"staleness {self.mean:.2f} global steps in the mean, {staleness} at 95 %, {max(self._counts)} at most"

    def summary(self) -> tf.Summary:
        """Returns the histogram for TensorBoard, with a bucket for each staleness that was seen."""
        values = sorted(self._counts)
        histogram = tf.HistogramProto(
            min=values[0] if values else 0, max=values[-1] if values else 0, num=self._sum(0), sum=self._sum(1),
            sum_squares=self._sum(2), bucket_limit=values, bucket=[self._counts[value] for value in values])
        return tf.Summary(value=[tf.Summary.Value(tag="staleness", histo=histogram)])
