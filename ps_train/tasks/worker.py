"""The task of a worker: it trains. The chief also saves, evaluates and announces that training is done.

    WorkerTask         one worker from start to end
    PreparedWorker     before its server starts; what its parts see of it
    ConnectedWorker    at its server: its blackboard, its heartbeat, and its training over all sessions
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement, blackboard, sessions
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.heartbeat import Heartbeat, WorkerProgress
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, CheckpointError, ClusterLostError, ConfigError, StoppedError
from ps_train.graph import batches, extensions, placement
from ps_train.part import Parts
from ps_train.runtime import logs, reports, waits
from ps_train.runtime.reports import Evaluation, Stage, evaluation_fields
from ps_train.storage import checkpoints, folder_record, journal
from ps_train.storage.folder_lock import FolderLock
from ps_train.storage.journal import Journal
from ps_train.tasks import setup
from ps_train.tasks.setup import LoadedPlugins, WorkerSettings
from ps_train.training import loop as step_loop
from ps_train.training import recovery
from ps_train.training.evaluation import Evaluator, evaluate_bounded, write_summaries
from ps_train.training.replica_graph import TrainGraph, build_train_graph
from ps_train.training.reporting import End, Outcome, Report, steps_table

_log = logging.getLogger(__name__)


class PreparedWorker(NamedTuple):
    """A worker before its server starts; what its parts see of it.

    Attributes:
      settings: of the worker.
      cluster: the cluster, and which of its tasks this is.
      plugins: the model and the dataset.
      graph: the finished training graph.
      journal: of the chief; that of another worker keeps nothing.
      stop: ends every wait and the training.
    """

    settings: WorkerSettings
    cluster: Cluster
    plugins: LoadedPlugins
    graph: TrainGraph
    journal: Journal
    stop: threading.Event


class ConnectedWorker:
    """What a worker needs to train with the others, at its server.

    Attributes:
      target: address of its server.
      graph: the finished training graph.
      board: its view of the blackboard.
      progress: how far it is.
      heartbeat: its sign of life.
      supervised: its training, over all its sessions.
      schedule: when its step loop does what.
      stop: ends every wait and the training.
    """

    def __init__(self, task: PreparedWorker, target: str, lock: FolderLock | None = None) -> None:
        """Prepares everything; nothing is sent yet.

        Args:
          target: address of the server whose sessions these are, such as `grpc://localhost:2223`.
          lock: of the train_dir, which the chief holds.
        """
        settings, cluster, graph, stop = task.settings, task.cluster, task.graph, task.stop
        self._settings, self._cluster, self.stop = settings, cluster, stop
        self.target, self.graph, self.schedule = target, graph, settings.loop
        self.board = blackboard.for_worker(target, cluster, settings.timeouts.heartbeat_secs)
        self.progress = WorkerProgress()
        logs.find_step_with(lambda: self.progress.step)
        self.heartbeat = Heartbeat(self.board, cluster.task, cluster.worker_number, self.progress, stop,
                                   has_bound=not settings.has_server)
        with graph.graph.as_default():
            takes_share = task.plugins.dataset.is_sharded and batches.source_of_graph() is None
        self._fingerprint = agreement.fingerprint_of(
            cluster, settings.identity.shared_flags, graph.savers.variables, graph.update.dense.packed.places(),
            graph.rows.fingerprint(), settings.train_dir if cluster.is_chief else "", takes_share=takes_share)
        self.supervised = recovery.SupervisedTraining(
            cluster, target, graph, self.board, self.heartbeat, self.progress, settings.sessions, stop=stop, lock=lock,
            journal=task.journal, own_fingerprint=self._fingerprint)

    def claim_number(self) -> None:
        """Makes this process the worker of its number; see `Heartbeat.claim`."""
        settings, cluster = self._settings, self._cluster
        start_secs = settings.timeouts.start_secs
        agreement.check(cluster, start_secs, self.stop, existing_servers=settings.has_server)
        with contextlib.closing(blackboard.for_client(cluster, settings.timeouts.heartbeat_secs)) as visitor:
            # Before the claim, which reads the steps that the worker took before: a chief that begins another training
            # clears them first, then writes its fingerprint.
            [theirs] = waits.until(lambda: sessions.if_answered(lambda: [visitor.fingerprint()]), start_secs,
                                   f"the blackboard on {visitor.first_ps}", self.stop)
            self.heartbeat.claim(visitor, start_secs)
            if theirs and agreement.fingerprint_differences(theirs, self._fingerprint, their_name="the ps"):
                self.progress.local_steps = 0  # those on the ps were taken in another training

    def loop(
        self, session: tf.Session, write_summary: Callable | None, *, report: Report | None = None,
        run_step: step_loop.RunStep | None = None,
    ) -> step_loop.Loop:
        """Returns the step loop over a session, with what parts do around it; see `Loop` for the arguments."""
        steps = step_loop.Loop(session, self.graph, self.schedule, self.progress, stop=self.stop,
                               write_summary=write_summary, report=report, run_step=run_step)
        return self.graph.parts.around_loop(steps, session)

    def train(self, train_once: recovery.Body) -> Outcome:
        """Returns `train_once(session, write_summary)` of the first session that is not lost.

        Raises:
          ClusterLostError: the cluster did not come back, or another process has taken the place of this one.
          ConfigError: two tasks have different clusters.
          StoppedError: stopped while waiting.
        """
        with self.raising_stop_reason():
            return self.supervised.run(train_once)

    @contextlib.contextmanager
    def raising_stop_reason(self) -> Iterator[None]:
        """Raises why its body was stopped if the reason was not a signal, however the body ended; as `train` does."""
        ended: StoppedError | None = None
        try:
            yield
        except StoppedError as error:
            ended = error
        if self.heartbeat.is_replaced:
            raise ClusterLostError("worker_replaced", f"another process has taken the place of {self._cluster.task}, "
                                   f"which sent no heartbeat for {self._settings.timeouts.heartbeat_secs:g} s; this "
                                   "one ends") from ended
        if self.heartbeat.last.mismatch:
            raise ConfigError("clusters_differ", self.heartbeat.last.mismatch) from ended
        if ended:
            raise ended

    def close(self) -> None:
        """Closes the connection to the blackboard."""
        self.board.close()


class WorkerResult(NamedTuple):
    """What a worker did.

    Attributes:
      outcome: why training ended, and the steps.
      evaluation: of the last checkpoint, by the chief; None for other workers.
    """

    outcome: Outcome
    evaluation: Evaluation | None


class FinalEvaluation:
    """The evaluation after the last step: the chief restores the checkpoint into its own memory; the others have ended.

    A part may replace it by an object with the same methods (`Part.final_evaluation`).

    Attributes:
      evaluator: the chief's; None in another worker.
    """

    def __init__(self, task: PreparedWorker) -> None:
        """Prepares it; the chief builds its graph, to find faults of plug-ins before training."""
        self.evaluator = Evaluator(*task.plugins) if task.cluster.is_chief else None
        self._timeout_secs, self._stop = task.settings.timeouts.eval_secs, task.stop

    def evaluate(self, connected: ConnectedWorker, path: str) -> Evaluation:
        """Returns the metrics of the last checkpoint; for the chief.

        Raises:
          UserCodeError: the user's code is at fault, or the evaluation takes too long.
          StoppedError: `stop` was set first.
        """
        return evaluate_bounded(self._timeout_secs, self.evaluator, path, self._stop)

    def assist(self, connected: ConnectedWorker) -> None:
        """Does what the chief needs of this worker for its evaluation: nothing; for the others."""


class WorkerTask:
    """One worker from start to end.

        prepare graph and folder --> start the server --> claim the worker's number --> train --> chief: evaluate
    """

    def __init__(
        self, settings: WorkerSettings, cluster: Cluster, plugins: LoadedPlugins, report: Report, stop: threading.Event,
        parts: Parts,
    ) -> None:
        """Starts nothing yet.

        Args:
          report: prints the progress and the results.
          stop: ends training after the current step, with a checkpoint.
          parts: what the features of the table of parts do in this worker.
        """
        self._settings, self._cluster, self._plugins = settings, cluster, plugins
        self._report, self._stop, self._parts = report, stop, parts
        self._lock = FolderLock(settings.train_dir, settings.timeouts.heartbeat_secs, stop)
        self._journal = Journal(settings.train_dir if cluster.is_chief else "")
        self._earlier_end: Mapping[str, Any] | None = None

    def run(self) -> WorkerResult:
        """Trains to the end and returns what this worker did.

        Raises:
          PsTrainError: what went wrong, with its exit code.
        """
        self._plugins.dataset.prepare(self._plugins.dataset_params)
        self._report.device(self._settings.graph.device)
        graph = build_train_graph(self._cluster, *self._plugins, self._settings.graph, parts=self._parts)
        with contextlib.ExitStack() as stack:
            if self._cluster.is_chief:
                checkpoints.check_writable(self._settings.train_dir)
                stack.enter_context(self._lock.holding())
                self._prepare_as_chief(graph)
                self._earlier_end = journal.noted_end(self._settings.train_dir)  # before a part notes another start
            task = PreparedWorker(self._settings, self._cluster, self._plugins, graph, self._journal, self._stop)
            self._parts.before_server(task)
            stack.enter_context(self._journal.noting_failure())
            final = self._parts.final_evaluation(task) or FinalEvaluation(task)
            if self._cluster.is_chief:
                stack.enter_context(self._parts.around_evaluations(self._plugins, final.evaluator, self._stop))
            try:
                result = self._train_and_finish(task, final)
            except ClusterLostError as error:
                return self._result_after_end(error)
            if result.outcome.end is End.SIGNAL:  # raised inside: the lock may know another reason
                raise StoppedError("stopped", f"stopped at step {result.outcome.global_step}; with "
                                   f"--train_dir={shlex.quote(self._settings.train_dir)} it continues from there")
            self._journal.note("end", why=result.outcome.why, step=result.outcome.global_step,
                               train_steps=self._settings.loop.train_steps,
                               is_data_end=result.outcome.is_data_end, ps=[task.address for task in self._cluster.ps],
                               metrics=dict(result.evaluation.metrics) if result.evaluation else {})
        return result

    def _result_after_end(self, error: ClusterLostError) -> WorkerResult:
        """Returns the result of a worker that was started again after the end of training, and so waited in vain.

        Raises:
          ClusterLostError: `error`, if the journal and the checkpoints are not those of this training at its last step.
        """
        folder = self._settings.train_dir
        if error.code != "timed_out":
            raise error
        try:  # it may be away with the machine that was lost
            end, path = waits.bounded(lambda: (journal.noted_end(folder) or self._earlier_end,
                                               checkpoints.newest_sound(folder)),
                                      self._settings.timeouts.save_secs, f"a look into {folder}")
        except (ClusterLostError, CheckpointError):
            raise error from None
        if not (end and path and end.get("ps") == [task.address for task in self._cluster.ps] and (
                self._settings.loop.train_steps <= end["step"] <= checkpoints.step_in_name(path))):
            raise error
        _log.warning("training in %s has ended at step %d: %s", folder, end["step"], error)
        self._journal.note(**{name: value for name, value in end.items() if name != "time"})
        return WorkerResult(Outcome(End.ANNOUNCED, end["step"], end["step"], 0, 0.0, reason=end["why"]), None)

    def _prepare_as_chief(self, graph: TrainGraph) -> None:
        """Prints the model's size, and finds a checkpoint of another model, which would otherwise show only later.

        Raises:
          ConfigError: the checkpoint in the folder has another model, dataset or parameters.
          UserCodeError: the checkpoint does not fit the variables, or none can be read, or a variable is too large.
        """
        settings, num_ps = self._settings, len(self._cluster.ps)
        path = checkpoints.newest_sound(settings.train_dir, must_be_one=True)
        record = folder_record.make_record(*self._plugins)
        if path is not None:
            folder_record.check_record(settings.train_dir, record, settings.identity.accepted_params)
        graph.check_origin(path)
        folder_record.write_record(settings.train_dir, {**record, **folder_record.make_input_record(
            self._plugins.dataset, self._plugins.dataset_params)})
        placement.check_sizes(graph.savers.variables)
        for line in [placement.model_summary(graph.savers.variables, num_ps), *graph.update.notes]:
            _log.info("%s", line)
        if not self._plugins.dataset.is_sharded and self._cluster.num_workers > 1:
            _log.info("%s takes no shard: every worker reads all of the data, as under Estimator",
                      self._plugins.dataset.name)

    def _train_and_finish(self, task: PreparedWorker, final: FinalEvaluation) -> WorkerResult:
        settings, cluster = self._settings, self._cluster
        target = f"grpc://{cluster.task.address}" if settings.has_server else setup.start(cluster, settings.num_gpus)
        with contextlib.closing(ConnectedWorker(task, target, self._lock)) as connected:
            connected.claim_number()
            with connected.heartbeat.running(), self._announcing_failure(connected.board), \
                    self._parts.at_server(connected):
                self._report.opening(target if settings.has_server else "")
                with self._parts.training(connected):
                    outcome = self._train(connected)
                self._report.ended(outcome, settings.loop.train_steps, settings.loop.batch_size)
                evaluation = None
                if cluster.is_chief:
                    evaluation = self._finish_as_chief(
                        connected.board, outcome, lambda: self._evaluate(final, connected, outcome))
                elif outcome.end is not End.SIGNAL:
                    final.assist(connected)
        return WorkerResult(outcome, evaluation)

    def _train(self, connected: ConnectedWorker) -> Outcome:
        def train_once(session: Any, write_summary: Any) -> Outcome:
            self._earlier_end = None
            self._report.training()
            hooked = connected.graph.hooks.around(session)
            run_step = self._parts.around_step(hooked, connected.graph.graph, step_loop.plain_step(hooked))
            loop = connected.loop(session, write_summary, report=self._report, run_step=run_step)
            try:
                outcome = loop.run()
            finally:
                extensions.report_counts(session, self._cluster.task.name)
            self._report.trained()
            if self._cluster.is_chief:
                self._report.stage(Stage(outcome.global_step, self._settings.loop.train_steps, reports.FINISHING))
            self._parts.ended_loop()
            return outcome

        return connected.train(train_once)

    @contextlib.contextmanager
    def _announcing_failure(self, board: Blackboard) -> Iterator[None]:
        """Announces that this worker's own code failed, its evaluation included; no other task then waits for it.

        If it is the chief's code, the other tasks end. A worker that was lost, stopped or refused announces
        nothing, because it or another process in its place may come back.
        """
        try:
            yield
        except (ClusterLostError, StoppedError, ConfigError):
            raise
        except (Exception, SystemExit):
            if self._cluster.is_chief:
                _announce(lambda: self._leave_servers(board) if self._settings.has_server
                          else board.announce(State.FAILED))
            else:
                _announce(lambda: board.report_finished(self._cluster.worker_number))
            raise

    def _finish_as_chief(
        self, board: Blackboard, outcome: Outcome, evaluate: Callable[[], Evaluation]
    ) -> Evaluation | None:
        """Evaluates and ends the cluster; servers that --existing_servers used are free from then on."""
        evaluation = None
        if outcome.end is not End.SIGNAL:
            try:
                evaluation = evaluate()
            except StoppedError:
                if self._settings.has_server:  # the next training would take this one for its own, and end
                    _announce(lambda: board.announce(State.IDLE))
                raise
            self._report_steps(board)
        if self._settings.has_server:
            self._leave_servers(board) if outcome.end is End.SIGNAL else board.announce(State.IDLE)
        elif outcome.end is not End.SIGNAL:
            board.announce_done()
        return evaluation

    def _leave_servers(self, board: Blackboard) -> None:
        """Frees the servers for another training, unless other workers train on, which a restarted chief joins."""
        view = board.admission_view()
        has_others = bool(view.admitted - {self._cluster.worker_number})
        if not has_others or view.state != State.RUNNING or waits.is_stop_requested(self._stop):
            board.announce(State.IDLE)

    def _report_steps(self, board: Blackboard) -> None:
        try:
            if not reachability.accepts(board.first_ps.address):  # the call would take seconds to fail
                raise BlackboardError("ps_unreachable", f"{board.first_ps} has ended")
            if table := steps_table(self._cluster, board.snapshot()):
                self._report.result(table)
        except BlackboardError as error:
            _log.warning("cannot read how many steps each worker took: %s", error)

    def _evaluate(self, final: FinalEvaluation, connected: ConnectedWorker, outcome: Outcome) -> Evaluation:
        settings = self._settings
        self._report.stage(Stage(outcome.global_step, settings.loop.train_steps, reports.EVALUATING))
        path = checkpoints.newest_sound(settings.train_dir, must_be_one=True)
        evaluation = final.evaluate(connected, path)
        self._parts.after_evaluation(evaluation, path)
        write_summaries(evaluation, settings.train_dir)
        self._journal.note("evaluation", **evaluation_fields(evaluation))
        self._report.evaluated(evaluation)
        if steps := evaluation.global_step - outcome.first_step:
            examples = steps * connected.graph.update.gradients_per_step * settings.loop.batch_size
            secs = max(outcome.elapsed_secs + outcome.waiting_secs, 1e-9)
            self._report.result(f"Training took {secs:.2f} s, {examples / secs:.0f} examples per second over all "
                                "workers")
        return evaluation


def _announce(call: Callable[[], None]) -> None:
    for _ in range(2):  # the first call may find that its session was lost
        with contextlib.suppress(BlackboardError):
            call()
            return
