"""Runs the updates of `SyncReplicasOptimizer` on the chief of a script.

    with ps_train's `Server`   MemberRunner: updates follow the workers that are alive, as long as any worker trains
    without                    StandaloneRunner: each update waits for all of its gradients, as with TensorFlow's class

TensorFlow starts both as it starts a QueueRunner. Both use a session of their own: the script closes its session while
other workers may still need an update. Only a session without a target is used itself, as another would have other
variables; its script has no other workers. Without a server of ps_train nobody sends heartbeats and no ps has created
the variables of sync, so the chief creates them (`StandaloneEngine`):

    chief    initialises the variables --> chief_init_op: creates what the workers wait for --> StandaloneRunner
    others   ready_for_local_init_op names what is missing until then --> local_step_init_op --> steps
    the end  the chief's coordinator stops, or its process ends --> no worker waits for an update any more
             a signal or an error, and it may come back         --> the steps of the others wait for it

Scripts of before TensorFlow 1.0 know no chief_init_op, and later ones may leave it out: then the runner does the same.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import threading
import time
import weakref
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.coordination import sessions, variables
from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.parts.legacy.classic import ending, membership
from ps_train.parts.legacy.classic.membership import Membership
from ps_train.parts.legacy.classic.step_inputs import WithStepInputs
from ps_train.runtime import tensorflow_errors, waits
from ps_train.updates.sync.aggregation import SyncEngine, SyncOperations, Verdict
from ps_train.updates.sync.runner import Quorum, QuorumStatus, UpdateRunner
from ps_train.updates.update import RUN_OPTIONS, ChiefContext, SyncSettings

_RELEASE_SECS = 5.0
_RELEASE_OPTIONS = tf.RunOptions(timeout_in_ms=int(_RELEASE_SECS * 1000))
_VARIABLES = ("updating", "computed_for", "pushed", "awaited", "marks", "included", "unused", "updates_ended",
              "updates_failed")
_LAST_VARIABLE = "required"  # the chief writes it after the others
# Bound here: a script's `tf.Session` is replaced by one that joins the cluster (sessions.py).
_Session = tf.Session
_log = logging.getLogger(__name__)
_started: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # graph -> the name of the step that is updated


def make_runner(operations: SyncOperations, settings: SyncSettings, engine: StandaloneEngine) -> Any:
    """Returns what runs the updates on the chief, with the methods of a QueueRunner."""
    member = membership.current()
    if member is None:
        return StandaloneRunner(operations, engine)
    member.is_sync = True
    return MemberRunner(member, operations, Quorum(settings), engine.release_once_op)


def _refuse_another(operations: SyncOperations, graph: tf.Graph) -> None:
    """Raises ConfigError if the updates of another optimizer are made in a graph: both have the same gate."""
    name = operations.train_op.name
    if _started.setdefault(graph, name) != name:
        raise ConfigError("sync_second_step", "SyncReplicasOptimizer: this graph has the updates of another one "
                          "already, and ps_train makes one kind of update in a graph; minimize the sum of the "
                          "losses, or use SyncReplicasOptimizer for one of them only")


class _ScriptUpdates(UpdateRunner):
    """The updates of a script, which need no floor: they end when every script has ended."""

    def _end_for_lack_of_data(self, session: tf.Session, context: ChiefContext, quorum: QuorumStatus) -> None:
        sessions.run_bounded(session, self._operations.release_op, options=_RELEASE_OPTIONS)


class MemberRunner:
    """Runs the updates with the quorum of the workers that are alive."""

    name = "ps_train/updates"
    is_of_training = True

    def __init__(
        self, member: Membership, operations: SyncOperations, quorum: Quorum, release_once_op: tf.Operation
    ) -> None:
        """Takes `operations`, whose `release_op` is final, and the operation that ends the steps that wait now only."""
        self._member, self._release_once_op = member, release_once_op
        self._graph = tf.get_default_graph()
        self._operations, self._service = operations, _ScriptUpdates(operations, quorum)
        self._session: tf.Session | None = None
        self._lost_secs: float | None = None  # since when this session is known to be lost
        self._lock = threading.Lock()  # of the session

    def create_threads(
        self, sess: tf.Session, coord: tf.train.Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Starts the updates if `start` is true; see `tf.compat.v1.train.QueueRunner`. Returns no thread to join."""
        if not start:
            return []
        _refuse_another(self._operations, self._graph)
        member = self._member
        with self._lock:
            self._stop()
            self._begin(self._open_session(), is_resumed=member.was_live)
        if self not in member.update_services:
            member.update_services.append(self)
        return []

    def _open_session(self) -> tf.Session:
        member = self._member
        config = membership.with_filters(None, membership.filters_of(self._graph, member.cluster))
        return tf.Session(member.target, graph=self._graph, config=config)

    def _begin(self, session: tf.Session, *, is_resumed: bool) -> None:
        member = self._member
        names = {member.cluster.number_of(worker): str(worker) for worker in member.cluster.workers}
        self._session, self._lost_secs = session, None
        self._service.start(session, ChiefContext(
            board=member.join(), worker_names=names, chief_number=member.cluster.worker_number,
            start_timeout_secs=member.timeouts.start_secs, is_resumed=is_resumed))

    def _stop(self) -> None:
        if self._session is not None:
            self._service.stop()
            sessions.close_in_background(self._session)
            self._session = None

    def check(self) -> None:
        """Raises the error that has ended the updates; if their session was lost, begins them in a new one.

        A script whose own session was lost as well makes a new one, and begins the updates. But it may have lost none,
        or have ended: then all workers would wait for an update for ever.

        Raises:
          ClusterLostError: no new session was found for the start time-out.
        """
        with self._lock:
            error = self._service.error
            if error is None:
                return
            if not (isinstance(error, tf.errors.OpError) and sessions.is_lost(error)):
                raise error
            if self._session is None:
                return
            now_secs, timeouts = time.monotonic(), self._member.timeouts
            self._lost_secs = now_secs if self._lost_secs is None else self._lost_secs
            lost_secs = now_secs - self._lost_secs
            # The script is faster if it notices the loss; an update that is under way on the ps ends meanwhile. Without
            # parameters only the script can go on.
            if lost_secs < timeouts.heartbeat_secs or not sessions.if_answered(self._member.join().is_prepared):
                return
            if lost_secs > timeouts.heartbeat_secs + timeouts.start_secs:
                raise ClusterLostError("timed_out", f"waited {timeouts.start_secs:g} s for a session that makes the "
                                       f"updates: {tensorflow_errors.reason(error)}") from error
            self._begin_again(error)

    def _begin_again(self, error: tf.errors.OpError) -> None:
        """Begins the updates in a new session, unless that is lost at once."""
        session = self._open_session()
        try:
            sessions.run_bounded(session, self._operations.flush_op, options=RUN_OPTIONS)
        except tf.errors.OpError as failure:
            sessions.close_in_background(session)
            if not sessions.is_lost(failure):
                raise
            _log.debug("the updates are not begun again yet: %s", failure)
            return
        _log.warning("lost the session that makes the updates (%s); they go on in a new one, without the gradients "
                     "that were on their way", tensorflow_errors.reason(error))
        self._begin(session, is_resumed=True)

    def conclude(self, *, waits_for_others: bool, is_final: bool) -> None:
        """Ends the updates of this process, and the steps that wait for one.

        Args:
          waits_for_others: whether updates are made until no other worker trains.
          is_final: whether no later step waits for an update either. If this chief may come back, or has failed, the
            others must wait: they would go through their data, and no update would use their gradients.
        """
        if self._session is None:
            return
        if waits_for_others:
            is_final = self._wait_for_others() and is_final
        release_op = self._operations.release_op if is_final else self._release_once_op
        with self._lock:
            with contextlib.suppress(tf.errors.OpError, RuntimeError):  # ps 0 has ended, and so has every wait there
                sessions.run_bounded(self._session, release_op, options=_RELEASE_OPTIONS)
                self._service.conclude(self._session)
            self._stop()

    def _wait_for_others(self) -> bool:
        """Returns true when no other worker trains, false if this process must stop before."""
        member = self._member
        names: list[str] = []

        def is_alone() -> bool:
            snapshot = sessions.if_answered(member.snapshot)
            if snapshot is None:  # a later call may be answered, unless ps 0 has ended
                return not reachability.accepts(member.cluster.ps[0].address)
            own_number = member.cluster.worker_number
            names[:] = [member.cluster.worker_name(worker) for worker in snapshot.alive()
                        if worker != own_number and not snapshot.finished[worker]]
            return not names

        try:
            waits.until(is_alone, math.inf, lambda: f"{', '.join(names)} to end; the chief still makes their updates",
                        member.stop)
        except StoppedError:
            return False
        return True


class StandaloneEngine(SyncEngine):
    """Creates its variables itself, because no ps does, and can record that there are no more updates."""

    def __init__(self, optimizer: Any, *arguments: Any, **options: Any) -> None:
        """Takes what SyncEngine takes."""
        self._applying = WithStepInputs(optimizer)
        super().__init__(self._applying, *arguments, **options)

    def _step(self) -> tuple[tf.Operation, Verdict]:
        # The update comes first: what it needs of a worker's step becomes a part of that step.
        self._built_update = super()._update()
        self._also_in_step += self._applying.writes
        return super()._step()

    def _update(self) -> tf.Operation:
        return self._built_update

    def operations(self) -> SyncOperations:
        """Returns the operations: `init.new_run` also creates the variables, and `release_op` is final.

        `release_once_op` ends the steps that wait for an update now; the next ones wait again. `fail_op` ends the
        chief's steps, and those of the others wait until a chief begins again.
        """
        operations = super().operations()
        self.release_once_op = operations.release_op
        with tf.device(self._ps):
            with tf.control_dependencies([variables.write("updates_failed", 1)]):
                self.fail_op = self._worker_conditions[0].notify()
            with tf.control_dependencies([variables.clear("updates_ended"), variables.clear("updates_failed")]):
                is_begun = self._is_begun()
            with tf.control_dependencies([variables.write("updates_ended", 1)]):
                release_op = self._release()
        # A chief that comes back finds gradients on their way, some of them half pushed, and must not let them in: it
        # raises the global step. A new training keeps its step.
        begin_op = tf.group(tf.cond(is_begun, self._resume_updates, self._begin_updates))
        return operations._replace(init=operations.init._replace(new_run=begin_op), release_op=release_op)

    def _resume_updates(self) -> tf.Tensor:
        with tf.control_dependencies([self._then_begin_own_step(self._begin(1))]):
            return tf.constant(True)

    def _begin_updates(self) -> tf.Tensor:
        with tf.device(self._ps):
            created = [variables.clear(name) for name in _VARIABLES]
        with tf.control_dependencies(created):
            begun = self._begin(0)
        with tf.control_dependencies([self._then_begin_own_step(begun)]):
            return tf.constant(True)

    def _then_begin_own_step(self, begun: tf.Operation) -> tf.Operation:
        """Returns the operation that begins this worker's next step after `begun`."""
        with tf.device(self._ps), tf.control_dependencies([begun]):
            return self._begin_step(self._read_step(), 0, 0)

    def _is_begun(self) -> tf.Tensor:
        """Returns whether a chief has prepared the updates on this ps, bool scalar."""
        with tf.device(self._ps):
            return tf.cond(variables.was_written(_LAST_VARIABLE), lambda: variables.read(_LAST_VARIABLE) > 0,
                           lambda: tf.constant(False))

    def is_under_way(self) -> tf.Tensor:
        """Returns whether a chief has prepared the updates, and they have neither ended nor failed; bool scalar."""
        with tf.device(self._ps):
            return tf.cond(self._is_begun(), lambda: self._are_unset("updates_ended", "updates_failed"),
                           lambda: tf.constant(False))

    def _must_wait(self) -> tf.Tensor:
        # No update comes for the chief itself once its updates have failed.
        ends = ["updates_ended"] if self._worker else ["updates_ended", "updates_failed"]
        return tf.logical_and(super()._must_wait(), self._are_unset(*ends))

    @staticmethod
    def _are_unset(*names: str) -> tf.Tensor:
        return tf.equal(tf.add_n([variables.read(name) for name in names]), 0)

    def missing(self) -> tf.Tensor:
        """Returns what a worker's first step lacks besides variables: string [n]; the chief's lacks nothing."""
        if self._worker == 0:
            return tf.constant([], tf.string)
        with tf.device(self._ps):
            is_missing = tf.logical_not(self._is_begun())
            return tf.boolean_mask(["the chief's chief_init_op"], [is_missing])


class StandaloneRunner:
    """Runs the updates in a thread of the chief."""

    name = "ps_train/updates"

    def __init__(self, operations: SyncOperations, engine: StandaloneEngine) -> None:
        self._operations, self._engine, self._is_under_way = operations, engine, engine.is_under_way()

    def create_threads(
        self, sess: tf.Session, coord: tf.train.Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Returns the threads that run the updates and stop them; see `tf.compat.v1.train.QueueRunner`."""
        loop = _UpdateLoop(self._operations, self._engine, sess, coord)
        if start:
            _refuse_another(self._operations, sess.graph)
            loop.begin(self._is_under_way)
        updates = threading.Thread(target=loop.run, daemon=daemon or not loop.has_own_session, name="updates")
        # In the script's own session an update that waits ends when that is closed, after the coordinator has waited
        # for its threads: it would wait for this one for its whole grace period.
        joined = [updates] if loop.has_own_session else []
        if coord:
            joined.append(threading.Thread(target=loop.end_with_coordinator, daemon=daemon, name="end of updates"))
            for thread in joined:
                coord.register_thread(thread)
        for thread in dict.fromkeys([updates, *joined]) if start else ():
            thread.start()
        return joined


class _UpdateLoop:
    """The updates of one session."""

    def __init__(self, operations: SyncOperations, engine: StandaloneEngine, session: tf.Session,
                 coord: tf.train.Coordinator | None) -> None:
        self._operations, self._engine = operations, engine
        self.has_own_session = bool(session.sess_str)
        # For the device filters, among others; TensorFlow has no public name for it.
        config = session._config  # noqa: SLF001
        self._session = _Session(session.sess_str, session.graph, config) if self.has_own_session else session
        self._coord = coord
        self._lock = threading.Lock()
        self._is_over = False
        atexit.register(self.end)

    def begin(self, is_under_way: tf.Tensor) -> None:
        """Prepares the updates if the script has not run chief_init_op; an error stops the coordinator."""
        try:
            if not self._session.run(is_under_way):
                self._session.run(self._operations.init.new_run)
        except tf.errors.OpError as error:
            if not self._coord:
                raise
            self._coord.request_stop(error)

    def run(self) -> None:
        """Runs one update after the other until the end; an error stops the coordinator."""
        try:
            while not self._is_over:
                self._session.run(self._operations.update_op)
        except Exception as error:
            # The script may close its own session without a word to the coordinator.
            is_closed = not self.has_own_session and isinstance(error, (tf.errors.CancelledError, RuntimeError))
            if self._is_over or is_closed:
                _log.debug("no more updates: %s", error)
            elif self._coord:
                self._coord.request_stop(error)
            else:
                raise

    def end_with_coordinator(self) -> None:
        """Ends the updates when the coordinator stops."""
        self._coord.wait_for_stop()
        try:
            self._coord.raise_requested_exception()
        except Exception as error:  # noqa: BLE001 (the coordinator also raises it in the thread that joins it)
            # The other workers wait for a new chief. This one must not wait: its script would not see the error.
            _log.debug("the other workers are not released: %s", error)
            is_lost = isinstance(error, tf.errors.OpError) and sessions.is_lost(error)  # then its own step fails, too
            self._end(None if is_lost else self._engine.fail_op)
        else:
            self.end()

    def end(self) -> None:
        """Releases every worker that waits for an update, now or later, and ends the update that is under way.

        After a signal to stop the chief may come back, so the next steps of the others wait for it.
        """
        self._end(self._engine.release_once_op if ending.is_stopping() else self._operations.release_op)

    def _end(self, release_op: tf.Operation | None) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        atexit.unregister(self.end)
        if release_op is not None:
            # The error means that ps 0 has ended, or the script has closed its session, and so has every wait there.
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                sessions.run_bounded(self._session, release_op, options=_RELEASE_OPTIONS)
        if self.has_own_session:
            sessions.close_in_background(self._session).join(_RELEASE_SECS)
