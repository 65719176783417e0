"""A whole cluster in one process: every task runs in a thread, wired as in its own process. For tests of models.

TensorFlow cannot stop a server, so each run leaves its servers, with their threads and memory, in the process.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Sequence
from concurrent import futures
from typing import TYPE_CHECKING, Any, NamedTuple

from ps_train.cluster import ports
from ps_train.cluster.resolve import find_cluster
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ClusterLostError, PsTrainError, StoppedError
from ps_train.launch.command_lines import task_list
from ps_train.launch.machines import hold_ports
from ps_train.runtime import installed, threads

if TYPE_CHECKING:
    from ps_train.runtime.reports import Evaluation
    from ps_train.training.reporting import Outcome

# Far from the defaults of a cluster that may run on this machine. Processes begin at different ports, since a port is
# free for a moment before its server binds it.
_FIRST_PORT = 23000 + os.getpid() % 400 * 20
_CLOSE_SECS = 35.0  # TensorFlow needs 30 s to close a session with a server that is unreachable


class ClusterResult(NamedTuple):
    """The outcome of a cluster.

    Attributes:
      outcomes: what each worker did, the chief first.
      evaluation: the chief's metrics on the held-out data, after the last step.
    """

    outcomes: Sequence[Outcome]
    evaluation: Evaluation


def run_tasks(config: Config, launch_config: LaunchConfig, timeout_secs: float) -> ClusterResult:
    """Trains to the end with a cluster in this process; see `Training.run_in_threads`."""
    installed.prefer_tf_keras()
    installed.prepare_native_code()
    names, num_ps = task_list(launch_config).names, launch_config.num_ps
    free_ports = hold_ports(len(names), _FIRST_PORT)
    hosts = [f"localhost:{held.getsockname()[1]}" for held in free_ports]
    folder = config.train_dir if "://" in config.train_dir else os.path.abspath(config.train_dir)
    placed: dict[str, Any] = {
        "train_dir": folder, "ps_hosts": ",".join(hosts[:num_ps]), "worker_hosts": ",".join(hosts[num_ps:])}
    configs = [dataclasses.replace(config, **placed, job_name=job, task_index=int(index),
                                   given=config.given | placed.keys())
               for job, _, index in (name.partition(":") for name in names)]
    for held in free_ports:
        ports.let_server_bind(held)  # another process may look for ports now
    results = _run(configs, timeout_secs)[num_ps:]
    return ClusterResult([result.outcome for result in results], results[0].evaluation)


def _run(configs: Sequence[Config], timeout_secs: float) -> list[Any]:
    """Runs the tasks, and returns what each has returned; after the first failure, or in the end, stops the others."""
    stop = threading.Event()
    tasks = {_started(config, stop): f"{config.job_name}:{config.task_index}" for config in configs}
    try:
        ended, running = futures.wait(tasks, timeout_secs, futures.FIRST_EXCEPTION)
        overdue = [] if any(task.exception() for task in ended) else sorted(tasks[task] for task in running)
    finally:  # KeyboardInterrupt in a notebook, too
        stop.set()
        ended, _ = futures.wait(tasks, configs[0].stop_timeout_secs)
        # A process that ends while a thread is inside TensorFlow is aborted.
        threads.join_named(threads.CLOSING, timeout_secs=_CLOSE_SECS)
    if overdue:
        raise ClusterLostError("timed_out", f"waited {timeout_secs:g} s for {', '.join(overdue)}, which still ran; "
                               "give run_in_threads a longer time-out, or fewer steps")
    if errors := [error for task in ended if (error := task.exception())]:
        raise min(errors, key=_consequence)
    return [task.result() for task in tasks]


def _started(config: Config, stop: threading.Event) -> futures.Future:
    """Starts a task in a thread that does not keep the process alive."""
    from ps_train.tasks import run  # noqa: PLC0415 (TensorFlow takes seconds; wrong arguments should not)

    cluster = find_cluster(ps_hosts=config.ps_hosts, worker_hosts=config.worker_hosts, job_name=config.job_name,
                           task_index=config.task_index, elastic=config.elastic)
    task: futures.Future = futures.Future()

    def work() -> None:
        try:
            task.set_result(run.run_task(config, cluster, stop))
        except BaseException as error:  # noqa: BLE001 (raised by _run)
            task.set_exception(error)

    threading.Thread(target=work, daemon=True, name=cluster.task.name).start()
    return task


def _consequence(error: BaseException) -> int:
    """Ranks an error: 0 may be the cause, 1 is a loss that may follow from it, 2 is a task that was then stopped."""
    if isinstance(error, StoppedError):
        return 2
    return int(isinstance(error, PsTrainError) and error.exit_code >= 128)
