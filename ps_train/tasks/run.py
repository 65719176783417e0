"""Runs one task from start to end. Start reading here.

    ps         serve until the chief announces that training is done
    worker     train; the chief also prepares, saves, evaluates and announces that training is done
    evaluator  evaluate each checkpoint until training is done
"""

from __future__ import annotations

import contextlib
import functools
import threading

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.coordination import agreement, blackboard
from ps_train.errors import ConfigError
from ps_train.part import Parts
from ps_train.parts import table
from ps_train.tasks import evaluator, ps, setup, worker
from ps_train.tasks.setup import LoadedPlugins, worker_settings
from ps_train.tasks.worker import WorkerResult
from ps_train.training import evaluation, reporting


def run_task(config: Config, cluster: Cluster, stop: threading.Event) -> WorkerResult | None:
    """Runs this task from start to end. Returns what a worker did, and None for any other task.

    Raises:
      PsTrainError: what went wrong, with its exit code.
    """
    setup.prepare_tensorflow(config.tf_log)
    setup.share_machine(cluster, config.num_gpus)
    plugins = setup.load_plugins(config)
    report = reporting.create(config.log_format, cluster)
    report.task()
    with table.located(config, cluster, stop) as located_config:
        return _run_role(located_config, cluster, plugins, report, stop)


def _run_role(
    config: Config, cluster: Cluster, plugins: LoadedPlugins, report: reporting.Report, stop: threading.Event
) -> WorkerResult | None:
    parts = table.make_parts(config, cluster)
    with parts.around_task(stop):
        if cluster.job == "ps":
            _serve_until_done(config, cluster, stop)
        elif cluster.job == "evaluator":
            _evaluate_until_done(config, cluster, plugins, report, parts, stop)
        else:
            settings = parts.adjust(worker_settings(config, cluster))
            return worker.WorkerTask(settings, cluster, plugins, report, stop, parts).run()
    return None


def _serve_until_done(config: Config, cluster: Cluster, stop: threading.Event) -> None:
    if config.existing_servers:
        raise ConfigError("task_without_work", f"--existing_servers: {cluster.task.name} has nothing to do, because "
                          "its server already runs; start only the workers")
    target = setup.start(cluster, config.num_gpus)
    timeouts = config.timeouts
    with contextlib.ExitStack() as stack:
        own_board = stack.enter_context(contextlib.closing(blackboard.for_ps(target, cluster, timeouts.heartbeat_secs)))
        stack.enter_context(ps.running_clock(own_board))

        @functools.cache  # an error is not cached: ps 0 may be found later
        def first_ps() -> blackboard.Blackboard:
            return stack.enter_context(contextlib.closing(blackboard.for_first_ps(
                own_board, cluster, timeouts.heartbeat_secs)))

        @functools.cache
        def find_first() -> blackboard.Blackboard:
            if cluster.index == 0:
                return own_board
            agreement.check_ps(cluster, first_ps().first_ps)
            return first_ps()

        worker_addresses = {cluster.number_of(task): task.address for task in cluster.workers}
        ps.PsTask(own_board, find_first, worker_addresses, timeouts, stop, config.train_dir, config.train_steps).run()


def _evaluate_until_done(
    config: Config, cluster: Cluster, plugins: LoadedPlugins, report: reporting.Report, parts: Parts,
    stop: threading.Event
) -> None:
    plugins.dataset.prepare(plugins.dataset_params)
    model_evaluator = evaluation.Evaluator(*plugins)
    with parts.around_evaluations(plugins, model_evaluator, stop), \
            contextlib.closing(blackboard.for_client(cluster)) as board:
        evaluator.evaluate_until_done(model_evaluator, config.train_dir, board, config.timeouts, stop, report, parts)
