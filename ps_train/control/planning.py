"""`ps_train plan`: builds the graph that the flags describe, without a server, and prints its plan."""

from __future__ import annotations

import json
import resource
import sys

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.control import plan
from ps_train.runtime import logs
from ps_train.tasks import setup, worker
from ps_train.tasks.settings import worker_settings


def print_plan(config: Config, cluster: Cluster, is_json: bool) -> None:
    """Prints the plan of a training; starts nothing, opens no socket and writes no file.

    Raises:
      PsTrainError: a flag or a plug-in is wrong.
      Exception: whatever a plug-in raises.
    """
    setup.prepare_tensorflow(config.tf_log)
    ps_process_bytes = _own_bytes()  # a ps loads neither the data nor the model
    plugins = setup.load_plugins(config)
    plugins.dataset.prepare(plugins.dataset_params)
    graph = worker.build_graph(worker_settings(config, cluster), cluster, plugins)
    per_run = config.steps_per_execution * config.communication_period
    made = plan.make_plan(graph, cluster.task.name, num_ps=len(cluster.ps), num_steps=per_run,
                          process_bytes=_own_bytes(), ps_process_bytes=ps_process_bytes)
    logs.show(json.dumps(plan.plan_record(made)) if is_json else "\n".join(plan.plan_lines(made)))


def _own_bytes() -> int:
    """Returns the most memory that this process has used."""
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
