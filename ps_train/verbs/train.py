"""The verbs `train` and `serve`: one task of a cluster."""

from __future__ import annotations

import os
import types
from collections.abc import Mapping, Sequence

from ps_train.cluster import resolve, spec
from ps_train.config import flag_help
from ps_train.config import task as config
from ps_train.config.folders import check_data_dir
from ps_train.errors import ConfigError, Problem, refuse
from ps_train.parts import table
from ps_train.runtime import installed, logs, signals
from ps_train.verbs.verb import Verb


def _train(argv: Sequence[str]) -> None:
    task_config = config.parse_task(argv)
    if task_config.download_only:
        check_data_dir(task_config)
        cluster = _resolve(task_config) if "job_name" in task_config.given else None
        _, without_training = _import_tasks(task_config, needs_gpu=False)
        without_training.download(task_config, cluster)
        return
    cluster = _resolve(task_config)
    if cluster.job != "ps":
        check_data_dir(task_config)
    with signals.on_signals() as stop:
        task, _ = _import_tasks(task_config, needs_gpu=cluster.job != "ps" and task_config.num_gpus != 0)
        signals.run_until_stopped(
            lambda: task.run_task(task_config, cluster, stop), stop, task_config.stop_timeout_secs)


def _serve(argv: Sequence[str]) -> None:
    task_config = parse_serve(argv)
    cluster = _resolve(task_config)
    if cluster.job == "evaluator":
        raise ConfigError("evaluator_without_server", f"{cluster.task.name} has no server; start it without `serve`")
    if cluster.job != "ps" and getattr(task_config, "health_port", None) is not None:
        raise ConfigError("flag_of_another_verb", f"--health_port: under `serve` only a ps takes it, and this is "
                          f"{cluster.task.name}; leave it out, or give it to the worker that uses this server")
    with signals.on_signals() as stop:
        _, task = _import_tasks(task_config, needs_gpu=cluster.job != "ps" and task_config.num_gpus != 0)
        signals.run_until_stopped(lambda: task.serve(task_config, cluster, stop), stop, task_config.stop_timeout_secs)


def parse_serve(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> config.Config:
    """Returns the Config of a server, like `config.task.parse_task`.

    Raises:
      ConfigError: the command line is wrong, or gives flags that apply only to a task that trains.
    """
    task_config = config.parse_task(argv, environ)
    refuse([Problem("flag_of_another_verb",
                    f"--{name}: `serve` does not train; leave it out, or give it to the workers")
            for name in ("existing_servers", "download_only") if getattr(task_config, name)])
    return task_config


def find_tf_config(task_config: config.Config, environ: Mapping[str, str]) -> str:
    """Returns the text of TF_CONFIG that a part finds for this task, or else that of the variable.

    Raises:
      ConfigError: the flags ask a part for it, and it cannot find the cluster.
    """
    found = (table.attribute_of(row, *row.cluster.split(":"))(task_config, environ)
             for row in table.TABLE if row.cluster)
    return next(filter(None, found), task_config.tf_config)


def _resolve(task_config: config.Config) -> spec.Cluster:
    cluster = resolve.find_cluster(
        ps_hosts=task_config.ps_hosts,
        worker_hosts=task_config.worker_hosts,
        job_name=task_config.job_name,
        task_index=task_config.task_index,
        tf_config=find_tf_config(task_config, os.environ),
        given=task_config.given,
        elastic=task_config.elastic,
    )
    if task_config.log_format == "json":
        logs.setup_json(cluster.task.name)
    return cluster


def _import_tasks(task_config: config.Config, *, needs_gpu: bool) -> tuple[types.ModuleType, types.ModuleType]:
    """Imports and returns tasks/run.py and tasks/without_training.py, and with them TensorFlow."""
    installed.import_tensorflow(needs_gpu=needs_gpu, tf_log=task_config.tf_log)
    from ps_train.tasks import run, without_training  # noqa: PLC0415 (seconds; a wrong flag should not take them)

    return run, without_training


def _flags_help(_: Sequence[str]) -> str:
    return flag_help.help_text(config.Config)


TRAIN = Verb(
    usage="""\
  ps_train train --job_name=JOB --task_index=N --ps_hosts=... --worker_hosts=...
           Run one task of a cluster: a ps serves, a worker trains.""",
    run=_train, flags_help=_flags_help, has_log=True)
SERVE = Verb(
    usage="""\
  ps_train serve --job_name=JOB --task_index=N --ps_hosts=... --worker_hosts=...
           Run a server for workers that use --existing_servers.""",
    run=_serve, flags_help=_flags_help, has_log=True)
