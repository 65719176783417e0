"""Which workers are alive and train, as ps 0 sees it in the session run of a step itself; each function adds to it.

    bool [MAX_WORKERS]    is_living    its process is there, was heard of, and has not finished
                          takes_part   and trains already: it does not start any more
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables


def is_living(beat_timeout_secs: float) -> tf.Tensor:
    """Returns who is there, was heard of within this time, and has not finished."""
    is_heard = variables.read("clock") - variables.read("beats") < beat_timeout_secs
    is_there = tf.logical_and(tf.not_equal(variables.read("claims"), 0), tf.equal(variables.read("finished"), 0))
    return tf.logical_and(is_heard, is_there)


def takes_part(beat_timeout_secs: float) -> tf.Tensor:
    """Returns who lives and has joined."""
    return tf.logical_and(is_living(beat_timeout_secs), tf.equal(variables.read("joined"), variables.read("claims")))


def others(worker: int, beat_timeout_secs: float) -> tf.Tensor:
    """Returns who takes part besides this worker."""
    return _besides(worker, takes_part(beat_timeout_secs))


def join(worker: int) -> tf.Operation:
    """Notes that the process which has the claim of this number trains; one that comes in its place does not yet."""
    return variables.write_element("joined", worker, variables.read("claims")[worker])


def num_sharing(worker: int, beat_timeout_secs: float) -> tf.Tensor:
    """Returns how many train together with this worker, itself among them, an int64 scalar of at least 1.

    Before it has joined, all who live count: they may be about to begin, too, and if each took itself for alone, the
    parameters would move by the sum of what all did.
    """
    has_joined = tf.equal(variables.read("joined")[worker], variables.read("claims")[worker])
    counted = tf.where(has_joined, takes_part(beat_timeout_secs), is_living(beat_timeout_secs))
    return 1 + tf.math.count_nonzero(_besides(worker, counted))


class Sharing(NamedTuple):
    """Among how many a round of this worker is shared.

    Attributes:
      worker: the number of this worker.
      beat_timeout_secs: who was not heard of for this long does not count.
      begin_op: counts when a round begins, notes it, and then joins; in the same session run as its steps.
    """

    worker: int
    beat_timeout_secs: float
    begin_op: tf.Operation

    def after(self, done: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the larger one of the counts at the round's begin and once these are there, an int64 scalar."""
        with tf.control_dependencies(done):
            return tf.maximum(variables.read("sharing")[self.worker], num_sharing(self.worker, self.beat_timeout_secs))


def sharing(worker: int, beat_timeout_secs: float) -> Sharing:
    """Returns that of the rounds of a worker."""
    noted = variables.write_element("sharing", worker, num_sharing(worker, beat_timeout_secs))
    with tf.control_dependencies([noted]):
        return Sharing(worker, beat_timeout_secs, join(worker))


def _besides(worker: int, workers: tf.Tensor) -> tf.Tensor:
    return tf.logical_and(workers, tf.not_equal(tf.range(variables.MAX_WORKERS), worker))
