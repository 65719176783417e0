"""What a task does for `ps_train serve` and with --download_only, where it does not train.

    serve       a server for the clients that run with --existing_servers
    download    the data is fetched and checked; with --job_name=worker, the graphs are built, too
"""

from __future__ import annotations

import contextlib
import threading

from ps_train.cluster.spec import Cluster
from ps_train.config.groups import parse_accepted
from ps_train.config.task import Config
from ps_train.coordination import blackboard
from ps_train.errors import StoppedError
from ps_train.part import Parts
from ps_train.parts import table
from ps_train.storage import checkpoints, folder_record
from ps_train.storage.journal import Journal
from ps_train.tasks import ps, setup, worker
from ps_train.tasks.setup import LoadedPlugins, WorkerSettings, worker_settings
from ps_train.training import evaluation
from ps_train.training.replica_graph import build_train_graph


def serve(config: Config, cluster: Cluster, stop: threading.Event) -> None:
    """Serves the clients that run with --existing_servers, one after another, until the task is stopped.

    Raises:
      StoppedError: `stop` was set.
      PsTrainError: a flag cannot be followed.
    """
    setup.prepare_tensorflow(config.tf_log)
    setup.share_machine(cluster, config.num_gpus)
    if cluster.job == "ps":
        with table.located(config, cluster, stop):  # the train_dir of a worker is its client's
            _serve_board(setup.start(cluster, config.num_gpus), cluster, stop)
    else:
        setup.start(cluster, config.num_gpus)
        stop.wait()
    raise StoppedError("stopped", f"{cluster.task.name} was stopped")


def _serve_board(target: str, cluster: Cluster, stop: threading.Event) -> None:
    with contextlib.closing(blackboard.for_ps(target, cluster)) as board:
        board.create()
        with ps.running_clock(board):
            stop.wait()


def download(config: Config, cluster: Cluster | None) -> None:
    """Fetches and checks the dataset's files. If the flags name a worker, also builds its graphs, to find their faults.

    Raises:
      ConfigError: the given train_dir has the checkpoints of another training.
      PsTrainError: a flag, a plug-in or a file is wrong.
      Exception: that of a plug-in.
    """
    setup.prepare_tensorflow(config.tf_log)
    plugins, stop = setup.load_plugins(config), threading.Event()
    with table.located(config, None, stop) as located_config:
        # A part may say how files are read, also where no flag names a task.
        parts = table.make_parts(located_config, cluster or Cluster("worker", 0, {}))
        with parts.around_task(stop):
            plugins.dataset.prepare(plugins.dataset_params)
            _check_training(located_config, cluster, plugins, parts)


def _check_training(config: Config, cluster: Cluster | None, plugins: LoadedPlugins, parts: Parts) -> None:
    if "train_dir" in config.given and checkpoints.paths(config.train_dir):
        folder_record.check_record(config.train_dir, folder_record.make_record(*plugins),
                                   parse_accepted("--accept_params", config.accept_params))
    if cluster is not None and cluster.job == "worker":
        _check_graphs(parts.adjust(worker_settings(config, cluster)), cluster, plugins, parts)


def _check_graphs(settings: WorkerSettings, cluster: Cluster, plugins: LoadedPlugins, parts: Parts) -> None:
    """Builds the graphs of training and of evaluation, and opens no socket."""
    graph = build_train_graph(cluster, *plugins, settings.graph, parts=parts)
    task = worker.PreparedWorker(settings, cluster, plugins, graph, Journal(""), threading.Event())
    final = parts.final_evaluation(task) or worker.FinalEvaluation(task)
    if cluster.is_chief:
        if checkpoints.newest_sound(settings.train_dir, must_be_one=True) is None:
            graph.check_origin(None)
        with parts.around_evaluations(plugins, final.evaluator, task.stop):
            pass
    else:  # the chief's is built already
        evaluation.Evaluator(*plugins)
