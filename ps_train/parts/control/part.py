"""The chief's side of `ps_train status`, `save`, `stop` and `report`: describes the training, and answers clients."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ps_train.cluster.spec import Cluster
from ps_train.graph import devices, placement
from ps_train.part import Part
from ps_train.parts.control import history, requests
from ps_train.runtime import reports
from ps_train.storage import run_record
from ps_train.storage.journal import Journal
from ps_train.tasks.setup import WorkerSettings
from ps_train.training.replica_graph import TrainGraph

_MOST_NAMED = 200  # variables in the journal


class ControlPart(Part):
    """The chief's service for clients; other workers do nothing."""

    def __init__(self, config: Any, cluster: Any) -> None:
        """Has no settings."""
        self._cluster = cluster
        self._run: dict[str, Any] = {}
        self._journal = Journal("")

    def before_server(self, task: Any) -> None:
        """Writes where the training runs to cluster.json and to the journal."""
        if not self._cluster.is_chief:
            return
        self._journal = task.journal
        self._run = describe_run(task.settings, self._cluster)
        run_record.write_run(task.settings.train_dir, self._run)
        self._journal.note("start", run=self._run,
                           placed=describe_placement(task.graph, len(self._cluster.ps)))

    def at_server(self, connected: Any) -> contextlib.AbstractContextManager:
        """Returns a context in which the chief answers `ps_train status` and `ps_train save`."""
        if not self._cluster.is_chief:
            return contextlib.nullcontext()
        return requests.answering_clients(
            self._cluster, connected.target, self._run, connected.supervised.request_save,
            lambda: connected.progress.step, connected.graph.parts.status)

    def training(self, connected: Any) -> contextlib.AbstractContextManager:
        """Returns a context in which the chief notes in the journal which workers come and go, and their progress."""
        if not self._cluster.is_chief:
            return contextlib.nullcontext()
        return history.keeping_diary(self._journal, connected.board, self._cluster, lambda: connected.progress.step)


def describe_run(settings: WorkerSettings, cluster: Cluster) -> dict[str, Any]:
    """Returns where the training runs, its model and data, and the command of the chief, all fit for JSON."""
    return {
        "ps": {str(task.index): task.address for task in cluster.ps},
        "workers": {str(cluster.number_of(task)): [task.name, task.address] for task in cluster.workers},
        "is_elastic": cluster.is_elastic,
        "train_dir": settings.identity.train_dir,
        "train_steps": reports.last_step(settings.loop.train_steps),
        "heartbeat_secs": settings.timeouts.heartbeat_secs,
        "model": settings.identity.shared_flags["model"],
        "dataset": settings.identity.shared_flags["dataset"],
        "is_sync": bool(settings.identity.shared_flags["sync_replicas"]),
        "folder": os.getcwd(),
        "command": list(settings.identity.command),
        "is_launched": reports.is_launched(),
    }


def describe_placement(graph: TrainGraph, num_ps: int) -> dict[str, Any]:
    """Returns the placement, for JSON: bytes of all variables on each ps, the largest ones, and the tables."""
    rows = sorted(((placement.variable_bytes(variable.op), devices.task_of(variable.device)[1] or 0, variable.op.name)
                   for variable in graph.savers.variables), reverse=True)
    totals = {str(ps): sum(size for size, place, _ in rows if place == ps) for ps in range(num_ps)}
    return {"ps_bytes": totals, "num_variables": len(rows),
            "largest": [{"name": name, "ps": ps, "bytes": size} for size, ps, name in rows[:_MOST_NAMED]],
            "tables": [{"name": name, "rows": spec.num_rows, "dim": spec.dim}
                       for name, spec in sorted(graph.rows.specs.items())]}
