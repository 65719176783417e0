"""One process from start to end: start reading here.

    ps         serve until the chief says that training is done
    worker     train; the chief besides prepares, saves, evaluates and says that training is done
    evaluator  evaluate each checkpoint until training is done
"""

from __future__ import annotations

import contextlib
import functools
import threading

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.coordination import agreement, blackboard
from ps_train.errors import ConfigError, StoppedError
from ps_train.storage import checkpoints, folder_record
from ps_train.tasks import ps, server, worker
from ps_train.tasks.worker import Plugins
from ps_train.training import evaluation, reporting


def run(config: Config, cluster: Cluster, stop: threading.Event) -> None:
    """Lives the life of this task.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    prepare_tensorflow(config.tf_log)
    server.share_cores(cluster)
    plugins = worker.load_plugins(config)
    report = reporting.of(config.log_format, cluster)
    report.task()
    if cluster.job == "ps":
        _refuse_existing_servers(config, cluster)
        _serve_until_done(config, cluster, stop)
    elif cluster.job == "evaluator":
        _evaluate_until_done(config, cluster, plugins, report, stop)
    else:
        worker.work(config, cluster, plugins, report, stop)


def serve(config: Config, cluster: Cluster, stop: threading.Event) -> None:
    """Serves one client after another that runs with --existing_servers, until told to stop.

    Raises:
      StoppedError: told to stop.
    """
    prepare_tensorflow(config.tf_log)
    server.share_cores(cluster)
    target = server.start(cluster, config.num_gpus)
    if cluster.job == "ps":
        with contextlib.closing(blackboard.of_ps(target, cluster)) as board:
            board.put_up()
            with ps.keeping_time(board):
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
    prepare_tensorflow(config.tf_log)
    plugins = worker.load_plugins(config)
    plugins.dataset.prepare(plugins.dataset_params)
    if "train_dir" in config.given and checkpoints.paths(config.train_dir):
        folder_record.check(config.train_dir, folder_record.describe(*plugins))
    if cluster is not None and cluster.job == "worker":
        worker.check_graphs(config, cluster, plugins)


def prepare_tensorflow(tf_log: bool) -> None:
    """Puts TensorFlow into the mode that TF1 graph code expects, for this whole process."""
    tf.disable_v2_behavior()
    tf.enable_resource_variables()  # a worker then never reads a parameter that is half updated
    tf.logging.set_verbosity(tf.logging.INFO if tf_log else tf.logging.ERROR)


def _serve_until_done(config: Config, cluster: Cluster, stop: threading.Event) -> None:
    target = server.start(cluster, config.num_gpus)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(contextlib.closing(blackboard.of_ps(target, cluster)))
        stack.enter_context(ps.keeping_time(own))

        @functools.cache  # an error is not kept: it may be found later
        def other_ps() -> blackboard.Blackboard:
            return stack.enter_context(contextlib.closing(blackboard.of_other_ps(own, cluster)))

        @functools.cache
        def find_first() -> blackboard.Blackboard:
            if cluster.index == 0:
                return own
            agreement.check_ps(cluster, other_ps().first_ps)
            return other_ps()

        addresses = {cluster.number_of(worker): worker.address for worker in cluster.workers}
        ps.Life(own, find_first, addresses, config.beat_timeout_secs, config.idle_timeout_secs,
                config.stop_timeout_secs, stop).run()


def _evaluate_until_done(
    config: Config, cluster: Cluster, plugins: Plugins, report: reporting.Report, stop: threading.Event
) -> None:
    plugins.dataset.prepare(plugins.dataset_params)
    with contextlib.closing(blackboard.of_client(cluster)) as board:
        evaluation.follow(evaluation.Evaluator(*plugins), config.train_dir, board, config.start_timeout_secs,
                        config.eval_timeout_secs, stop, report)


def _refuse_existing_servers(config: Config, cluster: Cluster) -> None:
    if config.existing_servers:
        raise ConfigError(f"--existing_servers: {cluster.task.name} has nothing to do, since its server runs already; "
                          "start the workers only")
