"""Reads device strings, and decides which device a task in a model's `tf.device` stands for.

    in a worker's graph                  a ps is that ps; any worker is this worker, as each builds its own replica
    for local steps                      a ps is ignored: the whole replica computes on the worker
    in evaluation and conversion         every task is ignored; the rest of the device, such as "/gpu:0", is kept
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses
from ps_train.cluster.spec import CHIEF_JOBS, Cluster
from ps_train.errors import UserCodeError

_WORKER_JOBS = (*CHIEF_JOBS, "worker")
_log = logging.getLogger(__name__)


def task_of(device: str) -> tuple[str | None, int | None]:
    """Returns the job and the index of the task in a device, such as ("ps", 1) of "/job:ps/task:1/cpu:0"."""
    spec = _spec(device)
    return spec.job, spec.task


def is_on_ps(device: str) -> bool:
    """Returns whether a device belongs to a parameter server."""
    return _spec(device).job == "ps"


# TensorFlow applies `tf.device` from the inside out, so the device functions of the next three see, and may change, the
# devices that the model names inside of them.


def ignoring_tasks() -> Any:
    """Returns a context in which all tasks in devices are ignored."""
    return tf.device(lambda op: _without_task(op.device))


def ignoring_ps() -> Any:
    """Returns a context in which the parameter servers in devices are ignored."""
    return tf.device(lambda op: _without_task(op.device) if is_on_ps(op.device) else op.device)


@contextlib.contextmanager
def replacing_workers(cluster: Cluster) -> Iterator[None]:
    """Replaces every worker in the devices inside this context by this worker, and warns once if there were others."""
    named_workers: set[str] = set()

    def place(op: tf.Operation) -> str:
        spec = _spec(op.device)
        if spec.job not in _WORKER_JOBS or (spec.job, spec.task) == (cluster.job, cluster.index):
            return op.device
        named_workers.add(f"/job:{spec.job}" if spec.task is None else f"/job:{spec.job}/task:{spec.task}")
        return spec.replace(job=cluster.job, task=cluster.index).to_string()

    with tf.device(place):
        yield
    if named_workers:
        _log.warning("the model names %s by tf.device; each worker has its own replica, so here that is %s",
                     ", ".join(sorted(named_workers)), cluster.task.name)


def check_devices(graph: tf.Graph, cluster: Cluster) -> None:
    """Raises UserCodeError if the model names a task that the cluster lacks, or puts a global variable on a worker."""
    known = {(task.job, task.index) for task in cluster.peers}
    for op in graph.get_operations():
        job, index = task_of(op.device)
        if job is not None and (job, index) not in known:
            raise UserCodeError("device_not_in_cluster", f"model_fn puts {op.name} on /job:{job}/task:{index} by "
                                f"tf.device; the cluster has {', '.join(task.device for task in cluster.ps)} and the "
                                "workers; name one of these, or omit the device, and --placement chooses the ps")
    for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
        if not is_on_ps(variable.device):
            raise UserCodeError("variable_on_worker", f"model_fn puts the variable {variable.op.name} on a worker by "
                                "tf.device, where the others cannot share it; name a ps, or omit the device")


def _spec(device: str) -> tf.DeviceSpec:
    return tf.DeviceSpec.from_string(device or "")


def _without_task(device: str) -> str:
    return _spec(device).replace(job=None, replica=None, task=None).to_string()


def gpu_index(cluster: Cluster, num_gpus: int | None) -> int | None:
    """Returns the number of the GPU of this task, or None if it uses none."""
    count = 0 if cluster.job == "ps" else usable_gpus(num_gpus)
    return number_on_machine(cluster) % count if count else None


def number_on_machine(cluster: Cluster) -> int:
    """Returns the number of this task among the workers of its host, or among all workers if it is alone there.

    Workers of containers on one machine have hosts of their own; their numbers keep them apart.
    """
    host = addresses.host_of(cluster.task.address)
    here = [worker for worker in cluster.workers if addresses.host_of(worker.address) == host]
    return here.index(cluster.task) if cluster.task in here and len(here) > 1 else cluster.worker_number


def usable_gpus(num_gpus: int | None) -> int:
    """Returns how many GPUs of this machine may be used: at most `num_gpus`, or all if it is None."""
    if num_gpus == 0:
        return 0
    num_found = len(tf.config.list_physical_devices("GPU"))
    return num_found if num_gpus is None else min(num_gpus, num_found)


def log_devices(task: str, devices: Sequence[str], num_gpus: int | None) -> None:
    """Logs the devices, such as `GPU:1`, on which a task computes; warns if this machine has fewer than --num_gpus."""
    _log.info("%s computes on %s", task, ", ".join(f"/device:{device}" for device in devices))
    num_found = usable_gpus(num_gpus)
    if num_gpus is not None and num_found < num_gpus:
        _log.warning("--num_gpus=%d: TensorFlow finds %s on this machine; does `nvidia-smi` show more, does "
                     "CUDA_VISIBLE_DEVICES hide them, and is TensorFlow installed with CUDA (tensorflow[and-cuda])?",
                     num_gpus, f"only {num_found} GPU{'s' * (num_found > 1)}" if num_found else "no GPU")
