"""Reads device strings, and decides what the tasks that a model names by `tf.device` mean.

    in a worker's graph                  a ps is that ps; any worker is this worker, as each builds its own replica
    for local steps                      a ps is ignored: the whole replica computes on the worker
    in evaluation and conversion         every task is ignored; the rest of the device, such as "/gpu:0", counts
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

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


# The next three are device functions. TensorFlow applies `tf.device` from the inside out, so a device function on the
# outside sees, and may change, the devices that the model names inside it.


def ignoring_tasks() -> Any:
    """Returns a context in which all tasks in devices are ignored."""
    return tf.device(lambda op: _without_task(op.device))


def ignoring_ps() -> Any:
    """Returns a context in which the parameter servers in devices are ignored."""
    return tf.device(lambda op: _without_task(op.device) if is_on_ps(op.device) else op.device)


@contextlib.contextmanager
def replacing_workers(cluster: Cluster) -> Iterator[None]:
    """Replaces every worker in the devices inside this context by this worker, and warns once if there were others."""
    named: set[str] = set()

    def place(op: tf.Operation) -> str:
        spec = _spec(op.device)
        if spec.job not in _WORKER_JOBS or (spec.job, spec.task) == (cluster.job, cluster.index):
            return op.device
        named.add(f"/job:{spec.job}" if spec.task is None else f"/job:{spec.job}/task:{spec.task}")
        return spec.replace(job=cluster.job, task=cluster.index).to_string()

    with tf.device(place):
        yield
    if named:
        _log.warning("the model names %s by tf.device; each worker has its own replica, so here that is %s",
                     ", ".join(sorted(named)), cluster.task.name)


def check_devices(graph: tf.Graph, cluster: Cluster) -> None:
    """Checks the devices of a finished graph.

    Raises:
      UserCodeError: the model names a task that the cluster does not have, or puts a global variable on a worker, where
        other workers cannot share it.
    """
    known = {(task.job, task.index) for task in cluster.peers}
    for op in graph.get_operations():
        job, index = task_of(op.device)
        if job is not None and (job, index) not in known:
            raise UserCodeError(f'model_fn puts {op.name} on "/job:{job}/task:{index}" by tf.device; the cluster has '
                                f"{', '.join(task.device for task in cluster.ps)} and the workers; name one of these, "
                                "or leave the device out, and --placement chooses the ps")
    for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
        if not is_on_ps(variable.device):
            raise UserCodeError(f"model_fn puts the variable {variable.op.name} on a worker by tf.device, where the "
                                "others cannot share it; name a ps, or leave the device out")


def _spec(device: str) -> tf.DeviceSpec:
    return tf.DeviceSpec.from_string(device or "")


def _without_task(device: str) -> str:
    return _spec(device).replace(job=None, replica=None, task=None).to_string()


def gpu_index(cluster: Cluster, num_gpus: int | None) -> int | None:
    """Returns the number of the GPU that this task uses, or None if it uses none."""
    count = 0 if cluster.job == "ps" else usable_gpus(num_gpus)
    return cluster.worker_number % count if count else None


def usable_gpus(num_gpus: int | None) -> int:
    """Returns how many GPUs of this machine may be used: at most `num_gpus`, or all if it is None."""
    if num_gpus == 0:
        return 0
    found = len(tf.config.list_physical_devices("GPU"))
    return found if num_gpus is None else min(num_gpus, found)


def tell_devices(who: str, devices: Sequence[str], num_gpus: int | None) -> None:
    """Logs the devices on which a task computes, and warns if this machine has fewer GPUs than --num_gpus.

    Args:
      who: the task's name.
      devices: the devices by their numbers on this machine, such as `GPU:1`.
      num_gpus: the value of --num_gpus, or None if it was not given.
    """
    _log.info("%s computes on %s", who, ", ".join(f"/device:{device}" for device in devices))
    found = usable_gpus(num_gpus)
    if num_gpus is not None and found < num_gpus:
        _log.warning("--num_gpus=%d: TensorFlow finds %s on this machine; does `nvidia-smi` show more, does "
                     "CUDA_VISIBLE_DEVICES hide them, and is TensorFlow installed with CUDA (tensorflow[and-cuda])?",
                     num_gpus, f"only {found} GPU{'s' * (found > 1)}" if found else "no GPU")
