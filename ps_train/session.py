"""A training session under a Supervisor: how it starts, how it is recovered, and that it ends in the right order.

    chief    restore or initialise --> announce "running" --> train --> announce "stopping" --> wait --> save --> close
    others   wait for "running"                           --> train --> report "finished"            -->      close

Besides a few lines of `worker.py` this is the one module that asks whether this task is the chief.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train import checkpoint, ending, fingerprint, saving, sessions, summaries, waiting
from ps_train.beats import Beats
from ps_train.blackboard import Blackboard, BlackboardError, ChiefFailedError, State
from ps_train.cluster import Cluster
from ps_train.errors import ClusterLostError, ConfigError, StoppedError
from ps_train.graph import TrainGraph
from ps_train.progress import End, Outcome

_RECOVERY_WAIT_SECS = 1  # TensorFlow's default of 30 makes every worker wait that long (tensorflow/tensorflow#10679)
_STOP_GRACE_SECS = 2
_CLOSE_SECS = 1.0
_MOST_FAILURES = 5  # new sessions in a row in which no step succeeded
_log = logging.getLogger(__name__)

Body = Callable[[tf.Session, "Callable[[object, int], None] | None"], Outcome]


class Settings(NamedTuple):
    """What the user chose for sessions.

    Attributes:
      train_dir: folder of checkpoints and summaries.
      saves: when the chief saves.
      start_timeout_secs: bound of the wait for the other tasks.
      beat_timeout_secs: a worker that was not heard of for this long is gone.
      end_timeout_secs: bound of the chief's wait for workers that make no progress, at the end.
    """

    train_dir: str
    saves: saving.Schedule
    start_timeout_secs: float
    beat_timeout_secs: float
    end_timeout_secs: float


class SupervisedTraining:
    """Runs a training loop in a supervised session, and in a new one whenever that is lost."""

    def __init__(
        self,
        cluster: Cluster,
        target: str,
        graph: TrainGraph,
        board: Blackboard,
        beats: Beats,
        settings: Settings,
        stop: threading.Event,
        own_fingerprint: str = "",
    ) -> None:
        """Adds the Supervisor's operations to the graph and finalises it; nothing is sent yet.

        Args:
          target: address of the server whose session this is.
          beats: this worker's sign of life, which knows the global step that was seen last.
          stop: ends every wait and the training.
          own_fingerprint: what this worker must have in common with the others, "" to compare nothing.
        """
        self._cluster = cluster
        self._target = target
        self._graph = graph
        self._board = board
        self._beats = beats
        self._settings = settings
        self._stop = stop
        self._fingerprint = own_fingerprint
        self._summaries = summaries.Summaries(settings.train_dir)
        self._saving = saving.Saving(graph, settings.train_dir, settings.saves, sessions.is_lost)
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
            step = self._beats.step
            try:
                return self._run_once(body)
            except tf.errors.OpError as error:
                if self._stop.is_set():
                    raise StoppedError("told to stop while the session was lost; the last checkpoint stays") from error
                if not sessions.is_lost(error):
                    raise
                if self._beats.has_chief_failed:
                    raise ChiefFailedError from error
                failures = 1 if self._beats.step > step else failures + 1
                reason = sessions.reason_of(error)
                if failures > _MOST_FAILURES:
                    raise ClusterLostError(f"the session was lost {failures} times without a step between, the last "
                                           f"time: {reason}") from error
                _log.warning("lost the session at step %d: %s; waiting for the cluster, at most %g s",
                             self._beats.step, reason, self._settings.start_timeout_secs)

    def _run_once(self, body: Body) -> Outcome:
        waiting.for_tasks(self._cluster.ps, self._settings.start_timeout_secs, self._stop)
        all_ps = ", ".join(map(str, self._cluster.ps))
        is_live = True
        if self._cluster.is_chief:
            is_live = self._wait_for(self._board.is_prepared, f"an answer of {all_ps}")
        elif self._wait_for(self._ready_state, f"{self._cluster.chief} (chief) to prepare {all_ps}") == "over":
            outcome = Outcome(End.ANNOUNCED, 0, 0, 0, 0.0)
            ending.report_finished(self._cluster, self._board, outcome)
            return outcome
        if is_live:
            is_live = self._belongs_here()
        with self._session(is_live) as session:
            outcome = body(session, self._summaries.write if self._cluster.is_chief else None)
            if not self._beats.is_replaced:
                self._end(session, outcome)
            return outcome

    def _belongs_here(self) -> bool:
        """Returns whether this worker fits the training that is running; false where a chief may begin another one.

        Raises:
          ConfigError: it does not fit, and other workers are training.
        """
        theirs = self._board.fingerprint()
        differing = fingerprint.differences(theirs, self._fingerprint, "the running training") if (
            theirs and self._fingerprint) else []
        if not differing:
            return True
        others = [worker for worker in self._board.snapshot().alive(self._settings.beat_timeout_secs)
                  if worker != self._cluster.worker_number]
        if self._cluster.is_chief and not others:
            _log.warning("the ps hold another training, without workers: beginning anew")
            return False
        raise ConfigError("\n".join(f"{self._cluster.task} does not fit the training on {self._cluster.ps[0]}: {line}; "
                                    "start it with the same flags and code" for line in differing))

    def _ready_state(self) -> str | None:
        """Returns "running" or "over" when a worker that is not the chief need not wait for it, else None."""
        state = self._board.state()
        if state == State.FAILED:
            raise ChiefFailedError
        if state in (State.STOPPING, State.DONE):
            return "over"
        return "running" if self._board.is_prepared() else None

    def _wait_for(self, ask: Callable[[], Any], what: str) -> Any:
        """Returns the first answer of the blackboard that is not None."""
        def answer() -> tuple[Any] | None:
            try:
                found = ask()
            except BlackboardError as error:
                _log.debug("%s", error)
                return None
            return None if found is None else (found,)

        return waiting.until(answer, self._settings.start_timeout_secs, what, self._stop,
                             "is it started, and does its log say why not?")[0]

    @contextlib.contextmanager
    def _session(self, is_live: bool) -> Iterator[tf.Session]:
        """Yields a session whose parameters and input are ready; closes it, then stops the Supervisor's threads."""
        session = waiting.bounded(lambda: self._open(is_live), self._settings.start_timeout_secs,
                                  f"a session with {', '.join(map(str, self._cluster.ps))}", self._stop)
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
            sessions.close_in_background(session).join(_CLOSE_SECS)
            self._supervisor.stop(ignore_live_threads=True)
            self._summaries.close()

    def _open(self, is_live: bool) -> tf.Session:
        """Returns a session on ready parameters; the chief prepares them where they are not."""
        config = tf.ConfigProto(device_filters=self._cluster.device_filters, allow_soft_placement=True)
        timeout_secs = self._settings.start_timeout_secs
        if is_live:
            # Also for a restarted chief: it must not overwrite what the others have trained meanwhile.
            return self._supervisor.session_manager.wait_for_session(self._target, config, timeout_secs)
        path = checkpoint.newest_sound(self._settings.train_dir)
        if path is not None:
            checkpoint.check_fits(path, self._graph.saved_variables)
        self._tell_origin(path)
        # Not the Supervisor's own way, which restores what the file `checkpoint` names, sound or not.
        return self._supervisor.session_manager.prepare_session(
            self._target, self._supervisor.init_op, self._graph.saver, checkpoint_filename_with_path=path,
            config=config)

    def _tell_origin(self, path: str | None) -> None:
        """Says where the parameters come from, loudly where a ps has lost them."""
        lost_step = self._beats.step
        if not lost_step:
            _log.info("continuing from %s" if path else "starting from new parameters%s", path or "")
        elif path:
            _log.warning("a ps has lost its parameters at about step %d: restoring all ps from %s", lost_step, path)
        else:
            _log.warning("a ps has lost its parameters at about step %d, and NO CHECKPOINT was saved before: STARTING "
                         "AGAIN from new parameters; a smaller --save_model_secs loses less", lost_step)

    def _start_services(self, session: tf.Session, is_live: bool) -> None:
        update = self._graph.update
        self._supervisor.coord.clear_stop()  # the end of a session before this one had set it
        session.run(update.release_op if is_live else update.chief_init_op)
        self._supervisor.start_queue_runners(session, update.queue_runners)
        self._summaries.start(self._graph.graph, int(session.run(self._graph.status)[0]))
        if not is_live:
            self._board.start_run(self._fingerprint)
        self._saving.start(session)

    def _end(self, session: tf.Session, outcome: Outcome) -> None:
        """Ends training in this task; the chief besides waits for the others and, whatever they do, saves."""
        try:
            ending.announce(session, self._graph, self._board, outcome)
            ending.report_finished(self._cluster, self._board, outcome)
            if self._cluster.is_chief and outcome.end is not End.SIGNAL:
                ending.wait_for_others(session, self._graph, self._cluster, self._board,
                                       self._settings.beat_timeout_secs, self._settings.end_timeout_secs, self._stop)
        except BlackboardError as error:
            if not self._cluster.is_chief:
                raise
            _log.warning("%s; saving without waiting for the other workers", error)
        if self._cluster.is_chief:
            self._supervisor.request_stop()
            self._saving.save_last(session)
