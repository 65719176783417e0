"""The cluster's blackboard: small variables on the ps through which the tasks tell each other where training stands.

    each ps    its incarnation, a number drawn when it started · its own copy of the training state · where ps 0 is
    ps 0       for which incarnations the chief has prepared the parameters, and its fingerprint · a clock · for each
               worker: who it is (its claim), when it was last heard of (its beat, by that clock), its global step, how
               many steps it has taken, whether it has finished

Every task reaches it through the TensorFlow servers that are there anyway: no second port, no second protocol. The
variables themselves are those of `variables.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.cluster import description, reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import sessions, variables
from ps_train.coordination.claims import new_claim
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ClusterLostError, ConfigError
from ps_train.runtime import tensorflow_errors, waits
from ps_train.runtime.waits import Timeouts

_RUN_TIMEOUT_SECS = 5.0
_LONGEST_TICK_SECS = 1.0
_UNREACHABLE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError,
                tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.CancelledError)


def state_tensor(ps: Task) -> tf.Tensor:
    """Returns a scalar int64 tensor, in the current graph, that reads the training state on that ps."""
    with tf.device(ps.device):
        return variables.read("state")


class Blackboard:
    """One task's view of the blackboard, through a session of its own that outlives the training session.

    Any method raises BlackboardError where a ps does not answer, or has not put the blackboard up yet, and ConfigError
    where it is something else than this task expects. Close it, as with `contextlib.closing`: a session that is left to
    Python's own clean-up closes there and then, which waits for ever if its server is gone.
    """

    def __init__(
        self, target: str, ps: Sequence[Task], own: Task | None, *, is_elastic: bool = False, told_text: str = "",
        heartbeat_timeout_secs: float = Timeouts.heartbeat_secs,
    ) -> None:
        """Prepares the operations; nothing is sent yet.

        Args:
          target: address of the server whose session this is, such as `grpc://localhost:2223`.
          ps: the parameter servers that this task talks to; what is only on the first one is read and written there.
          own: the task behind `target`, or None where that is the first ps.
          is_elastic: see `Cluster`.
          heartbeat_timeout_secs: a worker that was not heard of for this long is dead, in every snapshot.
          told_text: what a ps that puts up its part was told of the cluster, see cluster/description.py.
        """
        self._told_text = told_text
        self._heartbeat_timeout_secs = heartbeat_timeout_secs
        self._ps = list(ps)
        self._ways = [(target, sessions.options([*self._ps, *([own] if own else [])], is_elastic))]
        if own:
            self._ways.append((f"grpc://{ps[0].address}", sessions.options(self._ps, is_elastic)))
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
        self._announcements, self._incarnations, self._put_up, self._tell_first_ps = [], [], [], []
        for number, task in enumerate(self._ps):
            with tf.device(task.device):
                self._announcements.append(variables.write("state", self._value))
                self._incarnations.append(variables.read("incarnation"))
                self._tell_first_ps.append(variables.write("first_ps", self._ps[0].address))
                if number == 0:
                    cleared = [*variables.clear_first_ps(), variables.clear("first_ps"), variables.write("state", 0),
                               variables.write("told", self._told_text), variables.clear("mismatch")]
                    with tf.control_dependencies(cleared):
                        self._put_up = variables.write("incarnation", self._value)
        with tf.device(self._ps[0].device):
            self._build_first()

    def _build_first(self) -> None:
        self._state = variables.read("state")
        self._told_first_ps = variables.read("first_ps")
        self._mismatch = variables.read("mismatch")
        self._prepared = variables.read("prepared")
        self._incarnations_of_all = tf.placeholder(tf.int64, [variables.MAX_PS])
        self._set_prepared = variables.write("prepared", self._incarnations_of_all)
        self._text = tf.placeholder(tf.string, [])
        self._set_fingerprint = variables.write("fingerprint", self._text)
        self._fingerprint = variables.read("fingerprint")
        self._mark_finished = variables.write_element("finished", self._worker, 1)
        self._reset_finished = variables.clear("finished")
        is_here = tf.not_equal(variables.read("claims"), 0)
        self._unfinish_who_is_here = variables.write(
            "finished", tf.where(is_here, tf.zeros([variables.MAX_WORKERS], tf.int64), variables.read("finished")))
        self._reset_local_steps = variables.clear("local_steps")
        self._local_steps = tf.placeholder(tf.int64, [])
        self._read_claim = variables.read("claims")[self._worker]
        with tf.control_dependencies([self._read_claim]):
            # A beat never takes a claim that another process has.
            holds = tf.equal(self._read_claim, self._claim)
            self._beat = tf.cond(holds, self._stamp_steps, lambda: tf.constant(False))
        with tf.control_dependencies([variables.write_element("claims", self._worker, self._claim)]):
            self._take = self._stamp(0)
        self._unfinish = variables.write_element("finished", self._worker, 0)
        self._secs = tf.placeholder(tf.float64, [])
        self._tick = variables.add("clock", self._secs)
        self._snapshot = [self._state, *(
            variables.read(name) for name in ("clock", "claims", "beats", "steps", "local_steps", "finished"))]

    def _stamp(self, step: Any) -> tf.Tensor:
        """Returns true, after noting that the worker was heard of now, at this global step."""
        with tf.control_dependencies([variables.write_element("beats", self._worker, variables.read("clock")),
                                      variables.write_element("steps", self._worker, step)]):
            return tf.constant(True)

    def _stamp_steps(self) -> tf.Tensor:
        """Returns true, after noting besides how many steps the worker has taken."""
        with tf.control_dependencies([variables.write_element("local_steps", self._worker, self._local_steps)]):
            return self._stamp(self._value)

    def put_up(self) -> None:
        """Makes this ps's part of the blackboard, in the state idle; each ps does so for itself, before it serves."""
        self._run(self._put_up, {self._value: new_claim()})

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

    def told_first_ps(self) -> str:
        """Returns the address of ps 0 that a chief has told this ps, "" where none has."""
        return self._run(self._told_first_ps).decode()

    def mismatch(self) -> str:
        """Returns the line that says how two tasks were told of different clusters, "" where nobody has found that."""
        return self._run(self._mismatch).decode()

    def snapshot(self) -> Snapshot:
        """Returns what ps 0 knows now."""
        state, now_secs, claims, beats, steps, local_steps, finished = self._run(self._snapshot)
        return Snapshot(State(int(state)), float(now_secs), claims, beats, steps, local_steps, finished.astype(bool),
                        self._heartbeat_timeout_secs)

    def is_prepared(self) -> bool:
        """Tells whether the parameters that the ps hold were prepared by a chief, and none has restarted since."""
        state, prepared, *incarnations = self._run([self._state, self._prepared, *self._incarnations])
        return state in (State.RUNNING, State.STOPPING) and list(prepared[:len(self._ps)]) == incarnations

    def fingerprint(self) -> str:
        """Returns the chief's fingerprint, "" where it has not written one."""
        return self._run(self._fingerprint).decode()

    def start_run(self, fingerprint: str = "") -> None:
        """Announces that the parameters on the ps as they are now are ready; for the chief."""
        if self.state() == State.IDLE:
            self._run([self._reset_local_steps, self._reset_finished])
        else:  # a training that goes on, after the loss of a ps: who has finished and left does not come back
            self._run(self._unfinish_who_is_here)
        incarnations = np.zeros([variables.MAX_PS], np.int64)
        incarnations[:len(self._ps)] = self._run(self._incarnations)
        self._run([self._set_prepared, self._set_fingerprint, self._tell_first_ps],
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
            if any(reachability.accepts(task.address) for task in self._ps):
                raise

    def claim(self, worker: int, claim: int) -> None:
        """Makes a process the holder of a worker's number, whoever had it before."""
        self._run(self._unfinish, {self._worker: worker})
        self._run(self._take, {self._worker: worker, self._claim: claim})

    def leave(self, worker: int) -> None:
        """Gives a worker's number back: nobody waits for it any more."""
        self._run(self._take, {self._worker: worker, self._claim: 0})

    def beat(self, worker: int, claim: int, step: int, local_steps: int = 0) -> bool:
        """Notes that a worker is alive; returns false where another process holds its number, or nobody does."""
        return bool(self._run(self._beat, {self._worker: worker, self._claim: claim, self._value: step,
                                           self._local_steps: local_steps}))

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
                target, config = self._ways[0]
                self._session = tf.Session(target, graph=self._graph, config=config)
            session, options = self._session, tf.RunOptions(timeout_in_ms=int(_RUN_TIMEOUT_SECS * 1000))
            try:
                # Bounded from outside too: the time-out of RunOptions begins when the server has made the session.
                return waits.bounded(lambda: session.run(fetches, feed, options), 2 * _RUN_TIMEOUT_SECS, "an answer")
            except tf.errors.InvalidArgumentError as error:  # about a device, say: our own operations are sound
                raise ConfigError(
                    f"{' or '.join(map(str, self._ps))} is no ps as this task expects it: "
                    f"{tensorflow_errors.reason(error)}; start all tasks from the same version, and all with or all "
                    "without --elastic") from error
            except (*_UNREACHABLE, ClusterLostError, RuntimeError) as error:  # the last: `close` came in between
                self._session = None
                sessions.close_in_background(session)
                # The own server may be what is stuck: closing a lost training session was seen to take it 20 s, in
                # which training ended and the ps were gone. The next session goes the other way, by ps 0's server.
                self._ways.reverse()
                reason = tensorflow_errors.reason(error)
                raise BlackboardError(f"the blackboard on {self._ps[0]} does not answer: {reason}") from error


def for_ps(
    target: str, cluster: Cluster, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs
) -> Blackboard:
    """Returns a ps's own view: it looks at itself only, and so needs no other task."""
    return Blackboard(target, [cluster.task], None, is_elastic=cluster.is_elastic,
                      told_text=description.describe_cluster(cluster), heartbeat_timeout_secs=heartbeat_timeout_secs)


def for_worker(
    target: str, cluster: Cluster, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs
) -> Blackboard:
    """Returns a worker's view: it reads ps 0, and the chief writes to every ps."""
    return Blackboard(target, cluster.ps, cluster.task, is_elastic=cluster.is_elastic,
                      heartbeat_timeout_secs=heartbeat_timeout_secs)


def for_client(cluster: Cluster, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs) -> Blackboard:
    """Returns the view of a task without a server, such as an evaluator: it is a client of ps 0."""
    return _at(cluster.ps[0].address, cluster, heartbeat_timeout_secs)


def of_first_ps(
    own: Blackboard, cluster: Cluster, heartbeat_timeout_secs: float = Timeouts.heartbeat_secs
) -> Blackboard:
    """Returns another ps's view of ps 0, whose address the chief writes to `own` where the cluster does not name it.

    Raises:
      BlackboardError: the chief has not written it yet.
    """
    address = cluster.addresses["ps"].get(0) or own.told_first_ps()
    if not address:
        raise BlackboardError(f"{cluster.task} has not been told yet where ps:0 is")
    return _at(address, cluster, heartbeat_timeout_secs)


def _at(address: str, cluster: Cluster, heartbeat_timeout_secs: float) -> Blackboard:
    return Blackboard(f"grpc://{address}", [Task("ps", 0, address)], None, is_elastic=cluster.is_elastic,
                      heartbeat_timeout_secs=heartbeat_timeout_secs)
