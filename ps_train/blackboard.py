"""The cluster's blackboard: small variables on the ps through which the tasks tell each other where training stands.

    each ps    its incarnation, a number drawn when it started · its own copy of the training state
    ps 0       for which incarnations the chief has prepared the parameters, and its fingerprint · a clock · for each
               worker: who it is (its claim), when it was last heard of (its beat, by that clock), its global step,
               whether it has finished

Every task reaches it through the TensorFlow servers that are there anyway: no second port, no second protocol. The
variables are made with raw operations under fixed names, so that any graph can name them and no Saver or readiness
check sees them.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train import claims, sessions, waiting
from ps_train.cluster import Cluster, Task
from ps_train.errors import ClusterLostError

MAX_WORKERS = 1024  # so that no task needs to know how many workers there are
_MAX_PS = 1024
_RUN_TIMEOUT_SECS = 5.0
_LONGEST_TICK_SECS = 1.0
_UNREACHABLE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError,
                tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.CancelledError)
_EVERY_PS = {"state": ([], tf.int64), "incarnation": ([], tf.int64)}
_FIRST_PS = {"prepared": ([_MAX_PS], tf.int64), "claims": ([MAX_WORKERS], tf.int64),
             "beats": ([MAX_WORKERS], tf.float64), "steps": ([MAX_WORKERS], tf.int64),
             "finished": ([MAX_WORKERS], tf.int64), "fingerprint": ([], tf.string),
             "clock": ([], tf.float64)}
_VARIABLES = {**_EVERY_PS, **_FIRST_PS}


class BlackboardError(ClusterLostError):
    """A ps does not answer, or has not put the blackboard up yet."""


class ChiefFailedError(ClusterLostError):
    """The chief's own code failed, and training is over for all."""

    def __init__(self) -> None:
        """Takes nothing: it always says the same."""
        super().__init__("the chief gave up training: see its log for the fault")


class State(enum.IntEnum):
    """Where training stands; it only ever rises, until the servers are used for another run."""

    IDLE = 0  # the ps are up; the chief has not prepared the parameters
    RUNNING = 1  # the parameters are ready; workers may train
    STOPPING = 2  # no more steps; workers report that they finished
    DONE = 3  # saved and evaluated; every process ends
    FAILED = 4  # the chief's own code failed: training cannot go on


class Snapshot(NamedTuple):
    """What ps 0 knew at one moment.

    Attributes:
      state: the training state.
      now_secs: ps 0's clock, which goes while ps 0 serves; see `Blackboard.tick`.
      claims: int64 [MAX_WORKERS], 0 where no worker is there.
      beats: float64 [MAX_WORKERS], ps 0's clock when each worker was last heard of.
      steps: int64 [MAX_WORKERS], the global step that each worker has seen.
      finished: bool [MAX_WORKERS].
    """

    state: State
    now_secs: float
    claims: np.ndarray
    beats: np.ndarray
    steps: np.ndarray
    finished: np.ndarray

    def is_alive(self, worker: int, timeout_secs: float) -> bool:
        """Tells whether a worker is there and was heard of within the time-out."""
        return bool(self.claims[worker]) and self.age_secs(worker) < timeout_secs

    def age_secs(self, worker: int) -> float:
        """Returns how long ago a worker was last heard of, in seconds."""
        return float(self.now_secs - self.beats[worker])

    def alive(self, timeout_secs: float) -> list[int]:
        """Returns the numbers of the workers that are there."""
        return [int(worker) for worker in np.flatnonzero(self.claims) if self.is_alive(worker, timeout_secs)]


def state_tensor(ps: Task) -> tf.Tensor:
    """Returns a scalar int64 tensor, in the current graph, that reads the training state on that ps."""
    with tf.device(ps.device):
        return _read("state")


def _variable(name: str) -> tf.Tensor:
    shape, dtype = _VARIABLES[name]
    return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=f"ps_train/{name}", container="")


def _read(name: str) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=_variable(name), dtype=_VARIABLES[name][1])


def _assign(name: str, value: Any) -> tf.Operation:
    dtype = _VARIABLES[name][1]
    return tf.raw_ops.AssignVariableOp(
        resource=_variable(name), value=value if dtype == tf.string else tf.cast(value, dtype))


def _set_element(name: str, index: tf.Tensor, value: Any) -> tf.Operation:
    return tf.raw_ops.ResourceScatterUpdate(
        resource=_variable(name), indices=index, updates=tf.cast(value, _VARIABLES[name][1]))


class Blackboard:
    """One task's view of the blackboard, through a session of its own that outlives the training session.

    Any method raises BlackboardError where a ps does not answer, or has not put the blackboard up yet. Close it, as
    with `contextlib.closing`: a session that is left to Python's own clean-up closes there and then, which waits for
    ever if its server is gone.
    """

    def __init__(self, target: str, ps: Sequence[Task], own: Task | None) -> None:
        """Prepares the operations; nothing is sent yet.

        Args:
          target: address of the server whose session this is, such as `grpc://localhost:2223`.
          ps: the parameter servers that this task talks to; what is only on the first one is read and written there.
          own: the task behind `target`, or None where that is the first ps.
        """
        self._target = target
        self._ps = list(ps)
        self._filters = [task.device for task in self._ps] + ([own.device] if own else [])
        self._ticked_secs = time.monotonic()
        self._session: tf.Session | None = None
        self._lock = threading.Lock()
        with tf.Graph().as_default() as self._graph:
            self._build()
            self._graph.finalize()

    @property
    def first_ps(self) -> Task:
        """The ps that the blackboard is on."""
        return self._ps[0]

    def _build(self) -> None:
        self._value, self._worker = tf.placeholder(tf.int64, []), tf.placeholder(tf.int64, [])
        self._claim = tf.placeholder(tf.int64, [])
        self._announcements, self._incarnations, self._put_up = [], [], []
        for number, task in enumerate(self._ps):
            with tf.device(task.device):
                self._announcements.append(_assign("state", self._value))
                self._incarnations.append(_read("incarnation"))
                if number == 0:
                    zeros = [_assign(name, tf.zeros(*_VARIABLES[name])) for name in _FIRST_PS]
                    with tf.control_dependencies([*zeros, _assign("state", 0)]):
                        self._put_up = _assign("incarnation", self._value)
        with tf.device(self._ps[0].device):
            self._build_first()

    def _build_first(self) -> None:
        self._state = _read("state")
        self._prepared = _read("prepared")
        self._incarnations_of_all = tf.placeholder(tf.int64, [_MAX_PS])
        self._set_prepared = _assign("prepared", self._incarnations_of_all)
        self._text = tf.placeholder(tf.string, [])
        self._set_fingerprint = _assign("fingerprint", self._text)
        self._fingerprint = _read("fingerprint")
        self._mark_finished = _set_element("finished", self._worker, 1)
        self._reset_finished = _assign("finished", tf.zeros([MAX_WORKERS]))
        self._read_claim = _read("claims")[self._worker]
        with tf.control_dependencies([self._read_claim]):
            # A beat never takes a claim that another process has.
            holds = tf.equal(self._read_claim, self._claim)
            self._beat = tf.cond(holds, lambda: self._stamp(self._value), lambda: tf.constant(False))
        with tf.control_dependencies([_set_element("claims", self._worker, self._claim)]):
            self._take = self._stamp(0)
        self._unfinish = _set_element("finished", self._worker, 0)
        self._secs = tf.placeholder(tf.float64, [])
        self._tick = tf.raw_ops.AssignAddVariableOp(resource=_variable("clock"), value=self._secs)
        self._snapshot = [self._state, *(_read(name) for name in ("clock", "claims", "beats", "steps", "finished"))]

    def _stamp(self, step: Any) -> tf.Tensor:
        """Returns true, after noting that the worker was heard of now, at this global step."""
        with tf.control_dependencies([_set_element("beats", self._worker, _read("clock")),
                                      _set_element("steps", self._worker, step)]):
            return tf.constant(True)

    def put_up(self) -> None:
        """Makes this ps's part of the blackboard, in the state idle; each ps does so for itself, before it serves."""
        self._run(self._put_up, {self._value: claims.new_claim()})

    def tick(self) -> None:
        """Lets the clock of this ps go on, by the time since the last tick; each ps does so again and again.

        It is no time of day: that may jump, and all workers would seem dead, or a dead one alive. Nor does it count a
        time for which the ps stood still (SIGSTOP, a machine that slept) and heard nobody.
        """
        last_secs, self._ticked_secs = self._ticked_secs, time.monotonic()
        self._run(self._tick, {self._secs: min(self._ticked_secs - last_secs, _LONGEST_TICK_SECS)})

    def state(self) -> State:
        """Returns the training state."""
        return State(int(self._run(self._state)))

    def snapshot(self) -> Snapshot:
        """Returns what ps 0 knows now."""
        state, now_secs, claims, beats, steps, finished = self._run(self._snapshot)
        return Snapshot(State(int(state)), float(now_secs), claims, beats, steps, finished.astype(bool))

    def is_prepared(self) -> bool:
        """Tells whether the parameters that the ps hold were prepared by a chief, and none has restarted since."""
        state, prepared, *incarnations = self._run([self._state, self._prepared, *self._incarnations])
        return state in (State.RUNNING, State.STOPPING) and list(prepared[:len(self._ps)]) == incarnations

    def fingerprint(self) -> str:
        """Returns the chief's fingerprint, "" where it has not written one."""
        return self._run(self._fingerprint).decode()

    def start_run(self, fingerprint: str = "") -> None:
        """Announces that the parameters on the ps as they are now are ready; for the chief."""
        incarnations = np.zeros([_MAX_PS], np.int64)
        incarnations[:len(self._ps)] = self._run(self._incarnations)
        self._run([self._reset_finished, self._set_prepared, self._set_fingerprint],
                  {self._incarnations_of_all: incarnations, self._text: fingerprint})
        self.announce(State.RUNNING)

    def announce(self, state: State) -> None:
        """Writes the training state to every ps."""
        self._run(self._announcements, {self._value: state})

    def announce_done(self) -> None:
        """Announces that all is done; a ps that is gone before its answer arrives has heard it."""
        try:
            self.announce(State.DONE)
        except BlackboardError:
            if any(waiting.accepts(task.address) for task in self._ps):
                raise

    def claim(self, worker: int, claim: int) -> None:
        """Makes a process the holder of a worker's number, whoever had it before."""
        self._run(self._unfinish, {self._worker: worker})
        self._run(self._take, {self._worker: worker, self._claim: claim})

    def leave(self, worker: int) -> None:
        """Gives a worker's number back: nobody waits for it any more."""
        self._run(self._take, {self._worker: worker, self._claim: 0})

    def beat(self, worker: int, claim: int, step: int) -> bool:
        """Notes that a worker is alive; returns false where another process holds its number, or nobody does."""
        return bool(self._run(self._beat, {self._worker: worker, self._claim: claim, self._value: step}))

    def report_finished(self, worker: int) -> None:
        """Notes that a worker takes no further step."""
        self._run(self._mark_finished, {self._worker: worker})

    def close(self) -> None:
        """Closes the session, without waiting for a ps that is gone, or for a call that is still waiting for it."""
        session, self._session = self._session, None
        if session is not None:
            sessions.close_in_background(session)

    def _run(self, fetches: Any, feed: Mapping[tf.Tensor, Any] | None = None) -> Any:
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
                sessions.close_in_background(session)
                reason = sessions.reason_of(error)
                raise BlackboardError(f"the blackboard on {self._ps[0]} does not answer: {reason}") from error


def of_ps(target: str, cluster: Cluster) -> Blackboard:
    """Returns a ps's own view: it looks at itself only, and so needs no other task."""
    return Blackboard(target, [cluster.task], None)


def of_worker(target: str, cluster: Cluster) -> Blackboard:
    """Returns a worker's view: it reads ps 0, and the chief writes to every ps."""
    return Blackboard(target, cluster.ps, cluster.task)


def of_client(cluster: Cluster) -> Blackboard:
    """Returns the view of a task without a server, such as an evaluator: it is a client of ps 0."""
    first = cluster.ps[0]
    return Blackboard(f"grpc://{first.address}", [first], None)
