"""The task of a worker: it trains. The chief also saves, evaluates and announces that training is done."""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
from collections.abc import Iterator
from typing import Any, Callable

from ps_train.cluster.spec import Cluster
from ps_train.coordination import agreement, blackboard, fingerprint
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.heartbeat import Heartbeat, WorkerProgress
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ClusterLostError, ConfigError, StoppedError
from ps_train.graph import placement
from ps_train.profile import recorder
from ps_train.runtime import reports
from ps_train.runtime.reports import Stage
from ps_train.storage import checkpoints, folder_record
from ps_train.storage.folder_lock import FolderLock
from ps_train.tasks import server, settings
from ps_train.tasks.settings import WorkerSettings
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import evaluation, loop, recovery, replica_graph, shutdown
from ps_train.training.evaluation import Evaluator
from ps_train.training.outcome import End, Outcome
from ps_train.training.replica_graph import TrainGraph
from ps_train.training.reporting import Report

_log = logging.getLogger(__name__)


def check_graphs(own: WorkerSettings, cluster: Cluster, plugins: LoadedPlugins) -> None:
    """Builds the graphs of training and of evaluation, and opens no socket.

    Raises:
      PsTrainError: a plug-in breaks its contract, or a flag does not fit.
      Exception: whatever a plug-in raises.
    """
    build_graph(own, cluster, plugins)
    Evaluator(*plugins)


def build_graph(own: WorkerSettings, cluster: Cluster, plugins: LoadedPlugins) -> TrainGraph:
    """Returns the training graph of this worker; see `replica_graph.build_train_graph`."""
    if cluster.is_elastic and own.seed is not None:  # all draw from the same data: not in the same order
        own_params = {**plugins.dataset_params, "seed": own.seed + cluster.worker_number}
        plugins = plugins._replace(dataset_params=own_params)
    return replica_graph.build_train_graph(
        cluster, own.device, *plugins, own.updates, plan=own.placement, bound=own.loop.bound, seed=own.seed,
        steps_per_execution=own.steps_per_execution)


class WorkerTask:
    """One worker from start to end.

        prepare graph and folder --> start the server --> claim the worker's number --> train --> chief: evaluate
    """

    def __init__(
        self, own: WorkerSettings, cluster: Cluster, plugins: LoadedPlugins, report: Report, stop: threading.Event
    ) -> None:
        """Starts nothing yet.

        Args:
          report: prints what the worker has to say.
          stop: ends training, with a checkpoint, after the step at hand.
        """
        self._own = own
        self._cluster = cluster
        self._plugins = plugins
        self._report = report
        self._stop = stop
        self._progress = WorkerProgress()
        self._lock = FolderLock(own.train_dir, own.timeouts.heartbeat_secs, stop)

    def run(self) -> Outcome:
        """Trains to the end and returns what this worker did.

        Raises:
          PsTrainError: what went wrong, with its exit code.
        """
        self._plugins.dataset.prepare(self._plugins.dataset_params)
        self._report.device(self._own.device)
        graph = build_graph(self._own, self._cluster, self._plugins)
        with contextlib.ExitStack() as stack:
            evaluator = None
            if self._cluster.is_chief:
                checkpoints.check_writable(self._own.train_dir)
                stack.enter_context(self._lock.holding())
                evaluator = self._prepare_as_chief(graph)
            outcome = self._train_and_finish(graph, evaluator)
            if outcome.end is End.SIGNAL:  # raised while the folder is held, which knows of another reason to stop
                raise StoppedError(f"told to stop at step {outcome.global_step}; with "
                                   f"--train_dir={shlex.quote(self._own.train_dir)} it continues from there")
        return outcome

    def _prepare_as_chief(self, graph: TrainGraph) -> Evaluator:
        """Prints the model's size, and finds what would go wrong only later.

        That is: another model's checkpoint, a bad evaluation graph, an optimizer that loses updates.

        Raises:
          ConfigError: the checkpoint there is of another model, dataset or parameters.
          UserCodeError: the checkpoint there does not fit the variables, or the model cannot be built for evaluation.
        """
        own = self._own
        path = checkpoints.newest_sound(own.train_dir)
        record = folder_record.describe(*self._plugins)
        if path is not None:
            folder_record.check(own.train_dir, record)
            checkpoints.check_fits(path, graph.saved_variables)
        folder_record.write(own.train_dir, record)
        _log.info(placement.summary(graph.saved_variables, len(self._cluster.ps)))
        for line in placement.table(graph.saved_variables) if own.logs_placement else ():
            _log.info(line)
        if warning := settings.adam_warning(own, self._cluster, graph.update.sparse):
            _log.warning("%s", warning)
        return Evaluator(*self._plugins)

    def _train_and_finish(self, graph: TrainGraph, evaluator: Evaluator | None) -> Outcome:
        own, cluster = self._own, self._cluster
        target = (f"grpc://{cluster.task.address}" if own.uses_existing_servers
                  else server.start(cluster, own.num_gpus))
        with contextlib.closing(blackboard.for_worker(target, cluster, own.timeouts.heartbeat_secs)) as board:
            heartbeat = self._claim_number(board)
            with heartbeat.running(), self._announcing_failure(board):
                outcome = self._train(target, graph, board, heartbeat)
                self._report.ended(outcome, own.loop.train_steps, own.loop.batch_size)
                if evaluator is not None:
                    self._finish_as_chief(board, outcome, lambda: self._evaluate(evaluator, outcome, graph))
        return outcome

    def _claim_number(self, board: Blackboard) -> Heartbeat:
        """Makes this process the worker of its number."""
        own, cluster, start_secs = self._own, self._cluster, self._own.timeouts.start_secs
        agreement.check(cluster, start_secs, self._stop, own.uses_existing_servers)
        heartbeat = Heartbeat(board, cluster.task, cluster.worker_number, self._progress, self._stop,
                              has_bound=not own.uses_existing_servers)
        with contextlib.closing(blackboard.for_client(cluster, own.timeouts.heartbeat_secs)) as visitor:
            heartbeat.claim(visitor, start_secs)
        return heartbeat

    def _train(self, target: str, graph: TrainGraph, board: Blackboard, heartbeat: Heartbeat) -> Outcome:
        own, cluster = self._own, self._cluster
        supervised = recovery.SupervisedTraining(
            cluster, target, graph, board, heartbeat, self._progress, own.sessions, stop=self._stop, lock=self._lock,
            own_fingerprint=fingerprint.describe(cluster, own.shared_flags, graph.saved_variables,
                                                 graph.update.packed.places()))
        profile = recorder.Profile(own.profiled_steps, cluster.task.name, own.train_dir)

        def train_once(session: Any, write_summary: Any) -> Outcome:
            self._report.training()
            outcome = loop.Loop(
                session, graph, own.loop, self._progress, stop=self._stop, write_summary=write_summary,
                report=self._report, run_step=profile.run_step(session, graph.graph)).run()
            self._report.trained()
            if cluster.is_chief:
                self._report.stage(Stage(outcome.global_step, own.loop.train_steps, reports.FINISHING))
            profile.finish()
            return outcome

        self._report.opening(target if own.uses_existing_servers else "")
        with _giving_way(cluster, heartbeat, own.timeouts.heartbeat_secs):
            return supervised.run(train_once)

    @contextlib.contextmanager
    def _announcing_failure(self, board: Blackboard) -> Iterator[None]:
        """Lets the others go on, or end, instead of waiting for a worker whose own code fails, its evaluation too.

        Without the chief they end. A worker that is lost, was told to stop or does not fit leaves the training as it
        is: it, or another in its place, may come back.
        """
        try:
            yield
        except (ClusterLostError, StoppedError, ConfigError):
            raise
        except Exception:
            if self._cluster.is_chief:
                _announce(lambda: board.announce(State.IDLE if self._own.uses_existing_servers else State.FAILED))
            else:
                _announce(lambda: board.report_finished(self._cluster.worker_number))
            raise

    def _finish_as_chief(self, board: Blackboard, outcome: Outcome, evaluate: Callable[[], None]) -> None:
        """Evaluates, and lets the cluster end; existing servers are free from then on."""
        if outcome.end is not End.SIGNAL:
            evaluate()
            self._report_steps(board)
        if self._own.uses_existing_servers:
            board.announce(State.IDLE)
        elif outcome.end is not End.SIGNAL:
            board.announce_done()

    def _report_steps(self, board: Blackboard) -> None:
        try:
            self._report.result(shutdown.steps_table(self._cluster, board.snapshot()))
        except BlackboardError as error:
            _log.warning("cannot tell how many steps each worker took: %s", error)

    def _evaluate(self, evaluator: Evaluator, outcome: Outcome, graph: TrainGraph) -> None:
        own = self._own
        self._report.stage(Stage(outcome.global_step, own.loop.train_steps, reports.EVALUATING))
        path = checkpoints.newest_sound(own.train_dir)
        found = evaluation.evaluate_bounded(own.timeouts.eval_secs, evaluator, path, self._stop)
        evaluation.write_summaries(found, own.train_dir)
        self._report.evaluated(found.global_step, found.loss_sum, found.format())
        steps = found.global_step - outcome.first_step
        if steps:
            examples = steps * graph.update.gradients_per_step * own.loop.batch_size
            rate = examples / max(outcome.elapsed_secs, 1e-9)
            self._report.result(f"Training took {outcome.elapsed_secs:.2f} s, {rate:.0f} examples per second over all "
                                "workers")


def _announce(call: Callable[[], None]) -> None:
    for _ in range(2):  # the first one may find that its session was lost
        with contextlib.suppress(BlackboardError):
            call()
            return


@contextlib.contextmanager
def _giving_way(cluster: Cluster, heartbeat: Heartbeat, timeout_secs: float) -> Iterator[None]:
    """Raises what has stopped training where that was no signal, however the body ended.

    Raises:
      ClusterLostError: another process has taken the place of this one.
      ConfigError: the tasks were told of different clusters.
    """
    ended: StoppedError | None = None
    try:
        yield
    except StoppedError as error:
        ended = error
    if heartbeat.is_replaced:
        raise ClusterLostError(f"another process has taken the place of {cluster.task}, which was not heard of "
                               f"for {timeout_secs:g} s; this one ends") from ended
    if heartbeat.mismatch:
        raise ConfigError(heartbeat.mismatch) from ended
    if ended:
        raise ended
