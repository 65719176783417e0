"""The queue of input ranges: variables on ps 0, operations that change them, one at a time, and a worker's client.

    done        int32 [ranges]        how often each range was trained on; the queue is in its epoch min(done)
    owners      int32 [ranges]        the number, plus 1, of the worker that holds the range; 0 for none
    given       int32 [ranges]        how often workers have held the range since the last `mark`
    heard       float64 [workers]     the clock of ps 0 at each worker's last call
    generation  int64 scalar          drawn by the chief when it begins the queue, at the start or from a checkpoint
    plan        string scalar         the ranges, as text

A range is assigned for its next epoch only when it is done with the one before, and those that are furthest behind come
first. So no worker waits at the end of an epoch, and yet each range is trained on once in each.

Place these operations on ps 0; a worker runs them through `RangeQueue`, which has a session, as the blackboard has.
Like those of the blackboard, the variables are raw operations under fixed names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import variables
from ps_train.coordination.sessions import Connection
from ps_train.runtime.waits import Timeouts

_NAME = "ps_train/ranges/"
_DTYPES = {"done": tf.int32, "owners": tf.int32, "given": tf.int32, "heard": tf.float64, "generation": tf.int64,
           "plan": tf.string}
_LAST = tf.int32.max


class Assignment(NamedTuple):
    """A range that a worker is to train on, for one epoch."""

    number: int
    epoch: int


class Request(NamedTuple):
    """What a worker says in one call.

    Attributes:
      worker: int32 scalar, its number.
      generation: int64 scalar, of the queue as it knows it; 0 if it knows none.
      finished: int64 [k, 2], ranges and epochs that it has trained on.
      held: int64 [h], the other ranges that it holds.
      wants_another: bool scalar.
    """

    worker: Any
    generation: Any
    finished: Any
    held: Any
    wants_another: Any


class Answer(NamedTuple):
    """What a worker learns from one call.

    Attributes:
      generation: int64 scalar, of the queue; if it is not the worker's, the call has changed nothing.
      accepted: bool [k], whether each range that the worker has finished counts as done by it.
      taken: int64 scalar, the range that the worker holds now, -1 if none was free.
      epoch: int32 scalar, how often that range was trained on before.
      is_again: bool scalar, whether this worker held it already, and did not know.
    """

    generation: Any
    accepted: Any
    taken: Any
    epoch: Any
    is_again: Any


def read_queue(name: str) -> tf.Tensor:
    """Returns the value of a variable."""
    return tf.raw_ops.ReadVariableOp(resource=_handle(name), dtype=_DTYPES[name])


def begin(done: tf.Tensor, generation: tf.Tensor, plan: tf.Tensor | str) -> tf.Operation:
    """Begins the queue; no worker holds a range.

    Args:
      done: int32 [ranges].
      generation: int64 scalar above 0.
      plan: string scalar, describes the ranges.
    """
    def build(done: tf.Tensor, generation: tf.Tensor, plan: tf.Tensor) -> list[tf.Tensor]:
        written = [_write("done", done), _write("owners", tf.zeros_like(done)), _write("plan", plan),
                   _write("given", tf.zeros_like(done)), _write("generation", generation),
                   _write("heard", tf.zeros([variables.MAX_WORKERS], tf.float64))]
        with tf.control_dependencies(written):
            return [tf.constant(True)]

    return tf.group(_one_at_a_time([done, generation, tf.convert_to_tensor(plan)], build))


def add_ranges(generation: tf.Tensor, first: tf.Tensor, num_ranges: tf.Tensor, plan: tf.Tensor) -> tf.Tensor:
    """Adds ranges behind the others; returns whether they were added, bool scalar. The call may be repeated.

    Args:
      generation: int64 scalar, of the queue to which they are added.
      first: int32 scalar, the number of ranges that the queue has; if it has others, the call changes nothing.
      num_ranges: int32 scalar, the ranges to add.
      plan: string scalar, describes all ranges.
    """
    def build(generation: Any, first: Any, num_ranges: Any, plan: Any) -> list[tf.Tensor]:
        done, owners, given, old_plan = (read_queue(name) for name in ("done", "owners", "given", "plan"))
        is_next = tf.equal(read_queue("generation"), generation) & tf.equal(tf.size(done), first)
        new = tf.zeros([num_ranges * tf.cast(is_next, tf.int32)], tf.int32)
        written = [_write(name, tf.concat([old, new], 0)) for name, old in (
            ("done", done), ("owners", owners), ("given", given))]
        with tf.control_dependencies([*written, _write("plan", tf.where(is_next, plan, old_plan))]):
            return [tf.identity(is_next)]

    return _one_at_a_time([generation, first, num_ranges, plan], build)[0]


def read_together(*names: str) -> list[tf.Tensor]:
    """Returns the values of variables at one moment."""
    return _one_at_a_time([], lambda: [read_queue(name) for name in names])


def mark() -> tf.Tensor:
    """Begins `given` again, with the ranges that workers hold now; returns `done` of the same moment."""
    def build() -> list[tf.Tensor]:
        done = read_queue("done")
        with tf.control_dependencies([done, _write("given", tf.cast(read_queue("owners") > 0, tf.int32))]):
            return [tf.identity(done)]

    return _one_at_a_time([], build)[0]


def exchange(request: Request, num_epochs: int | None, seed: int | None) -> Answer:
    """Counts the ranges that a worker has finished, and assigns it another one.

    The call may be repeated: if its answer was lost, the same range is assigned again, since the worker does not say
    that it holds it.

    Args:
      num_epochs: how often each range is trained on; None for no end.
      seed: of the order of the ranges, which is another one in each epoch; None for that of their numbers.
    """
    def build(worker: Any, generation: Any, finished: Any, held: Any, wants_another: Any) -> list[tf.Tensor]:
        done, owners = read_queue("done"), read_queue("owners")
        is_known = tf.equal(read_queue("generation"), generation)
        # A queue that has started again may have fewer ranges than the worker knows.
        last = tf.size(owners, out_type=tf.int64) - 1
        ended, held = tf.minimum(finished[:, 0], last), tf.minimum(held, last)
        accepted = is_known & tf.equal(tf.gather(owners, ended), worker + 1) & tf.equal(
            tf.gather(done, ended), tf.cast(finished[:, 1], tf.int32))
        counts = _count(ended, tf.cast(accepted, tf.int32), owners)
        # At most once: a worker that was silent may have got a range again that it had in hand.
        done, owners = done + tf.minimum(counts, 1), tf.where(counts > 0, tf.zeros_like(owners), owners)
        unknown = tf.equal(owners, worker + 1) & tf.equal(_count(held, tf.ones_like(held, tf.int32), owners), 0)
        is_again = tf.reduce_any(unknown)
        is_free = tf.equal(owners, 0) & (done < (_LAST if num_epochs is None else num_epochs))
        candidates = tf.where(is_again, unknown, is_free)
        chosen = _first(candidates, done, seed)
        is_given = is_known & wants_another & tf.reduce_any(candidates)
        is_taken = is_given & tf.equal(tf.range(tf.size(owners), dtype=tf.int64), chosen)
        owners = tf.where(is_taken, tf.fill(tf.shape(owners), worker + 1), owners)
        heard = tf.raw_ops.ResourceScatterUpdate(
            resource=_handle("heard"), indices=worker, updates=variables.read("clock"))
        given = read_queue("given") + tf.cast(is_taken & ~is_again, tf.int32)
        with tf.control_dependencies([_write("done", done), _write("owners", owners), _write("given", given), heard]):
            return [read_queue("generation"), tf.identity(accepted), tf.where(is_given, chosen, -1),
                    tf.gather(done, chosen), is_given & is_again]

    return Answer(*_one_at_a_time(request, build))


def release_silent(timeout_secs: float) -> tf.Tensor:
    """Returns the ranges of workers without a sign of life for so long to the queue.

    Returns:
      int64 [n, 2], each range and the number of the worker that held it.
    """
    def build() -> list[tf.Tensor]:
        last_secs = tf.maximum(read_queue("heard"), variables.read("heartbeats"))
        is_silent = variables.read("clock") - last_secs >= timeout_secs
        owners = read_queue("owners")
        return [_release((owners > 0) & tf.gather(is_silent, tf.maximum(owners - 1, 0)), owners)]

    return _one_at_a_time([], build)[0]


def give_back(worker: tf.Tensor, claim: tf.Tensor) -> tf.Tensor:
    """Returns all ranges of this worker to the queue, unless another process has its number.

    Returns:
      As `release_silent`.
    """
    def build(worker: tf.Tensor, claim: tf.Tensor) -> list[tf.Tensor]:
        owners, last_claim = read_queue("owners"), variables.read("claims")[worker]
        is_own = tf.equal(claim, variables.ANY_CLAIM) | tf.equal(last_claim, claim) | tf.equal(last_claim, 0)
        return [_release(tf.equal(owners, worker + 1) & is_own, owners)]

    return _one_at_a_time([worker, claim], build)[0]


def _release(is_released: tf.Tensor, owners: tf.Tensor) -> tf.Tensor:
    ranges = tf.where(is_released)[:, 0]
    released = tf.stack([ranges, tf.cast(tf.gather(owners, ranges) - 1, tf.int64)], axis=1)
    with tf.control_dependencies([_write("owners", tf.where(is_released, tf.zeros_like(owners), owners))]):
        return tf.identity(released)


def _first(candidates: tf.Tensor, done: tf.Tensor, seed: int | None) -> tf.Tensor:
    """Returns which of the candidates comes first, int64 scalar: the furthest behind, in the order of its epoch."""
    least = tf.reduce_min(tf.where(candidates, done, tf.fill(tf.shape(done), _LAST)))
    if seed is None:
        return tf.argmax(tf.cast(candidates & tf.equal(done, least), tf.int32))
    low_bits = (seed + 2**31) % 2**32 - 2**31  # as `least`, an int32
    order = tf.random.stateless_uniform(tf.shape(done), tf.stack([low_bits, least]))
    return tf.argmin(tf.where(candidates & tf.equal(done, least), order, tf.fill(tf.shape(order), 2.0)))


def _count(numbers: tf.Tensor, values: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return tf.scatter_nd(tf.expand_dims(numbers, 1), values, tf.shape(like, out_type=tf.int64))


def _one_at_a_time(inputs: Sequence[tf.Tensor], build: Callable[..., list[tf.Tensor]]) -> list[tf.Tensor]:
    """Returns the tensors of `build(*inputs)`, computed while no other call runs."""
    # The lock is taken only when the inputs are on the ps. If a worker dies in between, the lock ends with its call.
    inputs = [tf.identity(value) for value in inputs]
    with tf.control_dependencies(inputs):
        lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=f"{_NAME}mutex"))
    with tf.control_dependencies([lock]):
        outputs = build(*inputs)
    with tf.control_dependencies(outputs):
        released = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
    with tf.control_dependencies([released]):
        return [tf.identity(output) for output in outputs]


def _write(name: str, value: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.AssignVariableOp(resource=_handle(name), value=value)


def _handle(name: str) -> tf.Tensor:
    # Of any shape: the number of ranges depends on the files.
    return tf.raw_ops.VarHandleOp(dtype=_DTYPES[name], shape=tf.TensorShape(None), shared_name=_NAME + name,
                                  container="")


class QueueState(NamedTuple):
    """How far the queue is.

    Attributes:
      done: int32 [ranges], how often each range was trained on.
      owners: int32 [ranges], the number of the worker that holds the range, -1 for none.
    """

    done: np.ndarray
    owners: np.ndarray

    def holders(self) -> dict[int, int]:
        """Returns worker -> the number of ranges that it holds."""
        workers, counts = np.unique(self.owners[self.owners >= 0], return_counts=True)
        return dict(zip(workers.tolist(), counts.tolist()))

    def num_left(self, num_epochs: int) -> int:
        """Returns how many ranges, counted once for each epoch, are not done."""
        # A training that did more epochs may be continued with fewer.
        return int(np.sum(np.maximum(num_epochs - self.done, 0)))

    def has_free(self, num_epochs: int | None) -> bool:
        """Returns whether a worker that asks gets a range."""
        is_open = self.done < (_LAST if num_epochs is None else num_epochs)
        return bool(np.any(is_open & (self.owners < 0)))


class RangeQueue:
    """The queue, as one worker uses it. Every method raises BlackboardError if ps 0 does not answer.

    Attributes:
      own_claim: that of this process for the worker's number.
    """

    def __init__(
        self, target: str, cluster: Cluster, *, num_epochs: int | None, seed: int | None,
        heartbeat_timeout_secs: float = Timeouts.heartbeat_secs,
    ) -> None:
        """Builds the operations; nothing is sent yet.

        Args:
          target: address of the server that runs the session, such as `grpc://localhost:2223`.
          num_epochs, seed: see `exchange`.
          heartbeat_timeout_secs: a worker without a sign of life for so long loses its ranges.
        """
        self._worker, self.own_claim = cluster.worker_number, variables.ANY_CLAIM
        with tf.Graph().as_default() as graph:
            self._request = Request(
                tf.placeholder(tf.int32, []), tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [None, 2]),
                tf.placeholder(tf.int64, [None]), tf.placeholder(tf.bool, []))
            with tf.device(cluster.ps[0].device + "/cpu:0"):
                self._exchange = exchange(self._request, num_epochs, seed)
                self._release_silent = release_silent(heartbeat_timeout_secs)
                self._claim = tf.placeholder(tf.int64, [])
                self._give_back = give_back(self._request.worker, self._claim)
                self._state = read_together("done", "owners")
                self._plan = read_queue("plan")
                self._extension = [tf.placeholder(dtype, []) for dtype in (tf.int64, tf.int32, tf.int32, tf.string)]
                self._add = add_ranges(*self._extension)
            graph.finalize()
        self._connection = Connection(graph, target, cluster.ps, cluster.task, is_elastic=cluster.is_elastic)

    def plan(self) -> str:
        """Returns the text of the ranges with which the chief has begun the queue."""
        return self._connection.run(self._plan).decode()

    def exchange(
        self, generation: int, finished: Sequence[Assignment], held: Sequence[Assignment], *, wants_another: bool
    ) -> Answer:
        """Counts the ranges that this worker has finished, and gets another one; see the function `exchange`."""
        feed = Request(self._worker, generation, np.array(finished, np.int64).reshape(-1, 2),
                       np.array([assignment.number for assignment in held], np.int64), wants_another)
        return Answer(*self._connection.run(self._exchange, dict(zip(self._request, feed))))

    def add(self, generation: int, *, first: int, num_ranges: int, plan: str) -> bool:
        """Adds ranges behind the others, and returns whether it has; see `add_ranges`."""
        return bool(self._connection.run(self._add, dict(zip(
            self._extension, (generation, first, num_ranges, plan)))))

    def release_silent(self) -> dict[int, list[int]]:
        """Returns the ranges of silent workers to the queue; returns worker -> its ranges."""
        by_worker: dict[int, list[int]] = {}
        for number, worker in self._connection.run(self._release_silent).tolist():
            by_worker.setdefault(worker, []).append(number)
        return by_worker

    def give_back(self) -> list[int]:
        """Returns the ranges of this worker to the queue; returns their numbers."""
        feed = {self._request.worker: self._worker, self._claim: self.own_claim}
        return self._connection.run(self._give_back, feed)[:, 0].tolist()

    def state(self) -> QueueState:
        """Returns how far the queue is."""
        done, owners = self._connection.run(self._state)
        return QueueState(done, owners - 1)

    def close(self) -> None:
        """Closes the session."""
        self._connection.close()
