"""Which workers train, how old the parameters of an update were, and how far a worker may run ahead of the others.

    alive_workers       bool [MAX_WORKERS], the process is there, its heartbeat is current, it has not finished
    training_workers    the same, for workers that have begun their first round or step
    measure             the global steps that other workers made between the pull of this worker and its update
    lead                the steps that this worker is ahead of the slowest live one

--staleness_bound bounds the lead, and with it the staleness (stale synchronous parallel: Ho et al. 2013, "More
Effective Distributed ML via a Stale Synchronous Parallel Parameter Server"). Workers that are dead, have finished or
have not joined yet are ignored. A worker that joins, or returns after a pause without data, starts at the step count of
the slowest one; one that was frozen, as many steps behind the fastest one as the bound allows.

All of it is computed on ps 0 in the session run of the step, so it costs no round trip. See
docs/decisions/staleness.md.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables


def alive_workers(heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns which workers are alive: a heartbeat within this time, and not finished."""
    is_current = variables.read("clock") - variables.read("heartbeats") < heartbeat_timeout_secs
    is_here = tf.logical_and(tf.not_equal(variables.read("claims"), 0), tf.equal(variables.read("finished"), 0))
    return tf.logical_and(is_current, is_here)


def training_workers(heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns which workers are alive and have joined."""
    return alive_workers(heartbeat_timeout_secs) & tf.equal(variables.read("joined"), variables.read("claims"))


def without_worker(worker: int, workers: tf.Tensor) -> tf.Tensor:
    """Returns `workers`, bool [MAX_WORKERS], with this one set to false."""
    return tf.logical_and(workers, tf.not_equal(tf.range(variables.MAX_WORKERS), worker))


def join_training(worker: int) -> tf.Operation:
    """Records that this worker trains."""
    # The claim says which process: the next process with the same number has not joined yet.
    return variables.write_element("joined", worker, variables.read("claims")[worker])


class Bound(NamedTuple):
    """How far workers may be apart.

    Attributes:
      steps: no worker is ever more than this many steps ahead of the slowest live one.
      round_steps: steps that a worker takes in one session run.
      heartbeat_timeout_secs: a worker without a heartbeat for this long is dead.
      names: number -> name and address of each worker, for messages.
    """

    steps: int
    round_steps: int
    heartbeat_timeout_secs: float
    names: Mapping[int, str]

    def holds_up(self, lead: int) -> bool:
        """Returns whether a worker with this lead must wait before its next steps."""
        return lead + self.round_steps > self.steps


def measure(*, begun: tf.Tensor, reached: tf.Tensor, num_taken: tf.Tensor) -> tf.Tensor:
    """Returns the staleness of an update, an int64 scalar.

    Args:
      begun: the global step when the parameters were pulled.
      reached: the global step after the update.
      num_taken: the steps that the update itself makes.
    """
    return tf.maximum(reached - begun - num_taken, 0)


def count_steps(worker: int, num_taken: tf.Tensor, bound: Bound) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds to the step count of a worker, raises it to what the bound allows, and returns `lead`; place it on ps 0."""
    counts, is_training = variables.read("step_counts"), training_workers(bound.heartbeat_timeout_secs)
    # It is lower if others went on while this worker was frozen. They must not wait until it has caught up.
    furthest = tf.reduce_max(tf.where(is_training, counts, tf.zeros_like(counts)))
    count = tf.maximum(counts[worker] + num_taken, furthest - bound.steps)
    with tf.control_dependencies([variables.write_element("step_counts", worker, count)]):
        # The counts of the others were read before: they only grow, so the lead is never too low.
        return _lead(worker, tf.identity(count), counts, is_training)


def lead(worker: int, bound: Bound) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a worker's lead over the slowest training one, and the number of that one; int64 scalars, on ps 0."""
    counts = variables.read("step_counts")
    return _lead(worker, counts[worker], counts, training_workers(bound.heartbeat_timeout_secs))


def _lead(worker: int, count: tf.Tensor, counts: tf.Tensor, is_training: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # A worker that does not train counts as level with this one: its count may be lower, and stays so.
    counted = tf.where(without_worker(worker, is_training), counts, tf.fill(tf.shape(counts), count))
    return count - tf.minimum(tf.reduce_min(counted), count), tf.argmin(counted)


def join_at_slowest(worker: int, bound: Bound) -> tf.Operation:
    """Lets a worker join with the step count of the slowest other worker; without others, its count stays."""
    counts = variables.read("step_counts")
    others = without_worker(worker, training_workers(bound.heartbeat_timeout_secs))
    start = tf.cond(tf.reduce_any(others), lambda: tf.reduce_min(tf.boolean_mask(counts, others)),
                    lambda: counts[worker])
    with tf.control_dependencies([variables.write_element("step_counts", worker, start)]):
        return join_training(worker)


class Histogram:
    """How often each staleness occurred."""

    def __init__(self) -> None:
        self._counts: collections.Counter[int] = collections.Counter()

    def add(self, staleness: int) -> None:
        """Counts one update."""
        self._counts[staleness] += 1

    @property
    def mean(self) -> float:
        """The mean staleness, 0 if there were no updates."""
        return self._sum(1) / max(1, self._sum(0))

    def _sum(self, power: int) -> int:
        return sum(count * staleness**power for staleness, count in self._counts.items())

    def line(self) -> str:
        """Returns mean, 95th percentile and maximum as text, "" if there were no updates."""
        num = self._sum(0)
        if not num:
            return ""
        values = sorted(self._counts)
        up_to = itertools.accumulate(self._counts[value] for value in values)
        staleness = next(value for value, num_up_to in zip(values, up_to) if num_up_to >= 0.95 * num)
        return f"staleness {self.mean:.2f} global steps in the mean, {staleness} at 95 %, {max(self._counts)} at most"

    def summary(self) -> tf.Summary:
        """Returns the histogram for TensorBoard, with a bucket for each staleness that occurred."""
        values = sorted(self._counts)
        histogram = tf.HistogramProto(
            min=values[0] if values else 0, max=values[-1] if values else 0, num=self._sum(0), sum=self._sum(1),
            sum_squares=self._sum(2), bucket_limit=values, bucket=[self._counts[value] for value in values])
        return tf.Summary(value=[tf.Summary.Value(tag="staleness", histo=histogram)])
