"""A worker's view of the queue of input ranges on ps 0. It has a session of its own, as the blackboard has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination.connection import Connection
from ps_train.parts.sharding import operations
from ps_train.parts.sharding.operations import Exchange, Request
from ps_train.runtime.waits import Timeouts


class Assignment(NamedTuple):
    """A range that a worker was given, for one epoch."""

    number: int
    epoch: int


class Standing(NamedTuple):
    """How far the queue is.

    Attributes:
      done: int32 [ranges], how often each range was trained on.
      owners: int32 [ranges], the number of the worker that has the range in hand, -1 for none.
    """

    done: np.ndarray
    owners: np.ndarray

    def holders(self) -> dict[int, int]:
        """Returns worker -> the number of ranges that it has in hand."""
        workers, counts = np.unique(self.owners[self.owners >= 0], return_counts=True)
        return dict(zip(workers.tolist(), counts.tolist()))

    def num_left(self, num_epochs: int) -> int:
        """Returns how many ranges, counted once for each epoch, are not done."""
        # A training that did more epochs may be continued with fewer.
        return int(np.sum(np.maximum(num_epochs - self.done, 0)))

    def has_free(self, num_epochs: int | None) -> bool:
        """Tells whether a worker that asks gets a range."""
        is_open = self.done < num_epochs if num_epochs is not None else np.ones_like(self.done, bool)
        return bool(np.any(is_open & (self.owners < 0)))


class RangeQueue:
    """The queue, as one worker uses it. Every method raises BlackboardError if ps 0 does not answer."""

    def __init__(
        self, target: str, cluster: Cluster, *, num_epochs: int | None, seed: int,
        heartbeat_timeout_secs: float = Timeouts.heartbeat_secs,
    ) -> None:
        """Builds the operations; nothing is sent yet.

        Args:
          target: address of the server that runs the session, such as `grpc://localhost:2223`.
          num_epochs: how often each range is trained on; None for no end.
          seed: of the order of the ranges.
          heartbeat_timeout_secs: a worker that was not heard of for so long loses what it has in hand.
        """
        self._worker = cluster.worker_number
        with tf.Graph().as_default() as graph:
            self._request = Request(
                tf.placeholder(tf.int32, []), tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [None, 2]),
                tf.placeholder(tf.int64, [None]), tf.placeholder(tf.bool, []))
            with tf.device(cluster.ps[0].device + "/cpu:0"):
                self._exchange = operations.exchange(self._request, num_epochs, seed)
                self._release_silent = operations.release_silent(heartbeat_timeout_secs)
                self._give_back = operations.give_back(self._request.worker)
                self._standing = [operations.read_queue("done"), operations.read_queue("owners")]
                self._plan = operations.read_queue("plan")
            graph.finalize()
        self._connection = Connection(graph, target, cluster.ps, cluster.task, is_elastic=cluster.is_elastic)

    def plan(self) -> str:
        """Returns the text of the ranges that the chief has begun the queue with."""
        return self._connection.run(self._plan).decode()

    def exchange(
        self, generation: int, finished: Sequence[Assignment], held: Sequence[Assignment], *, wants_another: bool
    ) -> Exchange:
        """Counts what this worker has finished, and gives it another range; see `operations.exchange`."""
        feed = Request(self._worker, generation, np.array(finished, np.int64).reshape(-1, 2),
                       np.array([one.number for one in held], np.int64), wants_another)
        return Exchange(*self._connection.run(self._exchange, dict(zip(self._request, feed))))

    def release_silent(self) -> dict[int, list[int]]:
        """Takes the ranges of workers that are silent from their hands; returns worker -> its ranges."""
        return _by_worker(self._connection.run(self._release_silent))

    def give_back(self) -> list[int]:
        """Takes the ranges of this worker from its hands, and returns them."""
        released = self._connection.run(self._give_back, {self._request.worker: self._worker})
        return released[:, 0].tolist()

    def standing(self) -> Standing:
        """Returns how far the queue is."""
        done, owners = self._connection.run(self._standing)
        return Standing(done, owners - 1)

    def close(self) -> None:
        """Closes the session."""
        self._connection.close()


def _by_worker(released: np.ndarray) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, worker in released.tolist():
        found.setdefault(worker, []).append(number)
    return found
