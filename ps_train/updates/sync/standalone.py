"""Synchronous updates without ps_train's tasks around them: what a plain TF1 script needs besides `aggregation.py`.

    chief    initialises the variables --> chief_init_op: what the workers wait for is there --> UpdatesRunner
    others   ready_for_local_init_op names what is missing until then --> local_step_init_op --> steps
    the end  the chief's coordinator stops, or its process ends --> nobody waits for an update any more

There are no beats here, so nobody knows who lives: as with TensorFlow's own class, each update waits for all of its
gradients. But no session is left hanging at the end: the updates run in a session of their own, which is closed.
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
from ps_train.updates.sync.aggregation import Operations, Synchronous

_CHIEF_SECS = 300.0
_RELEASE_SECS = 5.0
_NOTES = ("updating", "computed_for", "pushed", "awaited", "unused", "over")
_READY = "required"  # the chief writes it when it has written the others
_log = logging.getLogger(__name__)


class Standalone(Synchronous):
    """Makes its notes by itself, as no ps does it, and can say that nobody makes updates any more."""

    def operations(self) -> Operations:
        """Returns the operations: `begin_op` makes the notes, too, and `release_op` is for good."""
        found = super().operations()
        with tf.device(self._ps):
            made = [variables.clear(name) for name in _NOTES]
            with tf.control_dependencies(made):
                begun = self._begin(0)
            with tf.control_dependencies([begun]):
                begin_op = self._begin_step(self._read_step(), 0)
            with tf.control_dependencies([variables.write("over", 1)]):
                release_op = self._release()
        return found._replace(begin_op=begin_op, release_op=release_op)

    def _must_wait(self) -> tf.Tensor:
        return tf.logical_and(super()._must_wait(), tf.equal(variables.read("over"), 0))

    def missing(self) -> tf.Tensor:
        """Returns what a worker waits for before its first step, beside variables: string [n], empty for the chief."""
        if self._worker == 0:
            return tf.constant([], tf.string)
        with tf.device(self._ps):
            return tf.boolean_mask(["the chief's chief_init_op"], [tf.logical_not(variables.exists(_READY))])


class UpdatesRunner:
    """Runs the updates in a thread of the chief; can be started wherever TensorFlow starts a QueueRunner."""

    name = "ps_train/updates"

    def __init__(self, operations: Operations) -> None:
        """Prepares it."""
        self._operations = operations

    def create_threads(
        self, sess: tf.Session, coord: tf.train.Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Returns the threads that run the updates, and end them; see `tf.compat.v1.train.QueueRunner`.

        They use a session of their own at the same server. A script closes its own while others may still need an
        update, and an update that waits would keep the coordinator waiting.
        """
        running = _Running(self._operations, sess, coord)
        threads = [threading.Thread(target=running.repeat, daemon=daemon, name="updates")]
        if coord:
            threads.append(threading.Thread(target=running.end_with_coordinator, daemon=daemon, name="end of updates"))
        for thread in threads:
            if coord:
                coord.register_thread(thread)
            if start:
                thread.start()
        return threads


class _Running:
    """The updates of one session."""

    def __init__(self, operations: Operations, session: tf.Session, coord: tf.train.Coordinator | None) -> None:
        self._operations = operations
        # Its device filters, say; TensorFlow has no public name for it.
        config = session._config  # noqa: SLF001
        self._session = tf.Session(session.sess_str, session.graph, config)
        self._coord = coord
        self._lock = threading.Lock()
        self._is_over = False
        atexit.register(self.end)

    def repeat(self) -> None:
        """Makes one update after the other until the end; an error stops the coordinator."""
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
        """Ends when the coordinator stops. Where an error stopped it, the others wait for a new chief."""
        self._coord.wait_for_stop()
        try:
            self._coord.raise_requested_exception()
        except Exception as error:  # noqa: BLE001 (the coordinator itself raises it in the thread that joins it)
            _log.debug("the others are not let go: %s", error)
            self.end(releases=False)
        else:
            self.end()

    def end(self, releases: bool = True) -> None:
        """Lets whoever waits for an update go, now and later, and ends the one that is under way."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        atexit.unregister(self.end)
        if releases:
            options = tf.RunOptions(timeout_in_ms=int(_RELEASE_SECS * 1000))
            with contextlib.suppress(tf.errors.OpError):  # ps 0 is gone: then nobody waits there
                self._session.run(self._operations.release_op, options=options)
        sessions.close_in_background(self._session).join(_RELEASE_SECS)


class Hook(tf.train.SessionRunHook):
    """Begins the synchronous steps of one task in each new session of a MonitoredTrainingSession."""

    def __init__(self, optimizer: Any, is_chief: bool, num_tokens: int) -> None:
        """Prepares it.

        Args:
          optimizer: a `SyncReplicasOptimizer`.
          num_tokens: is checked only, see `get_init_tokens_op`.
        """
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._runner: UpdatesRunner | None = None

    def begin(self) -> None:
        """Looks for the operations; see `tf.compat.v1.train.SessionRunHook`.

        Raises:
          ValueError: apply_gradients was not called yet.
        """
        if self._is_chief:
            self._runner = self._optimizer.get_chief_queue_runner()
        self._optimizer.get_init_tokens_op(self._num_tokens)
        self._init_op = (self._optimizer.chief_init_op if self._is_chief else self._optimizer.local_step_init_op)
        self._ready_op = self._optimizer.ready_for_local_init_op

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Initialises, and starts the updates on the chief; the others wait for it.

        Raises:
          ClusterLostError: the chief did not initialise within five minutes.
        """
        waits.until(lambda: session.run(self._ready_op).size == 0, _CHIEF_SECS,
                      "the chief to initialise the variables and to run chief_init_op", threading.Event())
        session.run(self._init_op)
        if self._runner:
            self._runner.create_threads(session, coord, daemon=True, start=True)
