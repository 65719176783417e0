"""A whole cluster in one process, to test a model with: every task runs in a thread, wired as in its own process.

    result = testing.run_in_threads("mymodel", "mydata", train_dir=tmp_path, num_workers=2, train_steps=200)
    assert result.evaluation.metrics["accuracy"] > 0.9
    assert testing.read_checkpoint(tmp_path)["weights"].shape == (784, 10)

TensorFlow cannot stop a server, so each run leaves its servers, with their threads and memory, in the process.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ps_train.cluster import ports
from ps_train.cluster.resolve import find_cluster
from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.errors import ClusterLostError, PsTrainError, StoppedError
from ps_train.launch.machines import hold_ports
from ps_train.runtime import installed, threads

if TYPE_CHECKING:
    import numpy as np

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


class _TaskThread(threading.Thread):
    """One task, which puts itself into a queue when it has ended."""

    def __init__(self, config: Config, cluster: Cluster, stop: threading.Event, ended: queue.Queue) -> None:
        super().__init__(daemon=True, name=cluster.task.name)
        self._config, self._cluster, self._stop_event, self._ended = config, cluster, stop, ended
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Runs the task; its error is kept for `run_in_threads`."""
        from ps_train.tasks import run  # noqa: PLC0415 (TensorFlow takes seconds; wrong arguments should not)

        try:
            self.result = run.run_task(self._config, self._cluster, self._stop_event)
        except BaseException as error:  # noqa: BLE001 (raised by run_in_threads)
            self.error = error
        finally:
            self._ended.put(self)


def run_in_threads(
    model: str, dataset: str, *, train_dir: str | os.PathLike, num_ps: int = 1, num_workers: int = 2,
    timeout_secs: float = 300.0, **flags: Any,
) -> ClusterResult:
    """Trains to the end with a cluster in this process, and returns the outcome of its workers.

    TensorFlow is put into TF1 mode for the whole process.

    Args:
      model: as --model.
      dataset: as --dataset.
      train_dir: folder of checkpoints, or its URL; training continues from the newest one there.
      num_ps: parameter servers.
      num_workers: workers, including the chief.
      timeout_secs: time for all of it.
      flags: flags of a task by name, such as `train_steps=200` or `sync_replicas=True`.

    Raises:
      TypeError: a flag does not exist.
      ConfigError: the value of a flag is not allowed.
      ClusterLostError: the tasks did not end in time; the message names those that still ran.
      Exception: that of the first task at fault; a PsTrainError has the exit code.
    """
    installed.prefer_tf_keras()
    installed.lift_memory_limit()
    free_ports = hold_ports(num_ps + num_workers, _FIRST_PORT)
    hosts = [f"localhost:{held.getsockname()[1]}" for held in free_ports]
    folder = str(train_dir) if "://" in str(train_dir) else os.path.abspath(train_dir)
    common = {"model": model, "dataset": dataset, "train_dir": folder,
              "ps_hosts": ",".join(hosts[:num_ps]), "worker_hosts": ",".join(hosts[num_ps:]), **flags}
    configs = [Config(**common, job_name=job, task_index=index, given=frozenset(common))
               for job, count in (("ps", num_ps), ("worker", num_workers)) for index in range(count)]
    for held in free_ports:
        ports.let_server_bind(held)  # another process may look for ports now
    results = _run(configs, timeout_secs)[num_ps:]
    return ClusterResult([result.outcome for result in results], results[0].evaluation)


def _run(configs: Sequence[Config], timeout_secs: float) -> list[Any]:
    """Runs the tasks, and returns what each has returned."""
    stop, ended = threading.Event(), queue.Queue()
    tasks = [_TaskThread(config, _cluster(config), stop, ended) for config in configs]
    for task in tasks:
        task.start()
    try:
        _wait(tasks, stop, ended, timeout_secs, stop_timeout_secs=configs[0].stop_timeout_secs)
    finally:
        # A process that ends while a thread is inside TensorFlow is aborted.
        threads.join_named(threads.CLOSING, timeout_secs=_CLOSE_SECS)
    return [task.result for task in tasks]


def read_checkpoint(train_dir: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns name -> value of each variable in the newest checkpoint of a folder.

    Raises:
      FileNotFoundError: the folder has no checkpoint.
    """
    import tensorflow.compat.v1 as tf  # noqa: PLC0415 (as above)

    path = tf.train.latest_checkpoint(str(train_dir))
    if path is None:
        raise FileNotFoundError(f"{train_dir} has no checkpoint")
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def _cluster(config: Config) -> Cluster:
    return find_cluster(ps_hosts=config.ps_hosts, worker_hosts=config.worker_hosts, job_name=config.job_name,
                        task_index=config.task_index)


def _wait(
    tasks: Sequence[_TaskThread], stop: threading.Event, ended: queue.Queue, timeout_secs: float, *,
    stop_timeout_secs: float,
) -> None:
    """Waits until all tasks have ended; after the first failure or when time is over, stops the others and raises."""
    running = _until_ended(set(tasks), ended, timeout_secs)
    overdue = sorted(task.name for task in running if all(task.error is None for task in tasks))
    stop.set()
    _until_ended(running, ended, stop_timeout_secs, goes_on_after_failure=True)
    failed = sorted((task for task in tasks if task.error is not None), key=lambda task: _consequence(task.error))
    if overdue:
        raise ClusterLostError("timed_out", f"waited {timeout_secs:g} s for {', '.join(overdue)}, which still ran; "
                               "give run_in_threads a longer time-out, or fewer steps")
    if failed:
        raise failed[0].error


def _until_ended(
    running: set[_TaskThread], ended: queue.Queue, timeout_secs: float, *, goes_on_after_failure: bool = False
) -> set[_TaskThread]:
    """Waits until all tasks have ended, one has failed, or the time is over; returns those that still run."""
    end_secs = time.monotonic() + timeout_secs
    while running:
        try:
            task = ended.get(timeout=max(0.0, end_secs - time.monotonic()))
        except queue.Empty:
            break
        running = running - {task}
        if task.error is not None and not goes_on_after_failure:
            break
    return running


def _consequence(error: BaseException) -> int:
    """Ranks an error: 0 may be the cause, 1 is a loss that may follow from it, 2 is a task that was then stopped."""
    if isinstance(error, StoppedError):
        return 2
    return int(isinstance(error, PsTrainError) and error.exit_code >= 128)
