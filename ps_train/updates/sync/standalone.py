"""Synchronous updates in a plain TF1 script: what such a script needs in addition to `aggregation.py`.

    chief    initialises the variables --> chief_init_op: creates what the workers wait for --> StandaloneRunner
    others   ready_for_local_init_op names what is missing until then --> local_step_init_op --> steps
    the end  the chief's coordinator stops, or its process ends --> no worker waits for an update any more

There are no heartbeats, so no task knows which workers are alive, and each update waits for all of its gradients, as
with TensorFlow's own class. See docs/decisions/sync.md.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions, variables
from ps_train.runtime import waits
from ps_train.updates.sync.aggregation import SyncEngine, SyncOperations

_CHIEF_SECS = 300.0
_ANSWER_SECS = 60.0  # of the servers, to operations that wait for no other worker
_RELEASE_SECS = 5.0
_VARIABLES = ("updating", "computed_for", "pushed", "awaited", "marks", "included", "unused",
              "updates_ended")
_LAST_VARIABLE = "required"  # the chief writes it after the others
# Bound here: a script's `tf.Session` is replaced by one that joins the cluster (parts/legacy/classic/sessions.py).
_Session = tf.Session
_log = logging.getLogger(__name__)


class StandaloneEngine(SyncEngine):
    """Creates its variables itself, because no ps does, and can record that there are no more updates."""

    def operations(self) -> SyncOperations:
        """Returns the operations: `begin_op` also creates the variables, and `release_op` is final."""
        operations = super().operations()
        with tf.device(self._ps):
            with tf.control_dependencies([variables.clear("updates_ended")]):
                is_begun = self._is_begun()
            with tf.control_dependencies([variables.write("updates_ended", 1)]):
                release_op = self._release()
        # A chief that comes back finds gradients on their way, some of them half pushed, and must not let them in: it
        # raises the global step. A new training keeps its step.
        begin_op = tf.group(tf.cond(is_begun, self._resume_updates, self._begin_updates))
        return operations._replace(begin_op=begin_op, release_op=release_op)

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

    def _is_begun(self) -> tf.Tensor:
        """Returns whether a chief has prepared the updates on this ps, bool scalar."""
        with tf.device(self._ps):
            return tf.cond(variables.was_written(_LAST_VARIABLE), lambda: variables.read(_LAST_VARIABLE) > 0,
                           lambda: tf.constant(False))

    def _must_wait(self) -> tf.Tensor:
        return tf.logical_and(super()._must_wait(), tf.equal(variables.read("updates_ended"), 0))

    def missing(self) -> tf.Tensor:
        """Returns what is missing before a worker's first step, besides variables: string [n], empty for the chief."""
        if self._worker == 0:
            return tf.constant([], tf.string)
        with tf.device(self._ps):
            is_missing = tf.logical_not(self._is_begun())
            return tf.boolean_mask(["the chief's chief_init_op"], [is_missing])


class StandaloneRunner:
    """Runs the updates in a thread of the chief. It can be started wherever TensorFlow starts a QueueRunner."""

    name = "ps_train/updates"

    def __init__(self, operations: SyncOperations) -> None:
        """Prepares the runner; nothing is started yet."""
        self._operations = operations

    def create_threads(
        self, sess: tf.Session, coord: tf.train.Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Returns the threads that run the updates and stop them; see `tf.compat.v1.train.QueueRunner`."""
        # They use a session of their own at the same server: a script closes its session while other workers may still
        # need an update, and an update that waits would delay the coordinator for its whole grace period.
        loop = _UpdateLoop(self._operations, sess, coord)
        threads = [threading.Thread(target=loop.run, daemon=daemon, name="updates")]
        if coord:
            threads.append(threading.Thread(target=loop.end_with_coordinator, daemon=daemon, name="end of updates"))
        for thread in threads:
            if coord:
                coord.register_thread(thread)
            if start:
                thread.start()
        return threads


class _UpdateLoop:
    """The updates of one session."""

    def __init__(self, operations: SyncOperations, session: tf.Session, coord: tf.train.Coordinator | None) -> None:
        self._operations = operations
        # For the device filters, among others; TensorFlow has no public name for it.
        config = session._config  # noqa: SLF001
        self._session = _Session(session.sess_str, session.graph, config)
        self._coord = coord
        self._lock = threading.Lock()
        self._is_over = False
        atexit.register(self.end)

    def run(self) -> None:
        """Runs one update after the other until the end; an error stops the coordinator."""
        try:
            while not self._is_over:
                self._session.run(self._operations.update_op)
        except Exception as error:
            if self._is_over:
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
            # The other workers wait for a new chief.
            _log.debug("the other workers are not released: %s", error)
            self.end(releases=False)
        else:
            self.end()

    def end(self, releases: bool = True) -> None:
        """Releases every worker that waits for an update, now or later, and ends the update that is under way."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        atexit.unregister(self.end)
        if releases:
            options = tf.RunOptions(timeout_in_ms=int(_RELEASE_SECS * 1000))
            with contextlib.suppress(tf.errors.OpError):  # ps 0 is gone, and with it whatever waits there
                sessions.run_bounded(self._session, self._operations.release_op, options=options)
        sessions.close_in_background(self._session).join(_RELEASE_SECS)


class SyncReplicasHook(tf.train.SessionRunHook):
    """Initialises synchronous training of one task in each new session of a MonitoredTrainingSession."""

    def __init__(self, optimizer: Any, is_chief: bool, num_tokens: int) -> None:
        """Prepares the hook.

        Args:
          optimizer: a `SyncReplicasOptimizer`.
          is_chief: whether this task runs the updates.
          num_tokens: is only checked, see `get_init_tokens_op`.
        """
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._runner: StandaloneRunner | None = None

    def begin(self) -> None:
        """Finds the operations; see `tf.compat.v1.train.SessionRunHook`.

        Raises:
          ValueError: apply_gradients was not called yet.
        """
        if self._is_chief:
            self._runner = self._optimizer.get_chief_queue_runner()
        self._optimizer.get_init_tokens_op(self._num_tokens)
        self._init_op = (self._optimizer.chief_init_op if self._is_chief else self._optimizer.local_step_init_op)
        self._ready_op = self._optimizer.ready_for_local_init_op

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Initialises this task. The chief starts the updates; the other workers wait for the chief.

        Raises:
          ClusterLostError: the chief did not initialise within five minutes.
          tf.errors.DeadlineExceededError: a server did not answer.
        """
        options = tf.RunOptions(timeout_in_ms=int(_ANSWER_SECS * 1000))
        waits.until(lambda: sessions.run_bounded(session, self._ready_op, options=options).size == 0, _CHIEF_SECS,
                    "the chief to initialise the variables and to run chief_init_op", threading.Event())
        sessions.run_bounded(session, self._init_op, options=options)
        if self._runner:
            self._runner.create_threads(session, coord, daemon=True, start=True)
