"""A training session under a Supervisor: how it starts, how it is recovered, and that it ends in the right order.

    chief    restore or initialise --> announce "running" --> train --> announce "stopping" --> wait --> save --> close
    others   wait for "running"                           --> train --> report "finished"            -->      close

This is the one module, besides a line of `task.py`, that asks whether this task is the chief.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import blackboard, checkpoint, ending, saving, summaries, waiting
from ps_train.blackboard import Blackboard, State
from ps_train.cluster import Cluster
from ps_train.errors import ClusterLostError
from ps_train.graph import TrainGraph
from ps_train.progress import End, Outcome

_RECOVERY_WAIT_SECS = 1  # TensorFlow's default of 30 makes every worker wait that long (tensorflow/tensorflow#10679)
_STOP_GRACE_SECS = 5
_MOST_FAILURES = 5  # new sessions in a row in which no step succeeded
_log = logging.getLogger(__name__)

Body = Callable[[tf.Session, "Callable[[object, int], None] | None"], Outcome]


class Settings(NamedTuple):
    """What the user chose for sessions.

    Attributes:
      train_dir: folder of checkpoints and summaries.
      saves: when the chief saves.
      start_timeout_secs: bound of the wait for the other tasks.
      end_timeout_secs: bound of the chief's wait for workers that make no progress, at the end.
    """

    train_dir: str
    saves: saving.Schedule
    start_timeout_secs: float
    end_timeout_secs: float


class SupervisedTraining:
    """Runs a training loop in a supervised session, and in a new one whenever that is lost."""

    def __init__(
        self,
        cluster: Cluster,
        target: str,
        graph: TrainGraph,
        board: Blackboard,
        settings: Settings,
        stop: threading.Event,
    ) -> None:
        """Adds the Supervisor's operations to the graph and finalises it; nothing is sent yet.

        Args:
          target: address of the server whose session this is.
          stop: ends every wait and the training.
        """
        self._cluster = cluster
        self._target = target
        self._graph = graph
        self._board = board
        self._settings = settings
        self._stop = stop
        self._summaries = summaries.Summaries(settings.train_dir)
        self._saving = saving.Saving(graph, settings.train_dir, settings.saves, _is_lost)
        with graph.graph.as_default():
            self._supervisor = self._make_supervisor()
        graph.graph.finalize()

    def _make_supervisor(self) -> tf.train.Supervisor:
        # The default one runs the summaries in a thread, on a batch of its own; ours come from the steps themselves.
        with tf.control_dependencies([tf.local_variables_initializer(), tf.tables_initializer()]):
            local_init_op = tf.group(self._graph.update.local_init_op)
        return tf.train.Supervisor(
            graph=self._graph.graph,
            is_chief=self._cluster.is_chief,
            logdir=self._settings.train_dir if self._cluster.is_chief else None,
            ready_for_local_init_op=self._graph.update.ready_for_local_init_op,
            local_init_op=local_init_op,
            summary_op=None,
            summary_writer=None,  # it would end training when the folder fails; summaries.py does not
            saver=self._graph.saver,
            global_step=self._graph.global_step,
            save_summaries_secs=0,
            save_model_secs=0,  # saving.py does it
            recovery_wait_secs=_RECOVERY_WAIT_SECS,
            stop_grace_secs=_STOP_GRACE_SECS,
        )

    def run(self, body: Body) -> Outcome:
        """Returns `body(session, write_summary)` of the first session that is not lost.

        Args:
          body: trains until the end; `write_summary(summary, global_step)` is None where this task writes none.

        Raises:
          ClusterLostError: the cluster did not come (back) within its time-out, or was lost again and again.
          StoppedError: told to stop while waiting.
        """
        failures = 0
        while True:
            start_secs = time.monotonic()
            try:
                return self._run_once(body)
            except tf.errors.OpError as error:
                if isinstance(error, tf.errors.DeadlineExceededError):
                    raise ClusterLostError(f"a step took longer than its time-out: {error.message}") from error
                if not _is_lost(error):
                    raise
                failures = failures + 1 if time.monotonic() - start_secs < _RECOVERY_WAIT_SECS else 1
                reason = str(error.message).splitlines()[0]
                if failures > _MOST_FAILURES:
                    raise ClusterLostError(f"the session was lost {failures} times in a row: {reason}") from error
                _log.warning("lost the session: %s; waiting for the cluster, at most %g s", reason,
                             self._settings.start_timeout_secs)

    def _run_once(self, body: Body) -> Outcome:
        waiting.for_tasks(self._cluster.ps, self._settings.start_timeout_secs, self._stop)
        state = self._wait_for_state()
        if state >= State.STOPPING and not self._cluster.is_chief:
            outcome = Outcome(End.ANNOUNCED, 0, 0, 0, 0.0)
            ending.report_finished(self._cluster, self._board, outcome)
            return outcome
        with self._session(state) as session:
            outcome = body(session, self._summaries.write if self._cluster.is_chief else None)
            self._end(session, outcome)
            return outcome

    def _wait_for_state(self) -> State:
        """Returns the training state; a worker waits until the chief has prepared the parameters."""
        least = State.IDLE if self._cluster.is_chief else State.RUNNING
        chief = self._cluster.chief
        what = str(self._cluster.ps[0]) if self._cluster.is_chief else f"{chief} (chief) to prepare the parameters"

        def state() -> tuple[State] | None:
            try:
                found = self._board.state()
            except ClusterLostError as error:
                _log.debug("%s", error)
                return None
            return (found,) if found >= least else None

        return waiting.until(state, self._settings.start_timeout_secs, what, self._stop,
                             "is it started, and does its log say why not?")[0]

    @contextlib.contextmanager
    def _session(self, state: State) -> Iterator[tf.Session]:
        """Yields a session whose parameters and input are ready; closes it, then stops the Supervisor's threads."""
        session, is_live = waiting.bounded(lambda: self._open(state), self._settings.start_timeout_secs,
                                           f"a session with {', '.join(map(str, self._cluster.ps))}")
        try:
            session.run(self._graph.input_init_op, feed_dict=self._graph.feed)
            if self._cluster.is_chief:
                self._start_services(session, is_live)
            yield session
        finally:
            self._saving.stop()
            self._supervisor.request_stop()
            # Closing frees the queue runner's thread, which `stop` then finds ended; the other way round `stop`
            # waits for all of its grace period and raises. After a peer died, closing itself stalls for 30 s.
            blackboard.close_in_background(session)
            self._supervisor.stop(ignore_live_threads=True)
            self._summaries.close()

    def _open(self, state: State) -> tuple[tf.Session, bool]:
        """Returns a session on ready parameters, and whether these were there already."""
        config = tf.ConfigProto(device_filters=self._cluster.device_filters, allow_soft_placement=True)
        manager, timeout_secs = self._supervisor.session_manager, self._settings.start_timeout_secs
        if not self._cluster.is_chief:
            return manager.wait_for_session(self._target, config, timeout_secs), True
        if state == State.RUNNING:
            # A restarted chief must not overwrite what the others have trained meanwhile.
            with contextlib.suppress(tf.errors.DeadlineExceededError):
                return manager.wait_for_session(self._target, config, max_wait_secs=0), True
        path = checkpoint.newest_sound(self._settings.train_dir)
        if path is not None:
            checkpoint.check_fits(path, self._graph.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES))
        _log.info("continuing from %s" if path else "starting from new parameters%s", path or "")
        # Not the Supervisor's own way, which restores what the file `checkpoint` names, sound or not.
        return manager.prepare_session(self._target, self._supervisor.init_op, self._graph.saver,
                                       checkpoint_filename_with_path=path, config=config), False

    def _start_services(self, session: tf.Session, is_live: bool) -> None:
        update = self._graph.update
        self._supervisor.coord.clear_stop()  # the end of a session before this one had set it
        session.run(update.release_op if is_live else update.chief_init_op)
        self._supervisor.start_queue_runners(session, update.queue_runners)
        self._summaries.start(self._graph.graph, int(session.run(self._graph.status)[0]))
        if not is_live:
            self._board.start_run()
        self._saving.start(session)

    def _end(self, session: tf.Session, outcome: Outcome) -> None:
        """Ends training in this task; the chief besides waits for the others and saves."""
        ending.announce(session, self._graph, self._board, outcome)
        ending.report_finished(self._cluster, self._board, outcome)
        if not self._cluster.is_chief:
            return
        if outcome.end is not End.SIGNAL:
            ending.wait_for_others(session, self._graph, self._cluster, self._board, self._settings.end_timeout_secs,
                                   self._stop)
        self._supervisor.request_stop()
        self._saving.save_last(session)


def _is_lost(error: tf.errors.OpError) -> bool:
    """Tells whether an error means that a ps or its variables are gone, rather than a fault in the user's code."""
    if isinstance(error, (tf.errors.AbortedError, tf.errors.UnavailableError)):
        return True
    # A ps that came back empty: reading says the first, updating the second (kernels/resource_variable_ops.cc).
    is_variable = "Could not find variable" in error.message or "Resource" in error.message
    return is_variable and isinstance(error, (tf.errors.FailedPreconditionError, tf.errors.NotFoundError))
