"""One process from start to end: start reading here.

    ps         serve until the chief says that training is done
    worker     train; the chief besides prepares, saves, evaluates and says that training is done
    evaluator  evaluate each checkpoint until training is done
"""

from __future__ import annotations

import contextlib
import functools
import threading

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.coordination import agreement, blackboard
from ps_train.errors import ConfigError, StoppedError
from ps_train.storage import checkpoints, folder_record
from ps_train.tasks import evaluator, ps, server, setup, worker
from ps_train.tasks.settings import worker_settings
from ps_train.tasks.setup import LoadedPlugins
from ps_train.training import evaluation, reporting


def run(config: Config, cluster: Cluster, stop: threading.Event) -> None:
    """Runs this task from start to end.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    setup.prepare_tensorflow(config.tf_log)
    setup.share_cores(cluster)
    plugins = setup.load_plugins(config)
    report = reporting.create(config.log_format, cluster)
    report.task()
    if cluster.job == "ps":
        _refuse_existing_servers(config, cluster)
        _serve_until_done(config, cluster, stop)
    elif cluster.job == "evaluator":
        _evaluate_until_done(config, cluster, plugins, report, stop)
    else:
        worker.WorkerTask(worker_settings(config, cluster), cluster, plugins, report, stop).run()


def serve(config: Config, cluster: Cluster, stop: threading.Event) -> None:
    """Serves one client after another that runs with --existing_servers, until told to stop.

    Raises:
      StoppedError: told to stop.
    """
    setup.prepare_tensorflow(config.tf_log)
    setup.share_cores(cluster)
    target = server.start(cluster, config.num_gpus)
    if cluster.job == "ps":
        with contextlib.closing(blackboard.for_ps(target, cluster)) as board:
            board.put_up()
            with ps.running_clock(board):
                stop.wait()
    stop.wait()
    raise StoppedError(f"{cluster.task.name} was told to stop")


def download(config: Config, cluster: Cluster | None) -> None:
    """Fetches and checks the dataset's files; of a worker that is named, builds the graphs too, to find its faults.

    Raises:
      ConfigError: the train_dir that was given has another training.
      PsTrainError: a flag, a plug-in or a file is wrong.
      Exception: whatever a plug-in raises.
    """
    setup.prepare_tensorflow(config.tf_log)
    plugins = setup.load_plugins(config)
    plugins.dataset.prepare(plugins.dataset_params)
    if "train_dir" in config.given and checkpoints.paths(config.train_dir):
        folder_record.check(config.train_dir, folder_record.describe(*plugins))
    if cluster is not None and cluster.job == "worker":
        worker.check_graphs(worker_settings(config, cluster), cluster, plugins)


def _serve_until_done(config: Config, cluster: Cluster, stop: threading.Event) -> None:
    target = server.start(cluster, config.num_gpus)
    timeouts = config.timeouts
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(contextlib.closing(blackboard.for_ps(target, cluster, timeouts.heartbeat_secs)))
        stack.enter_context(ps.running_clock(own))

        @functools.cache  # an error is not kept: it may be found later
        def other_ps() -> blackboard.Blackboard:
            return stack.enter_context(contextlib.closing(blackboard.of_first_ps(
                own, cluster, timeouts.heartbeat_secs)))

        @functools.cache
        def find_first() -> blackboard.Blackboard:
            if cluster.index == 0:
                return own
            agreement.check_ps(cluster, other_ps().first_ps)
            return other_ps()

        ps.PsTask(own, find_first, timeouts, stop).run()


def _evaluate_until_done(
    config: Config, cluster: Cluster, plugins: LoadedPlugins, report: reporting.Report, stop: threading.Event
) -> None:
    plugins.dataset.prepare(plugins.dataset_params)
    with contextlib.closing(blackboard.for_client(cluster)) as board:
        evaluator.evaluate_until_done(
            evaluation.Evaluator(*plugins), config.train_dir, board, config.timeouts, stop, report)


def _refuse_existing_servers(config: Config, cluster: Cluster) -> None:
    if config.existing_servers:
        raise ConfigError(f"--existing_servers: {cluster.task.name} has nothing to do, since its server runs already; "
                          "start the workers only")
