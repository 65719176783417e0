"""The gate: which gradients the next update has, and whether the last one of a worker was in an update.

    worker   draws a mark for its gradient --> enters the gate with it --> after its wait: does `included` have my mark?
    chief    takes all from the gate --> writes their marks to `included` --> applies the gradients --> raises the step

A flush forgets the marks before it raises the step. So a worker that finds its mark at a later step knows that an
update with its gradient was applied.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables
from ps_train.updates.sync import accumulators

_MOST = 2**40  # of a mark: sums of a few thousand are exact in float64
_FLUSHED = -1.0


class Verdict(NamedTuple):
    """What has become of a worker's gradients, after a step.

    Attributes:
      is_settled: bool scalar; False if an update with the gradient needs further ones of this worker.
      is_lost: bool scalar, whether the gradients since the last verdict may be in no update.
    """

    is_settled: Any
    is_lost: Any


class Gate:
    """The gate on ps 0, as one worker uses it."""

    def __init__(self, device: str, *, worker: int, num_workers: int, drops_late: bool) -> None:
        """Creates the gate.

        Args:
          device: of ps 0.
          drops_late: whether updates leave out the gradients of the slowest workers by design; these are not lost.
        """
        self._device, self._worker, self._num_workers, self._drops_late = device, worker, num_workers, drops_late
        # The sums of each worker's marks, then the number of gradients.
        self.accumulator = accumulators.summing("ps_train/gate", num_workers + 1, device)

    def draw_mark(self) -> tf.Tensor:
        """Returns a number that no other gradient has, float64 scalar: the sum of this worker's marks in an update."""
        # Not of the graph's seed: a process that is started again must draw other marks.
        seeds = [1 + secrets.randbelow(2**31 - 1) for _ in range(2)]
        drawn = tf.raw_ops.RandomUniformInt(
            shape=tf.constant([], tf.int32), minval=tf.constant(1, tf.int64), maxval=tf.constant(_MOST, tf.int64),
            seed=seeds[0], seed2=seeds[1])
        return tf.cast(drawn, tf.float64)

    def enter(self, mark: tf.Tensor, step: tf.Tensor) -> tf.Operation:
        """Adds a gradient that was computed for a global step."""
        own = tf.one_hot([self._worker, self._num_workers], self._num_workers + 1, dtype=tf.float64)
        return self.accumulator.push(own[0] * mark + own[1], step)

    def size(self) -> tf.Tensor:
        """Returns how many gradients are in it, int32 scalar."""
        return self.accumulator.size()

    def take(self) -> tuple[tf.Tensor, tf.Operation]:
        """Empties the gate; returns how many gradients were in it, and the operation that records whose they are."""
        taken = self.accumulator.take()
        marks, before = taken[:-1], variables.read("included")
        now = tf.where(marks > 0, marks, before[:self._num_workers])
        return taken[-1], variables.write("included", tf.concat([now, before[self._num_workers:]], 0))

    def forget(self) -> tf.Operation:
        """Forgets all marks: what was pushed and is in no finished update is lost."""
        return variables.write("included", tf.fill([variables.MAX_WORKERS], tf.constant(_FLUSHED, tf.float64)))

    def begin_step(self, marks: Any) -> tf.Operation:
        """Begins this worker's next step; `marks` is the sum of those of its gradients that wait for an update."""
        begun = [variables.write_element("marks", self._worker, marks)]
        if self._drops_late:  # a flush counts for one step
            begun.append(variables.write_element("included", self._worker, 0.0))
        return tf.group(*begun)

    def verdict(self, marks: tf.Tensor, *, is_later: tf.Tensor, is_settled: tf.Tensor) -> Verdict:
        """Judges this worker's gradients of an update.

        Args:
          marks: their sum.
          is_later: bool scalar, whether the global step has risen since the gradients were computed.
          is_settled: bool scalar, whether this worker pushes no further one for the same update.
        """
        with tf.control_dependencies([is_later]):  # a flush comes before the step
            found = variables.read_element("included", self._worker)
        # What came too late is in no update either, so only a flush counts then.
        is_missing = tf.equal(found, _FLUSHED) if self._drops_late else tf.not_equal(found, marks) | ~is_later
        return Verdict(is_settled, is_missing)
