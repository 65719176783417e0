"""The part of evaluations during training, in a chief and in an evaluator."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ps_train.part import Part
from ps_train.parts.selection.evaluations import ChiefRole, EvaluationSignals, EvaluatorRole, Role, TimedRole
from ps_train.parts.selection.record import go_back
from ps_train.parts.selection.selector import Selector, selection_settings
from ps_train.runtime.reports import Evaluation
from ps_train.storage import checkpoints
from ps_train.storage.journal import Journal
from ps_train.tasks.setup import LoadedPlugins, WorkerSettings
from ps_train.training.evaluation import Evaluator


class SelectionPart(Part):
    """What follows from the evaluations of one training."""

    def __init__(self, config: Any, cluster: Any) -> None:
        """Takes the settings from --eval_steps, --keep_best and the other flags of this part."""
        self._settings, self._cluster = selection_settings(config), cluster
        self._train_dir, self._timeouts = config.train_dir, config.timeouts
        # What is kept in a store is the chief's.
        self._is_onlooker = bool(getattr(config, "train_url", ""))
        self._role: Role | None = None
        self._journal = Journal("")

    def adjust(self, settings: WorkerSettings) -> WorkerSettings:
        """Returns the settings of a worker that saves at least as often as checkpoints are evaluated."""
        saves = settings.sessions.saves
        saves = saves._replace(every_secs=_more_often(saves.every_secs, self._settings.eval_secs),
                               every_steps=int(_more_often(saves.every_steps, self._settings.eval_steps)))
        return settings._replace(sessions=settings.sessions._replace(saves=saves))

    def before_server(self, task: Any) -> None:
        """Forgets the evaluations of checkpoints that were removed."""
        self._journal = task.journal
        if self._cluster.is_chief:
            newest = checkpoints.newest_sound(self._train_dir)
            go_back(self._train_dir, checkpoints.step_of(newest) if newest else None)

    @contextlib.contextmanager
    def around_evaluations(
        self, plugins: LoadedPlugins, evaluator: Evaluator | None, stop: threading.Event
    ) -> Iterator[None]:
        """Checks the flags against the model; an evaluator sends heartbeats while the body runs.

        Raises:
          ConfigError: the model has no metric of that name.
          UserCodeError: the model cannot be exported.
        """
        selector = Selector(self._settings, self._train_dir, plugins)
        selector.check(evaluator.metric_names if evaluator else ())
        if self._cluster.job == "evaluator" and self._is_onlooker:
            self._role = TimedRole(selector)
            yield
            return
        if self._cluster.job != "evaluator":
            self._role = ChiefRole(selector, evaluator, self._cluster, self._train_dir, self._timeouts, stop,
                                   self._journal)
            yield
            return
        with contextlib.closing(EvaluationSignals(
                self._cluster, self._timeouts.heartbeat_secs, self._settings.selects)) as signals:
            self._role = role = EvaluatorRole(selector, signals)
            with role.running():
                yield

    def training(self, connected: Any) -> contextlib.AbstractContextManager:
        """Returns a context in which the chief evaluates, if the flags ask for it and no evaluator runs."""
        return self._role.training(connected.board) if self._role else contextlib.nullcontext()

    def is_due(self, path: str) -> bool:
        """Returns whether the time or the steps between evaluations are over."""
        return self._role is None or self._role.is_due(path)

    def after_evaluation(self, evaluation: Evaluation, path: str) -> None:
        """Keeps and exports the checkpoint, if the flags ask for it.

        Raises:
          SaveError: the last checkpoint cannot be exported.
        """
        if self._role:
            self._role.evaluated(evaluation, path)


def _more_often(period: float, other: float) -> float:
    """Returns the shorter of two periods, where 0 is none."""
    return min(period, other) if period and other else period or other
