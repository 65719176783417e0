"""The evaluation after the last step: by the chief alone, or by all workers (`--evaluate_with`). It is asked here only.

    chief     the chief restores the checkpoint into its own memory    the others have ended
    workers   each worker reads the parameters on the ps               parts/evaluation_by_workers/
"""

from __future__ import annotations

import contextlib
import logging
import threading

from ps_train.cluster.spec import Cluster
from ps_train.errors import ClusterLostError
from ps_train.parts.evaluation_by_workers.chief import EvaluationByWorkers, EvaluationLostError
from ps_train.parts.evaluation_by_workers.exchange import ResultExchange
from ps_train.parts.evaluation_by_workers.participation import Participation
from ps_train.parts.evaluation_by_workers.share_graph import Evaluated, ShareGraph
from ps_train.parts.selection.chief import ChiefEvaluations
from ps_train.parts.selection.selector import Selector
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints
from ps_train.tasks.connected_worker import ConnectedWorker
from ps_train.tasks.settings import WorkerSettings
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import evaluation
from ps_train.training.evaluation import Evaluator
from ps_train.training.outcome import End, Outcome
from ps_train.training.replica_graph import TrainGraph

_MAX_LOSSES = 5
_log = logging.getLogger(__name__)


class FinalEvaluation:
    """What one worker does after the last step."""

    def __init__(
        self, own: WorkerSettings, cluster: Cluster, plugins: LoadedPlugins, graph: TrainGraph, stop: threading.Event
    ) -> None:
        """Prepares it; the chief builds its graph, to find faults before training.

        Raises:
          UserCodeError: a plug-in breaks its contract.
          ConfigError: the workers cannot evaluate this model together.
        """
        self._own, self._cluster, self._stop = own, cluster, stop
        self._evaluated = Evaluated(
            cluster, own.device, own.placement, own.updates.table_rule, plugins, graph)
        if not cluster.is_chief:
            return
        if own.evaluates_with_all:
            self._whole = ShareGraph(self._evaluated, (0, 1))
            if not plugins.dataset.is_eval_sharded:
                _log.warning("--evaluate_with=workers: %s takes no shard of the held-out data, so the chief evaluates "
                             "alone, with the parameters on the ps", plugins.dataset.name)
            self._evaluations = None
            self._selector = Selector(own.selection, own.train_dir, plugins)
            self._selector.check(())
        else:
            self._evaluator = Evaluator(*plugins)
            self._selector = Selector(own.selection, own.train_dir, plugins)
            self._selector.check(self._evaluator.metric_names)
            self._evaluations = ChiefEvaluations(
                self._selector, self._evaluator, cluster, own.train_dir, own.timeouts, stop)

    def before(self, connected: ConnectedWorker) -> contextlib.AbstractContextManager:
        """Returns a context in which the chief also evaluates while it trains, if the flags ask for it."""
        if not self._cluster.is_chief or self._evaluations is None:
            return contextlib.nullcontext()
        return self._evaluations.running(connected.board)

    def evaluate(self, connected: ConnectedWorker) -> Evaluation:
        """Returns the metrics of the last checkpoint; for the chief.

        Raises:
          UserCodeError: the user's code is at fault, or the evaluation takes too long.
          ClusterLostError: the ps were lost again and again.
          StoppedError: told to stop.
        """
        path = checkpoints.newest_sound(self._own.train_dir)
        if self._evaluations is None:
            found = self._evaluate_with_all(connected, path)
            self._selector.export_final(path)
        else:
            found = evaluation.evaluate_bounded(self._own.timeouts.eval_secs, self._evaluator, path, self._stop)
            self._evaluations.conclude(found, path)
        return found

    def _evaluate_with_all(self, connected: ConnectedWorker, path: str) -> Evaluation:
        with contextlib.closing(ResultExchange(connected.target, self._cluster)) as exchange, connected.giving_way():
            by_workers = EvaluationByWorkers(self._evaluated, self._whole, connected.target, connected.board, exchange,
                                             self._own.timeouts, self._stop)
            for _ in range(_MAX_LOSSES):
                try:
                    return by_workers.evaluate(path)
                except EvaluationLostError as error:
                    _log.warning("the evaluation was lost: %s; restoring the parameters, to evaluate again", error)
                # It finds that the last step was taken, so it only restores the parameters that were lost.
                connected.train(lambda session, write_summary: connected.loop(session, write_summary).run())
        raise ClusterLostError(f"the evaluation was lost {_MAX_LOSSES} times; the checkpoint {path} is sound: run the "
                               "same command again")

    def take_part(self, connected: ConnectedWorker, outcome: Outcome) -> None:
        """Does this worker's part, if it has one; for the others.

        Raises:
          PsTrainError: see `Participation.run`.
        """
        if not self._own.evaluates_with_all or outcome.end is End.SIGNAL:
            return
        with contextlib.closing(ResultExchange(connected.target, self._cluster)) as exchange, connected.giving_way():
            Participation(self._evaluated, connected.target, connected.board, exchange, self._own.timeouts, self._stop,
                          ends_idle=self._own.uses_existing_servers).run()
