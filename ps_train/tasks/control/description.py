"""What the chief says about its training, on ps 0 and in cluster.json."""

from __future__ import annotations

import os
from typing import Any

from ps_train.cluster.spec import Cluster
from ps_train.runtime import reports
from ps_train.tasks.settings import WorkerSettings


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
