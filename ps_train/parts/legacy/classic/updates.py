"""Runs the updates of `SyncReplicasOptimizer` on the chief of a script, as long as any worker trains.

    the script starts its queue runner, or its hook  --> Runner.create_threads --> UpdateRunner, in its own session
    the script of the chief ends                     --> conclude: updates go on for the other workers
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.errors import BlackboardError, StoppedError
from ps_train.parts.legacy.classic import membership
from ps_train.parts.legacy.classic.membership import Membership
from ps_train.runtime import waits
from ps_train.updates.chief import ChiefContext
from ps_train.updates.sync import sync_replicas
from ps_train.updates.sync.aggregation import SyncOperations
from ps_train.updates.sync.quorum import Quorum, QuorumStatus
from ps_train.updates.sync.runner import UpdateRunner

_RELEASE_OPTIONS = tf.RunOptions(timeout_in_ms=5000)
_log = logging.getLogger(__name__)


def follow(own: Membership) -> None:
    """Lets each SyncReplicasOptimizer of this process follow the workers that are alive."""
    def make_runner(operations: SyncOperations, replicas_to_aggregate: int, num_workers: int) -> Runner:
        own.is_sync = True
        return Runner(own, operations, Quorum(
            replicas_to_aggregate=replicas_to_aggregate, floor=1, num_workers=num_workers))

    sync_replicas.set_script_task(sync_replicas.ScriptTask(own.cluster.worker_number, make_runner))


class _ScriptUpdates(UpdateRunner):
    """The updates of a script, which need no floor: they end when every script has ended."""

    def _end_for_lack_of_data(self, session: tf.Session, context: ChiefContext, quorum: QuorumStatus) -> None:
        sessions.run_bounded(session, self._operations.release_op, options=_RELEASE_OPTIONS)


class Runner:
    """Runs the updates; it can be started wherever TensorFlow starts a QueueRunner."""

    name = "ps_train/updates"

    def __init__(self, own: Membership, operations: SyncOperations, quorum: Quorum) -> None:
        """Prepares it; nothing is started yet."""
        self._own, self._operations = own, operations
        self._graph = tf.get_default_graph()
        self._service = _ScriptUpdates(operations, quorum)
        self._session: tf.Session | None = None

    def create_threads(
        self, sess: tf.Session, coord: tf.train.Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Starts the updates if `start` is true; see `tf.compat.v1.train.QueueRunner`. Returns no thread to join."""
        if start:
            self._start()
        return []

    def _start(self) -> None:
        own = self._own
        self._stop()
        # A session of its own: the script closes its session while other workers may still need an update.
        config = membership.with_filters(None, membership.filters_of(self._graph, own.cluster))
        self._session = tf.Session(own.target, graph=self._graph, config=config)
        names = {own.cluster.number_of(worker): str(worker) for worker in own.cluster.workers}
        self._service.start(self._session, ChiefContext(
            board=own.join(), worker_names=names, chief_number=own.cluster.worker_number,
            start_timeout_secs=own.timeouts.start_secs, is_resumed=own.was_live))
        if self not in own.update_services:
            own.update_services.append(self)

    def _stop(self) -> None:
        if self._session is not None:
            self._service.stop()
            sessions.close_in_background(self._session)
            self._session = None

    def check(self) -> None:
        """Raises the error that has ended the updates, if it is not the loss of a session."""
        error = self._service.error
        # After a lost session the script makes a new one, and starts the updates again.
        if error is not None and not (isinstance(error, tf.errors.OpError) and sessions.is_lost(error)):
            raise error

    def conclude(self, *, waits_for_others: bool) -> None:
        """Runs updates until no other worker trains, then releases whoever still waits."""
        if self._session is None:
            return
        if waits_for_others:
            self._wait_for_others()
        with contextlib.suppress(tf.errors.OpError, RuntimeError):  # ps 0 is gone, and with it whatever waits there
            sessions.run_bounded(self._session, self._operations.release_op, options=_RELEASE_OPTIONS)
            self._service.conclude(self._session)
        self._stop()

    def _wait_for_others(self) -> None:
        own = self._own
        names: list[str] = []

        def is_alone() -> bool:
            snapshot = own.snapshot()
            own_number = own.cluster.worker_number
            names[:] = [own.cluster.worker_name(worker) for worker in snapshot.alive()
                        if worker != own_number and not snapshot.finished[worker]]
            return not names

        with contextlib.suppress(BlackboardError, StoppedError):
            waits.until(is_alone, math.inf, lambda: f"{', '.join(names)} to end; the chief still makes their updates",
                        own.stop)
