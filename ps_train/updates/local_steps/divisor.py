"""By how many workers the change of an asynchronous round is divided: by those that train at the same time.

The parameters then move by the mean of what the workers did. A worker that trains alone moves them by its whole change.
The reasons and measurements: docs/decisions/local-steps.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination import liveness, variables


def count_training(worker: int, heartbeat_timeout_secs: float) -> tf.Tensor:
    """Returns how many workers train now, this worker included: an int64 scalar of at least 1, on ps 0."""
    has_joined = tf.equal(variables.read("joined")[worker], variables.read("claims")[worker])
    # In its own first round a worker counts all live workers: the others may be about to begin, too. If each took
    # itself to be alone, the parameters would move by the sum of all changes.
    counted = tf.where(has_joined, liveness.training_workers(heartbeat_timeout_secs),
                       liveness.alive_workers(heartbeat_timeout_secs))
    return 1 + tf.math.count_nonzero(liveness.without(worker, counted))


class Divisor(NamedTuple):
    """By how many workers the rounds of one worker are divided.

    Attributes:
      worker: the number of this worker.
      heartbeat_timeout_secs: a worker without a heartbeat for this long does not count.
      begin_op: counts the workers when a round begins, records the count, and joins. It runs in the session run of the
        round's steps.
    """

    worker: int
    heartbeat_timeout_secs: float
    begin_op: tf.Operation

    def after(self, done: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the divisor, an int64 scalar, once these tensors are computed."""
        # The larger of two counts, at the begin of the round and now. Otherwise a worker that was alone when a long
        # round began, and is not any more, would apply its whole change on top of what the others did since.
        with tf.control_dependencies(done):
            now = count_training(self.worker, self.heartbeat_timeout_secs)
            return tf.maximum(variables.read("round_divisors")[self.worker], now)


def make_divisor(worker: int, heartbeat_timeout_secs: float) -> Divisor:
    """Returns the divisor of a worker's rounds; place it on ps 0."""
    recorded = variables.write_element("round_divisors", worker, count_training(worker, heartbeat_timeout_secs))
    with tf.control_dependencies([recorded]):
        return Divisor(worker, heartbeat_timeout_secs, liveness.join(worker))
