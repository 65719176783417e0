"""What evaluator and chief say to each other on ps 0: that there is an evaluator, and that training is to end."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import variables
from ps_train.coordination.connection import Connection
from ps_train.coordination.state import State


class EvaluationSignals:
    """One task's view; every method raises BlackboardError if ps 0 does not answer. Close it."""

    def __init__(self, cluster: Cluster, heartbeat_timeout_secs: float) -> None:
        """Builds the operations; nothing is sent yet."""
        first = Task("ps", 0, cluster.ps[0].address)
        with tf.Graph().as_default() as graph, tf.device(first.device):
            self._clock, self._heard = variables.read("clock"), variables.read("evaluator_heard")
            self._beat = variables.write("evaluator_heard", tf.maximum(self._clock, 1e-3))  # 0: never heard of
            state = variables.read("state")
            self._reason = tf.placeholder(tf.string, [])
            self._write_reason = variables.write("end_reason", self._reason)
            # On ps 0 and not here: meanwhile the chief may have ended the training.
            self._end = variables.write("state", tf.where(
                tf.equal(state, int(State.RUNNING)), tf.constant(int(State.STOPPING), tf.int64), state))
            graph.finalize()
        self._timeout_secs = heartbeat_timeout_secs
        self._connection = Connection(graph, f"grpc://{first.address}", [first], None, is_elastic=cluster.is_elastic)

    def beat(self) -> None:
        """Says that there is an evaluator."""
        self._connection.run(self._beat)

    def has_evaluator(self) -> bool:
        """Tells whether an evaluator was heard of lately."""
        now_secs, heard_secs = self._connection.run([self._clock, self._heard])
        return heard_secs > 0 and now_secs - heard_secs < self._timeout_secs

    def end_training(self, reason: str) -> None:
        """Lets all workers take their last step, if training is running, and say why."""
        self._connection.run(self._write_reason, {self._reason: reason})
        self._connection.run(self._end)

    def close(self) -> None:
        """Closes the connection, without waiting for a ps that is gone."""
        self._connection.close()
