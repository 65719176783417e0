"""The task of a worker: it trains. The chief also saves, evaluates and announces that training is done."""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ClusterLostError, ConfigError, StoppedError
from ps_train.graph import extensions, placement
from ps_train.part import NO_PARTS, Parts
from ps_train.runtime import reports
from ps_train.runtime.reports import Evaluation, Stage, evaluation_fields
from ps_train.storage import checkpoints, folder_record
from ps_train.storage.folder_lock import FolderLock
from ps_train.storage.journal import Journal
from ps_train.tasks import setup
from ps_train.tasks.connected_worker import ConnectedWorker, PreparedWorker
from ps_train.tasks.settings import WorkerSettings
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import loop as step_loop
from ps_train.training import replica_graph
from ps_train.training.evaluation import Evaluator, evaluate_bounded, write_summaries
from ps_train.training.replica_graph import TrainGraph
from ps_train.training.reporting import End, Outcome, Report, steps_table

_log = logging.getLogger(__name__)


def check_graphs(settings: WorkerSettings, cluster: Cluster, plugins: LoadedPlugins, parts: Parts) -> None:
    """Builds the graphs of training and of evaluation, and opens no socket.

    Raises:
      PsTrainError: a plug-in breaks its contract, or a flag does not fit.
      Exception: that of a plug-in.
    """
    graph = build_graph(settings, cluster, plugins, parts)
    task = PreparedWorker(settings, cluster, plugins, graph, Journal(""), threading.Event())
    final = parts.final_evaluation(task) or FinalEvaluation(task)
    if cluster.is_chief:
        if checkpoints.newest_sound(settings.train_dir) is None:
            graph.check_origin(None)
        with parts.around_evaluations(plugins, final.evaluator, task.stop):
            pass
    else:  # the chief's is built already
        Evaluator(*plugins)


def build_graph(
    settings: WorkerSettings, cluster: Cluster, plugins: LoadedPlugins, parts: Parts = NO_PARTS
) -> TrainGraph:
    """Returns the training graph of this worker; see `replica_graph.build_train_graph`."""
    seed = settings.graph.seed
    if cluster.is_elastic and seed is not None:  # all workers read the same data, but in different orders
        seeded_params = {**plugins.dataset_params, "seed": seed + cluster.worker_number}
        plugins = plugins._replace(dataset_params=seeded_params)
    return replica_graph.build_train_graph(cluster, *plugins, settings.graph, parts=parts)


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
        """Prepares it; the chief builds its graph, to find faults before training.

        Raises:
          UserCodeError: a plug-in breaks its contract.
        """
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

    def run(self) -> WorkerResult:
        """Trains to the end and returns what this worker did.

        Raises:
          PsTrainError: what went wrong, with its exit code.
        """
        self._plugins.dataset.prepare(self._plugins.dataset_params)
        self._report.device(self._settings.graph.device)
        graph = build_graph(self._settings, self._cluster, self._plugins, self._parts)
        with contextlib.ExitStack() as stack:
            if self._cluster.is_chief:
                checkpoints.check_writable(self._settings.train_dir)
                stack.enter_context(self._lock.holding())
                self._prepare_as_chief(graph)
            task = PreparedWorker(self._settings, self._cluster, self._plugins, graph, self._journal, self._stop)
            self._parts.before_server(task)
            stack.enter_context(self._journal.noting_failure())
            final = self._parts.final_evaluation(task) or FinalEvaluation(task)
            if self._cluster.is_chief:
                stack.enter_context(self._parts.around_evaluations(self._plugins, final.evaluator, self._stop))
            result = self._train_and_finish(task, final)
            if result.outcome.end is End.SIGNAL:  # raised inside: the lock may know another reason
                raise StoppedError("stopped", f"stopped at step {result.outcome.global_step}; with "
                                   f"--train_dir={shlex.quote(self._settings.train_dir)} it continues from there")
            self._journal.note("end", why=result.outcome.why, step=result.outcome.global_step,
                               is_data_end=result.outcome.is_data_end,
                               metrics=dict(result.evaluation.metrics) if result.evaluation else {})
        return result

    def _prepare_as_chief(self, graph: TrainGraph) -> None:
        """Prints the model's size, and finds a checkpoint of another model, which would otherwise show only later.

        Raises:
          ConfigError: the checkpoint in the folder has another model, dataset or parameters.
          UserCodeError: the checkpoint does not fit the variables.
        """
        settings = self._settings
        path = checkpoints.newest_sound(settings.train_dir)
        record = folder_record.make_record(*self._plugins)
        if path is not None:
            folder_record.check_record(settings.train_dir, record, settings.identity.accepted_params)
        graph.check_origin(path)
        folder_record.write_record(settings.train_dir, {**record, **folder_record.make_input_record(
            self._plugins.dataset, self._plugins.dataset_params)})
        _log.info(placement.model_summary(graph.savers.variables, len(self._cluster.ps)))
        for line in placement.variable_table(graph.savers.variables) if settings.logs_placement else ():
            _log.info(line)
        if not self._plugins.dataset.is_sharded and self._cluster.num_workers > 1:
            _log.info("%s takes no shard: every worker reads all of the data, as under Estimator",
                      self._plugins.dataset.name)
        for line in graph.update.notes:
            _log.info("%s", line)

    def _train_and_finish(self, task: PreparedWorker, final: FinalEvaluation) -> WorkerResult:
        settings, cluster = self._settings, self._cluster
        target = (f"grpc://{cluster.task.address}" if settings.server.is_existing
                  else setup.start(cluster, settings.server.num_gpus))
        with contextlib.closing(ConnectedWorker(task, target, self._lock)) as connected:
            connected.claim_number()
            with connected.heartbeat.running(), self._announcing_failure(connected.board), \
                    self._parts.at_server(connected):
                self._report.opening(target if settings.server.is_existing else "")
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
        settings = self._settings
        def train_once(session: Any, write_summary: Any) -> Outcome:
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
                self._report.stage(Stage(outcome.global_step, settings.loop.train_steps, reports.FINISHING))
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
        except Exception:
            if self._cluster.is_chief:
                _announce(lambda: board.announce(State.IDLE if self._settings.server.is_existing else State.FAILED))
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
                if self._settings.server.is_existing:  # the next training would take this one for its own, and end
                    _announce(lambda: board.announce(State.IDLE))
                raise
            self._report_steps(board)
        if self._settings.server.is_existing:
            board.announce(State.IDLE)
        elif outcome.end is not End.SIGNAL:
            board.announce_done()
        return evaluation

    def _report_steps(self, board: Blackboard) -> None:
        try:
            if not reachability.any_accepts([board.first_ps]):  # the call would take seconds to fail
                raise BlackboardError("ps_unreachable", f"{board.first_ps} has ended")
            if table := steps_table(self._cluster, board.snapshot()):
                self._report.result(table)
        except BlackboardError as error:
            _log.warning("cannot read how many steps each worker took: %s", error)

    def _evaluate(self, final: FinalEvaluation, connected: ConnectedWorker, outcome: Outcome) -> Evaluation:
        settings = self._settings
        self._report.stage(Stage(outcome.global_step, settings.loop.train_steps, reports.EVALUATING))
        path = checkpoints.newest_sound(settings.train_dir)
        evaluation = final.evaluate(connected, path)
        self._parts.after_evaluation(evaluation, path)
        write_summaries(evaluation, settings.train_dir)
        self._journal.note("evaluation", **evaluation_fields(evaluation))
        self._report.evaluated(evaluation)
        steps = evaluation.global_step - outcome.first_step
        if steps:
            examples = steps * connected.graph.update.gradients_per_step * settings.loop.batch_size
            rate = examples / max(outcome.elapsed_secs, 1e-9)
            self._report.result(f"Training took {outcome.elapsed_secs:.2f} s, {rate:.0f} examples per second over all "
                                "workers")
        return evaluation


def _announce(call: Callable[[], None]) -> None:
    for _ in range(2):  # the first call may find that its session was lost
        with contextlib.suppress(BlackboardError):
            call()
            return


