"""TensorFlow 1's input queues, whose threads run for as long as a session (docs/decisions/input.md).

    graph built      tf.train.batch, string_input_producer, ... add their QueueRunners to the graph
    session begins   drop the resources that the server kept by shared_name --> start a thread per enqueue operation
    session ends     tell the threads to stop --> (the session is closed) --> join them, in bounded time

A closed and empty queue ends the data just as the end of a tf.data.Dataset does: both raise OutOfRangeError. A thread
that fails also closes the queues; `check` tells the two cases apart.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Iterator

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.errors import UserCodeError
from ps_train.graph.devices import is_on_ps
from ps_train.runtime import tensorflow_errors

_JOIN_SECS = 2.0
_QUEUE_OR_READER = re.compile(r"(Queue|Reader)V2$")  # FIFOQueueV2, TextLineReaderV2, ...
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_log = logging.getLogger(__name__)


class Queues:
    """The queues of one graph.

    Attributes:
      forget_op: removes the queues and readers of an earlier session from this worker's server; run it before `start`.
    """

    def __init__(self) -> None:
        """Takes the queue runners of the current graph, which must be complete except for `forget_op`."""
        graph = tf.get_default_graph()
        self._runners = graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        self._coordinator = tf.train.Coordinator()
        self._threads: list[threading.Thread] = []
        self.forget_op = _forget(graph)

    def start(self, session: tf.Session) -> None:
        """Starts the threads, once the session's local variables are initialised."""
        self._coordinator = tf.train.Coordinator()
        self._threads = [thread for runner in self._runners
                         for thread in runner.create_threads(session, self._coordinator, daemon=True, start=True)]

    def check(self) -> None:
        """Raises the error of a thread, if one has failed; call it when the data has ended.

        Raises:
          UserCodeError: the input is at fault.
          tf.errors.OpError: the session was lost.
        """
        try:
            self._coordinator.raise_requested_exception()
        except tf.errors.OpError as error:
            if sessions.is_lost(error):
                raise
            node = _NODE.search(error.message)
            where = f" at {node[1]}" if node else ""
            raise UserCodeError("input_queue_failed", f"an input queue of the model or dataset failed{where}: "
                                f"{tensorflow_errors.reason(error)}") from error

    def request_stop(self) -> None:
        """Closes the queues; a thread that stays blocked ends when its session is closed."""
        self._coordinator.request_stop()

    def join(self) -> None:
        """Waits a short time for the threads to end; a thread that is left ends with the process."""
        end_secs = time.monotonic() + _JOIN_SECS
        for thread in self._threads:
            thread.join(max(0.0, end_secs - time.monotonic()))
            if thread.is_alive():
                _log.debug("%s has not ended", thread.name)

    @contextlib.contextmanager
    def running(self, session: tf.Session) -> Iterator[None]:
        """Runs the threads while its body reads all of the data; raises as `check` does."""
        self.start(session)
        try:
            yield
            self.check()
        finally:
            self.request_stop()
            self.join()


def _forget(graph: tf.Graph) -> tf.Operation:
    """Returns an operation that removes the queues and readers with a shared_name, which outlive their session."""
    # The next session would otherwise find a queue closed, as the session before has left it.
    removed = []
    for op in graph.get_operations():
        is_kept = _QUEUE_OR_READER.search(op.type) and op.get_attr("shared_name")
        if is_kept and not is_on_ps(op.device):  # a queue on a ps is shared by all workers
            with tf.device(None), tf.device(op.device):
                removed.append(tf.raw_ops.DestroyResourceOp(resource=op.outputs[0], ignore_lookup_error=True))
    return tf.group(*removed)
