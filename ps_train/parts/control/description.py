"""What the chief says about its training, on ps 0, in cluster.json and in the journal."""

from __future__ import annotations

import os
from typing import Any

from ps_train.cluster.spec import Cluster
from ps_train.graph import devices, placement
from ps_train.runtime import reports
from ps_train.tasks.settings import WorkerSettings
from ps_train.training.replica_graph import TrainGraph

_MOST_NAMED = 200  # variables in the journal


def describe_run(own: WorkerSettings, cluster: Cluster) -> dict[str, Any]:
    """Returns where the training runs, what it is, and the command of the chief; all of it goes into JSON."""
    return {
        "ps": {str(task.index): task.address for task in cluster.ps},
        "workers": {str(cluster.number_of(task)): [task.name, task.address] for task in cluster.workers},
        "is_elastic": cluster.is_elastic,
        "train_dir": os.path.abspath(own.train_dir),
        "train_steps": own.loop.train_steps if own.loop.train_steps < reports.NO_STEP_LIMIT else None,
        "heartbeat_secs": own.timeouts.heartbeat_secs,
        "model": own.shared_flags["model"],
        "dataset": own.shared_flags["dataset"],
        "is_sync": bool(own.shared_flags["sync_replicas"]),
        "folder": os.getcwd(),
        "command": list(own.command),
        "is_launched": reports.is_launched(),
    }


def describe_placement(graph: TrainGraph, num_ps: int) -> dict[str, Any]:
    """Returns what is on each ps, for JSON: bytes of all variables, the largest ones, and the tables, which grow."""
    rows = sorted(((placement.variable_bytes(variable.op), devices.task_of(variable.device)[1] or 0, variable.op.name)
                   for variable in graph.saved_variables), reverse=True)
    totals = {str(ps): sum(size for size, place, _ in rows if place == ps) for ps in range(num_ps)}
    return {"ps_bytes": totals, "num_variables": len(rows),
            "largest": [{"name": name, "ps": ps, "bytes": size} for size, ps, name in rows[:_MOST_NAMED]],
            "tables": [{"name": name, "rows": spec.num_rows, "dim": spec.dim}
                       for name, spec in sorted(graph.tables.specs.items())]}
