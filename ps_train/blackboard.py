"""The cluster's blackboard: small variables on the ps through which the tasks tell each other where training stands.

    ps 0          training state (idle, running, stopping, done) · which workers have finished
    each other ps its own copy of the training state, so that it ends even if ps 0 is gone before it looks

Every task reaches it through the TensorFlow servers that are there anyway: no second port, no second protocol. The
variables are made with raw operations under fixed names, so that any graph can name them and no Saver or readiness
check sees them.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train import waiting
from ps_train.cluster import Cluster, Task
from ps_train.errors import ClusterLostError

MAX_WORKERS = 1024  # so that no task needs to know how many workers there are
_RUN_TIMEOUT_SECS = 5.0
_UNREACHABLE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError,
                tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.CancelledError)


class State(enum.IntEnum):
    """Where training stands; it only ever rises, until the servers are used for another run."""

    IDLE = 0  # the ps are up; the chief has not prepared the parameters
    RUNNING = 1  # the parameters are ready; workers may train
    STOPPING = 2  # no more steps; workers report that they finished
    DONE = 3  # saved and evaluated; every process ends


def state_tensor(ps: Task) -> tf.Tensor:
    """Returns a scalar int64 tensor, in the current graph, that reads the training state on that ps."""
    with tf.device(ps.device):
        return tf.raw_ops.ReadVariableOp(resource=_variable("state", []), dtype=tf.int64)


def _variable(name: str, shape: Sequence[int]) -> tf.Tensor:
    return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=shape, shared_name=f"ps_train/{name}", container="")


class Blackboard:
    """One task's view of the blackboard, through a session of its own that outlives the training session.

    Any method raises ClusterLostError where ps 0 does not answer, or has not put the blackboard up yet. Close it, as
    with `contextlib.closing`: a session that is left to Python's own clean-up closes there and then, which waits for
    ever if its server is gone.
    """

    def __init__(self, target: str, ps: Sequence[Task], own: Task | None) -> None:
        """Prepares the operations; nothing is sent yet.

        Args:
          target: address of the server whose session this is, such as `grpc://localhost:2223`.
          ps: the parameter servers that this task talks to; the first one is read.
          own: the task behind `target`, or None where that is the first ps.
        """
        self._target = target
        self._ps = list(ps)
        self._filters = [task.device for task in self._ps] + ([own.device] if own else [])
        self._session: tf.Session | None = None
        self._lock = threading.Lock()
        with tf.Graph().as_default() as self._graph:
            self._build()
            self._graph.finalize()

    def _build(self) -> None:
        self._state = state_tensor(self._ps[0])
        self._new_state = tf.placeholder(tf.int64, [])
        self._worker = tf.placeholder(tf.int64, [])
        self._announcements = [self._assign(task, "state", [], self._new_state) for task in self._ps]
        nobody = tf.zeros([MAX_WORKERS], tf.int64)
        self._reset_finished = self._assign(self._ps[0], "finished", [MAX_WORKERS], nobody)
        with tf.device(self._ps[0].device):
            finished = _variable("finished", [MAX_WORKERS])
            self._mark_finished = tf.raw_ops.ResourceScatterUpdate(
                resource=finished, indices=self._worker, updates=tf.constant(1, tf.int64))
            self._finished = tf.raw_ops.ReadVariableOp(resource=finished, dtype=tf.int64)

    def _assign(self, task: Task, name: str, shape: Sequence[int], value: tf.Tensor) -> tf.Operation:
        with tf.device(task.device):
            return tf.raw_ops.AssignVariableOp(resource=_variable(name, shape), value=value)

    def put_up(self) -> None:
        """Makes this ps's part of the blackboard, in the state idle; each ps does so for itself, before it serves."""
        self._run([self._reset_finished, self._announcements[0]], {self._new_state: State.IDLE})

    def state(self) -> State:
        """Returns the training state."""
        return State(int(self._run(self._state)))

    def start_run(self) -> None:
        """Announces that the parameters are ready; for the chief, which is the only one to call it."""
        self._run(self._reset_finished)
        self.announce(State.RUNNING)

    def announce(self, state: State) -> None:
        """Writes the training state to every ps."""
        self._run(self._announcements, {self._new_state: state})

    def announce_done(self) -> None:
        """Announces that all is done; a ps that is gone before its answer arrives has heard it."""
        try:
            self.announce(State.DONE)
        except ClusterLostError:
            if any(waiting.accepts(task.address) for task in self._ps):
                raise

    def report_finished(self, worker_number: int) -> None:
        """Notes that a worker takes no further step."""
        self._run(self._mark_finished, {self._worker: worker_number})

    def finished(self) -> np.ndarray:
        """Returns a bool array [MAX_WORKERS]: which workers have finished."""
        return self._run(self._finished).astype(bool)

    def close(self) -> None:
        """Closes the session, without waiting for a ps that is gone."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            close_in_background(session)

    def _run(self, fetches: Any, feed: dict[tf.Tensor, Any] | None = None) -> Any:
        with self._lock:
            if self._session is None:
                config = tf.ConfigProto(device_filters=self._filters, allow_soft_placement=True)
                self._session = tf.Session(self._target, graph=self._graph, config=config)
            session, options = self._session, tf.RunOptions(timeout_in_ms=int(_RUN_TIMEOUT_SECS * 1000))
            try:
                # Bounded from outside too: the time-out of RunOptions begins when the server has made the session.
                return waiting.bounded(lambda: session.run(fetches, feed, options), 2 * _RUN_TIMEOUT_SECS, "an answer")
            except (*_UNREACHABLE, ClusterLostError) as error:
                self._session = None
                close_in_background(session)
                reason = str(getattr(error, "message", error)).splitlines()[0]
                raise ClusterLostError(f"the blackboard on {self._ps[0]} does not answer: {reason}") from error


def close_in_background(session: tf.Session) -> None:
    """Closes a session in a daemon thread: after a peer died, closing stalls for 30 s (client/session.py)."""
    threading.Thread(target=_close, args=(session,), daemon=True, name="close session").start()


def _close(session: tf.Session) -> None:
    try:
        session.close()
    except tf.errors.OpError:  # the peer is gone, and with it what there was to close
        return


def of_ps(target: str, cluster: Cluster) -> Blackboard:
    """Returns a ps's own view: it looks at itself only, and so needs no other task."""
    return Blackboard(target, [cluster.task], None)


def of_worker(target: str, cluster: Cluster) -> Blackboard:
    """Returns a worker's view: it reads ps 0, and the chief writes to every ps."""
    return Blackboard(target, cluster.ps, cluster.task)


def of_evaluator(cluster: Cluster) -> Blackboard:
    """Returns the view of an evaluator, which has no server: it is a client of ps 0."""
    first = cluster.ps[0]
    return Blackboard(f"grpc://{first.address}", [first], None)
