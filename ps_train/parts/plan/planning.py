"""`ps_train plan`: builds the graph that the flags describe, without a server, and prints its plan."""

from __future__ import annotations

import dataclasses
import json
import logging
import resource
import sys

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.errors import MissingDataError
from ps_train.launch.preparation import fallback_dataset
from ps_train.parts.plan import plan
from ps_train.runtime import logs
from ps_train.tasks import setup, worker
from ps_train.tasks.settings import worker_settings

_log = logging.getLogger(__name__)


def print_plan(config: Config, cluster: Cluster, is_json: bool) -> None:
    """Prints the plan of a training; starts nothing, opens no socket and writes no file.

    Raises:
      PsTrainError: a flag or a plug-in is wrong.
      Exception: whatever a plug-in raises.
    """
    setup.prepare_tensorflow(config.tf_log)
    ps_process_bytes = _own_bytes()  # a ps loads neither the data nor the model
    config, plugins = _with_data(config)
    graph = worker.build_graph(worker_settings(config, cluster), cluster, plugins)
    per_run = config.steps_per_execution * config.communication_period
    made = plan.make_plan(graph, cluster.task.name, num_ps=len(cluster.ps), num_steps=per_run,
                          process_bytes=_own_bytes(), ps_process_bytes=ps_process_bytes)
    logs.show(json.dumps(plan.plan_record(made)) if is_json else "\n".join(plan.plan_lines(made)))


def _with_data(config: Config) -> tuple[Config, setup.LoadedPlugins]:
    """Returns the flags and the plug-ins of a training that has its data: those that `launch` would train with."""
    plugins = setup.load_plugins(config)
    try:
        plugins.dataset.prepare(plugins.dataset_params)
    except MissingDataError as error:
        name = fallback_dataset(config)
        if name is None:
            raise
        _log.warning("MNIST is not used (data_dir is %s): %s; this is the plan for --dataset=%s, on which `launch` "
                     "would train", config.data_dir, error.fault, name)
        config = dataclasses.replace(config, dataset=name, given=config.given | {"dataset"})
        plugins = setup.load_plugins(config)
        plugins.dataset.prepare(plugins.dataset_params)
    return config, plugins


def _own_bytes() -> int:
    """Returns the most memory that this process has used."""
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
