"""The part of `--evaluate_with=workers`: each worker evaluates a share of the held-out data."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from ps_train.errors import ClusterLostError
from ps_train.part import Part
from ps_train.parts.evaluation_by_workers.exchange import ResultExchange
from ps_train.parts.evaluation_by_workers.roles import EvaluationByWorkers, EvaluationLostError, Participation
from ps_train.parts.evaluation_by_workers.share_graph import ShareGraph
from ps_train.runtime.reports import Evaluation
from ps_train.tasks.worker import ConnectedWorker, PreparedWorker

_MAX_LOSSES = 5
_log = logging.getLogger(__name__)


class EvaluationByWorkersPart(Part):
    """Replaces the evaluation by the chief, if the flag asks for it."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether --evaluate_with is "workers"."""
        return config.evaluate_with == "workers"

    def final_evaluation(self, task: PreparedWorker) -> SharedEvaluation:
        """Returns the evaluation by all workers.

        Raises:
          UserCodeError: a plug-in breaks its contract.
          ConfigError: the workers cannot evaluate this model together.
        """
        return SharedEvaluation(task)


class SharedEvaluation:
    """The evaluation by one worker after the last step; see `tasks.worker.FinalEvaluation`.

    Attributes:
      evaluator: None, as no process restores the whole checkpoint.
    """

    evaluator = None

    def __init__(self, task: PreparedWorker) -> None:
        """Prepares it; the chief builds its graph, to find faults before training.

        Raises:
          UserCodeError: a plug-in breaks its contract.
          ConfigError: the workers cannot evaluate this model together.
        """
        self._task, dataset = task, task.plugins.dataset
        if not task.cluster.is_chief:
            return
        self._all_shares = ShareGraph(task, (0, 1))
        if not dataset.is_eval_sharded:
            _log.warning("--evaluate_with=workers: %s takes no shard of the held-out data, so the chief evaluates "
                         "alone, with the parameters on the ps", dataset.name)

    def evaluate(self, connected: ConnectedWorker, path: str) -> Evaluation:
        """Returns the metrics of the last checkpoint; for the chief.

        Raises:
          UserCodeError: the user's code is at fault, or the evaluation takes too long.
          ClusterLostError: the ps were lost again and again.
          StoppedError: the task was stopped.
        """
        with self._exchange(connected) as exchange:
            by_workers = EvaluationByWorkers(self._task, connected, exchange, self._all_shares)
            for _ in range(_MAX_LOSSES):
                try:
                    return by_workers.evaluate(path)
                except EvaluationLostError as error:
                    _log.warning("the evaluation was lost: %s; restoring the parameters, to evaluate again", error)
                # It finds that the last step was taken, so it only restores the parameters that were lost.
                connected.train(lambda session, write_summary: connected.loop(session, write_summary).run())
        raise ClusterLostError("evaluation_lost", f"the evaluation was lost {_MAX_LOSSES} times; the checkpoint {path} "
                               "can be read: run the same command again")

    def assist(self, connected: ConnectedWorker) -> None:
        """Evaluates a share, if the chief has one for this worker; for the others.

        Raises:
          PsTrainError: see `Participation.run`.
        """
        with self._exchange(connected) as exchange:
            Participation(self._task, connected, exchange).run()

    @contextlib.contextmanager
    def _exchange(self, connected: ConnectedWorker):
        with contextlib.closing(ResultExchange(connected.target, self._task.cluster)) as exchange, \
                connected.raising_stop_reason():
            yield exchange
