"""The evaluation after the last step: the chief restores the checkpoint into its own memory; the others have ended.

A part may return another object with these methods (`Part.final_evaluation`).
"""

from __future__ import annotations

import threading

from ps_train.cluster.spec import Cluster
from ps_train.runtime.reports import Evaluation
from ps_train.tasks.connected_worker import ConnectedWorker
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import evaluation
from ps_train.training.evaluation import Evaluator


class FinalEvaluation:
    """What a worker does after the last step.

    Attributes:
      evaluator: the chief's; None in another worker.
    """

    def __init__(
        self, plugins: LoadedPlugins, cluster: Cluster, *, eval_timeout_secs: float, stop: threading.Event
    ) -> None:
        """Prepares it; the chief builds its graph, to find faults before training.

        Raises:
          UserCodeError: a plug-in breaks its contract.
        """
        self.evaluator = Evaluator(*plugins) if cluster.is_chief else None
        self._timeout_secs, self._stop = eval_timeout_secs, stop

    def evaluate(self, connected: ConnectedWorker, path: str) -> Evaluation:
        """Returns the metrics of the last checkpoint; for the chief.

        Raises:
          UserCodeError: the user's code is at fault, or the evaluation takes too long.
          StoppedError: `stop` was set first.
        """
        return evaluation.evaluate_bounded(self._timeout_secs, self.evaluator, path, self._stop)

    def assist(self, connected: ConnectedWorker) -> None:
        """Does what the chief needs of this worker for its evaluation: nothing; for the others."""
