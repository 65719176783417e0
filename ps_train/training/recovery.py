"""A worker's training: in a session, and in a new one whenever a session is lost (docs/decisions/sessions.md).

    chief    restore or initialise --> announce "running" --> train --> announce "stopping" --> wait --> save --> close
    others   wait for "running"                           --> train --> report "finished"            -->      close

Only this module, `opening.py` and a few lines of `tasks/worker.py` ask whether this task is the chief.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster
from ps_train.coordination import sessions
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.heartbeat import Heartbeat, WorkerProgress
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ChiefFailedError, ClusterLostError, StoppedError
from ps_train.runtime import clock, tensorflow_errors, waits
from ps_train.runtime.waits import Timeouts
from ps_train.storage import checkpoints, event_files, saver
from ps_train.storage.folder_lock import FolderLock
from ps_train.storage.journal import Journal
from ps_train.training.opening import Admission, Parameters, SessionOpener
from ps_train.training.replica_graph import TrainGraph
from ps_train.training.reporting import End, Outcome
from ps_train.updates.update import ChiefContext

_CALL = tf.RunOptions(timeout_in_ms=30_000)  # bounds operations that wait for no other worker, in case a ps is frozen
_CLOSE_SECS = 1.0
_CLOSE_LOST_SECS = 0.1  # its end may wait for a dead ps
_POLL_SECS = 0.1
# Between sessions without a step. gRPC takes a second and more until a ps reconnects to another that died and is back.
_PAUSES_SECS = (0.0, 1.0, 2.0, 4.0, 8.0)
_log = logging.getLogger(__name__)

Body = Callable[[tf.Session, "Callable[[object, int], None] | None"], Outcome]


class SessionSettings(NamedTuple):
    """How sessions are made, and what they save.

    Attributes:
      train_dir: folder of checkpoints and summaries.
      saves: when the chief saves.
      timeouts: the bounds of its waits.
    """

    train_dir: str
    saves: saver.SaveSchedule
    timeouts: Timeouts


class SupervisedTraining:
    """Runs a training loop in a supervised session, and in a new one whenever that is lost."""

    def __init__(
        self, cluster: Cluster, target: str, graph: TrainGraph, board: Blackboard, heartbeat: Heartbeat,
        progress: WorkerProgress, settings: SessionSettings, *, stop: threading.Event, own_fingerprint: str,
        lock: FolderLock | None, journal: Journal,
    ) -> None:
        """Adds the Supervisor's operations to the graph and finalises it; nothing is sent yet.

        Args:
          target: address of the server whose session this is.
          heartbeat: this worker's sign of life.
          progress: has the global step that this worker read last.
          stop: ends every wait and the training.
          own_fingerprint: what this worker must have in common with the others; "" compares nothing.
          lock: the lock of the train_dir, which the chief holds.
          journal: the chief's; that of another worker keeps nothing.
        """
        self._cluster, self._graph, self._board = cluster, graph, board
        self._heartbeat, self._progress, self._settings = heartbeat, progress, settings
        self._stop, self._fingerprint = stop, own_fingerprint
        self._has_begun = False
        self._incarnations: tuple[int, ...] | None = None  # of the ps, before the chief prepared the parameters
        self._start_options = tf.RunOptions(timeout_in_ms=int(settings.timeouts.start_secs * 1000))
        self._summaries = event_files.Summaries(settings.train_dir)
        deltas = saver.Deltas(
            graph.rows.delta_secs, graph.rows.delta_path_of, graph.savers.save_delta, graph.rows.remove_old_deltas)
        savable = saver.Savable(graph.savers.save, graph.global_step, graph.update.slots.before_save_op, deltas)
        self._saving = saver.CheckpointSaver(
            savable, settings.train_dir, settings.saves, sessions.is_lost, lock,
            note_saved=lambda path: self._journal.note("checkpoint", path=path, step=checkpoints.step_in_name(path)))
        self._admission = Admission(
            cluster, board, start_timeout_secs=settings.timeouts.start_secs, stop=stop, own_fingerprint=own_fingerprint,
            begin_term=lambda: board.begin_term(cluster.worker_number, board.own_claim))
        self._chief_service = graph.update.make_chief_service()
        self._journal = journal
        self._opener = SessionOpener(cluster, target, graph, settings.train_dir, journal=self._journal,
                                     term=lambda: board.term, note_activity=self._note_activity)

    def request_save(self, answer: Callable[[str, str], None]) -> None:
        """Asks the chief's saver for a checkpoint; see `CheckpointSaver.request`."""
        self._saving.request(answer)

    def run(self, body: Body) -> Outcome:
        """Returns `body(session, write_summary)` of the first session that is not lost.

        Args:
          body: trains to the end; `write_summary(summary, global_step)` is None if this task writes no summaries.

        Raises:
          ClusterLostError: the cluster did not answer within its time-out, or was lost again and again.
          StoppedError: stopped while waiting.
        """
        failures, first_local_steps, begin_secs = 0, self._progress.local_steps, clock.now()
        while True:
            local_steps = self._progress.local_steps
            try:
                return self._run_once(body)
            except tf.errors.OpError as error:
                if self._stop.is_set():
                    raise StoppedError(
                        "stopped", "stopped while the session was lost; the last checkpoint stays") from error
                if not sessions.is_lost(error):
                    raise
                if self._heartbeat.last.state == State.FAILED:
                    raise ChiefFailedError from error
                if self._heartbeat.last.state == State.DONE and not self._cluster.is_chief:  # its step waited meanwhile
                    step = self._progress.step
                    return Outcome(End.ANNOUNCED, step, step, self._progress.local_steps - first_local_steps,
                                   clock.now() - begin_secs)
                self._chief_service.check_lost(error, self._context(is_live=True))
                # Not the global step: after a checkpoint was restored, it is lower than before the loss.
                failures = 1 if self._progress.local_steps > local_steps else failures + 1
                reason = tensorflow_errors.reason(error)
                if failures > len(_PAUSES_SECS):
                    raise ClusterLostError("session_lost", f"the session was lost {failures} times without a step in "
                                           f"between; the last reason: {reason}") from error
                _log.warning("lost the session at step %d: %s; waiting for the cluster, at most %g s",
                             self._progress.step, reason, self._settings.timeouts.start_secs)
                self._note_loss(reason)
                self._stop.wait(_PAUSES_SECS[failures - 1])

    def _note_loss(self, reason: str) -> None:
        step = self._progress.step

        def note() -> None:
            unreachable = [task.name for task in self._cluster.ps if not reachability.accepts(task.address)]
            self._journal.note("lost", reason=reason, gone=unreachable, step=step)

        if self._cluster.is_chief:
            clock.start_call(note, "loss")  # an address that does not answer takes seconds

    def _run_once(self, body: Body) -> Outcome:
        parameters = self._admission.wait()
        if parameters is Parameters.OVER:
            path = checkpoints.newest_sound(self._settings.train_dir) if self._cluster.is_chief else None
            step = checkpoints.step_in_name(path) if path else 0
            outcome = self._with_reason(Outcome(End.ANNOUNCED, step, step, 0, 0.0))
            self._report_finished(outcome)
            return outcome
        with self._session(parameters is Parameters.LIVE) as session:
            outcome = self._with_reason(body(session, self._summaries.write if self._cluster.is_chief else None))
            if outcome.end is End.DATA:
                self._graph.input.queues.check()
            try:
                self._graph.hooks.end(session)
            except Exception as error:  # what was trained counts, as in TensorFlow 1, whose saver is the first hook
                is_lost = isinstance(error, tf.errors.OpError) and sessions.is_lost(error)
                if self._cluster.is_chief and not self._heartbeat.is_replaced and not is_lost:
                    self._saving.save_last(session)
                raise
            return outcome if self._heartbeat.is_replaced else self._end(session, outcome)

    def _with_reason(self, outcome: Outcome) -> Outcome:
        """Returns the outcome with the reason for which training was announced to end."""
        reason = ""
        if outcome.end is End.ANNOUNCED:
            with contextlib.suppress(BlackboardError):  # only the messages say less then
                reason = self._board.end_reason()
        return outcome._replace(reason=reason)

    @contextlib.contextmanager
    def _session(self, is_live: bool) -> Iterator[tf.Session]:
        """Yields a session with ready parameters and input; then closes it and stops the Supervisor's threads."""
        self._chief_service.error = self._saving.error = None  # of the session before
        timeout_secs = self._settings.timeouts.start_secs
        if not is_live:
            with _losing_session():
                self._incarnations = self._board.incarnations()
        awaited = "" if is_live else (f", which the chief prepares, from a checkpoint in {self._settings.train_dir} if "
                                      "there is one; a large one needs a larger --start_timeout_secs")
        session = waits.bounded(
            lambda: self._opener.open(is_live, self._progress.step), timeout_secs,
            f"a session with {', '.join(map(str, self._cluster.ps))}{awaited}", self._stop)
        close_secs = _CLOSE_SECS
        try:
            global_step = self._begin(session)
            if self._cluster.is_chief:
                self._start_services(session, is_live, global_step)
            self._graph.input.queues.start(session)
            with self._graph.parts.running(session, is_live):
                self._graph.hooks.start(session)
                yield session
        except (tf.errors.OpError, RuntimeError) as error:
            close_secs = _CLOSE_LOST_SECS
            if (reason := self._chief_service.error or self._saving.error) is None:
                raise
            # The chief's service, or its saver, has closed the session, which is all that the error of the step says.
            raise reason from error
        finally:
            self._chief_service.stop()
            self._saving.stop()
            self._graph.input.queues.request_stop()
            self._opener.supervisor.request_stop()
            # Closing ends the update that waits on the ps, too. After a peer died, it stalls for 30 s.
            sessions.close_in_background(session).join(close_secs)
            self._graph.input.queues.join()
            self._opener.supervisor.stop(ignore_live_threads=True)
            self._summaries.close()

    def _run(self, session: tf.Session, fetches: Any, feed: Mapping[Any, Any] | None = None) -> Any:
        return sessions.run_bounded(session, fetches, feed, options=self._start_options)

    def _begin(self, session: tf.Session) -> int:
        """Makes this worker's input, slots and place among the others ready; returns the global step."""
        graph, slots = self._graph, self._graph.update.slots
        if not self._has_begun:  # later it continues with the slots of the session before
            self._run(session, slots.forget_op)
        self._run(session, graph.input.init_op, graph.input.feed)
        # In one run, since TensorFlow builds a graph for each, on this worker and on every ps.
        status, _ = self._run(session, [
            graph.steps.status, [slots.begin_op, graph.steps.join_op, graph.input.queues.forget_op]])
        self._has_begun = True
        return int(status[0])

    def _start_services(self, session: tf.Session, is_live: bool, global_step: int) -> None:
        init = self._graph.update.init
        self._opener.supervisor.coord.clear_stop()  # set at the end of the session before
        self._run(session, init.live_run if is_live else init.new_run, self._opener.term_feed())
        self._summaries.start(self._graph.graph, global_step)
        if not is_live:
            with _losing_session():
                self._board.start_run(self._fingerprint, self._incarnations)
        # After `start_run`, because it reads which workers have finished in this run.
        self._chief_service.start(session, self._context(is_live))
        self._saving.start(session)

    def _note_activity(self, text: str) -> None:
        with contextlib.suppress(BlackboardError):  # only the messages of workers that wait say less then
            self._board.note_activity(text)

    def _context(self, is_live: bool) -> ChiefContext:
        settings = self._settings
        names = {self._cluster.number_of(worker): str(worker) for worker in self._cluster.workers}
        return ChiefContext(
            board=self._board, worker_names=names, chief_number=self._cluster.worker_number,
            start_timeout_secs=settings.timeouts.start_secs, is_resumed=is_live)

    def _end(self, session: tf.Session, outcome: Outcome) -> Outcome:
        """Ends training in this task. The chief also waits for the others, and saves in any case.

        Returns:
          the outcome; that of the chief has the global step of the last checkpoint, and the time until the others end.
        """
        begin_secs = clock.now()
        try:
            try:
                self._end_with_others(session, outcome)
            except BlackboardError:
                if outcome.end is End.SIGNAL or not reachability.accepts(self._board.first_ps.address):
                    raise
                self._end_with_others(session, outcome)  # this task's server may be too busy: now by another route
        except BlackboardError as error:
            if not self._cluster.is_chief and outcome.end is not End.SIGNAL:
                raise
            _log.warning("%s; ending without the other workers", error)
        if self._heartbeat.is_replaced or not self._cluster.is_chief:
            return outcome
        if outcome.end in (End.DATA, End.HOOK):
            outcome = outcome._replace(waiting_secs=outcome.waiting_secs + clock.now() - begin_secs)
        self._chief_service.conclude(session)
        self._opener.supervisor.request_stop()
        return outcome._replace(global_step=checkpoints.step_in_name(self._saving.save_last(session)))

    def _end_with_others(self, session: tf.Session, outcome: Outcome) -> None:
        self._announce(session, outcome)
        self._heartbeat.beat()  # with the last count of steps, for the chief
        if self._heartbeat.is_replaced:  # noticed by that beat: another process has the number
            return
        self._report_finished(outcome)
        if self._cluster.is_chief and outcome.end is End.SIGNAL:
            # Usually all tasks are stopped together. No last step may wait for an update that never comes.
            self._run(session, self._graph.update.release_op)
        elif self._cluster.is_chief:
            self._wait_for_others(session)
            if outcome.end in (End.DATA, End.HOOK):
                self._close_to_others(session, outcome)

    def _announce(self, session: tf.Session, outcome: Outcome) -> None:
        """Announces the end of training if this worker took the last step, and releases the workers that wait."""
        if outcome.end is End.STEPS:
            self._board.announce_stopping()
        if outcome.end in (End.STEPS, End.ANNOUNCED):  # early stopping announces it while others wait for an update
            self._release(session)

    def _report_finished(self, outcome: Outcome) -> None:
        """Reports that this worker takes no further step; not if a signal ended it, since it may come back."""
        if outcome.end is not End.SIGNAL:
            self._board.report_finished(self._cluster.worker_number)

    def _release(self, session: tf.Session) -> None:
        sessions.run_bounded(session, self._graph.update.release_op, options=_CALL)

    def _close_to_others(self, session: tf.Session, outcome: Outcome) -> None:
        """Lets no worker join any more, and releases those that joined since the others ended: no update follows."""
        self._board.announce_stopping("the training data has ended" if outcome.end is End.DATA else outcome.why)
        self._wait_for_others(session, is_alive_only=True)

    def _wait_for_others(self, session: tf.Session, *, is_alive_only: bool = False) -> None:
        """Waits until every worker has finished or died, or nothing has moved for `timeouts.end_secs`.

        Once training is over, waiting workers are released again and again, since one may have come late or pushed a
        gradient that no update takes. If only this worker's data has ended, the others continue.
        """
        timeout_secs = self._settings.timeouts.end_secs
        moved_secs, last = clock.now(), None
        reminder = waits.Reminder(lambda: f"{', '.join(names)} to finish")
        while names := unfinished_workers(self._cluster, snapshot := self._board.snapshot(), is_alive_only):
            if snapshot.state >= State.STOPPING:
                self._release(session)
            step = int(sessions.run_bounded(session, self._graph.steps.status, options=_CALL)[0])
            if (step, names) != last:
                moved_secs, last = clock.now(), (step, names)
            if clock.now() - moved_secs > timeout_secs:
                _log.warning("ending without %s: not finished, and no step for %g s", ", ".join(names), timeout_secs)
                return
            reminder.remind()
            if self._stop.wait(_POLL_SECS):
                return


@contextlib.contextmanager
def _losing_session() -> Iterator[None]:
    """Takes an error of the blackboard for the loss of the session: a ps is lost again, so start over."""
    try:
        yield
    except BlackboardError as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from error


def unfinished_workers(cluster: Cluster, snapshot: Snapshot, is_alive_only: bool = False) -> list[str]:
    """Returns the names of the workers that may still take a step: not finished, and alive or not here yet."""
    names = {cluster.number_of(task): str(task) for task in cluster.workers}
    names.update((number, cluster.worker_name(number)) for number in snapshot.alive() if number not in names)
    return [name for number, name in names.items() if not snapshot.finished[number]
            and (snapshot.is_alive(number) or not (snapshot.claims[number] or is_alive_only))]
