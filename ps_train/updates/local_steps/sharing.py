"""Among how many workers a round of local steps is shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import variables
from ps_train.coordination.liveness import besides, is_alive, is_training, join


def num_sharing(worker: int, heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns how many train together with this worker, itself among them, an int64 scalar of at least 1.

    Before it has joined, all who live count: they may be about to begin, too, and if each took itself for alone, the
    parameters would move by the sum of what all did.
    """
    has_joined = tf.equal(variables.read("joined")[worker], variables.read("claims")[worker])
    counted = tf.where(has_joined, is_training(heartbeat_timeout_secs), is_alive(heartbeat_timeout_secs))
    return 1 + tf.math.count_nonzero(besides(worker, counted))


class Sharing(NamedTuple):
    """Among how many a round of this worker is shared.

    Attributes:
      worker: the number of this worker.
      heartbeat_timeout_secs: who was not heard of for this long does not count.
      begin_op: counts when a round begins, notes it, and then joins; in the same session run as its steps.
    """

    worker: int
    heartbeat_timeout_secs: float
    begin_op: tf.Operation

    def after(self, done: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the larger one of the counts at the round's begin and once these are there, an int64 scalar."""
        with tf.control_dependencies(done):
            now = num_sharing(self.worker, self.heartbeat_timeout_secs)
            return tf.maximum(variables.read("sharing")[self.worker], now)


def sharing(worker: int, heartbeat_timeout_secs: float) -> Sharing:
    """Returns that of the rounds of a worker."""
    noted = variables.write_element("sharing", worker, num_sharing(worker, heartbeat_timeout_secs))
    with tf.control_dependencies([noted]):
        return Sharing(worker, heartbeat_timeout_secs, join(worker))
