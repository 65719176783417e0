"""The tasks that a model names by `tf.device`, and what that means where its graph is built.

    on a worker               a ps is that ps; a worker, whichever it names, is this one: each has its own replica
    on a worker's own copy    (local steps) no ps is named: the whole replica computes on the worker
    in one process alone      (evaluation, conversion) no task is named; only what follows it, such as "/gpu:0", stays

TensorFlow applies `tf.device` from the inside out. A device function on the outside therefore has the last word.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.cluster.tf_config import CHIEF_JOBS
from ps_train.errors import UserCodeError

_WORKER_JOBS = (*CHIEF_JOBS, "worker")
_log = logging.getLogger(__name__)


def ignoring_tasks() -> Any:
    """Ignores all tasks that are named inside it."""
    return tf.device(lambda op: _without_task(op.device))


def ignoring_ps() -> Any:
    """Ignores the parameter servers that are named inside it."""
    return tf.device(lambda op: _without_task(op.device) if _spec(op.device).job == "ps" else op.device)


@contextlib.contextmanager
def on_this_worker(cluster: Cluster) -> Iterator[None]:
    """Takes every worker that is named inside it for this one, and says so once."""
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
        _log.warning("the model names %s by tf.device; each worker has a replica of its own, so here that is %s",
                     ", ".join(sorted(named)), cluster.task.name)


def check(graph: tf.Graph, cluster: Cluster) -> None:
    """Refuses tasks that the cluster does not have, and parameters that the workers would not share.

    Raises:
      UserCodeError: the model names such a task, or puts a global variable on a worker.
    """
    known = {(task.job, task.index) for task in cluster.peers}
    for op in graph.get_operations():
        spec = _spec(op.device)
        if spec.job is not None and (spec.job, spec.task) not in known:
            raise UserCodeError(f'model_fn puts {op.name} on "/job:{spec.job}/task:{spec.task}" by tf.device; the '
                                f"cluster has {', '.join(task.device for task in cluster.ps)} and the workers; name "
                                "one of these, or leave the device out, and --placement chooses the ps")
    for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
        if _spec(variable.device).job != "ps":
            raise UserCodeError(f"model_fn puts the variable {variable.op.name} on a worker by tf.device, where the "
                                "others cannot share it; name a ps, or leave the device out")


def _spec(device: str) -> tf.DeviceSpec:
    return tf.DeviceSpec.from_string(device or "")


def _without_task(device: str) -> str:
    return _spec(device).replace(job=None, replica=None, task=None).to_string()


def gpu_index(cluster: Cluster, num_gpus: int | None) -> int | None:
    """Returns the number of the GPU that this task uses, or None for none."""
    count = 0 if cluster.job == "ps" else usable_gpus(num_gpus)
    return cluster.worker_number % count if count else None


def usable_gpus(num_gpus: int | None) -> int:
    """Returns how many GPUs of this machine may be used: those that were asked for, as far as they are there."""
    if num_gpus == 0:
        return 0
    found = len(tf.config.list_physical_devices("GPU"))
    return found if num_gpus is None else min(num_gpus, found)


def tell_devices(who: str, devices: Sequence[str], num_gpus: int | None) -> None:
    """Says on which devices a task computes, and warns where GPUs were asked for that are not there.

    Args:
      who: the task's name.
      devices: such as `GPU:1`, by their numbers on this machine.
      num_gpus: how many were asked for, None where nobody did.
    """
    _log.info("%s computes on %s", who, ", ".join(f"/device:{device}" for device in devices))
    found = usable_gpus(num_gpus)
    if num_gpus is not None and found < num_gpus:
        _log.warning("--num_gpus=%d: TensorFlow finds %s on this machine; does `nvidia-smi` show more, does "
                     "CUDA_VISIBLE_DEVICES hide them, and is TensorFlow installed with CUDA (tensorflow[and-cuda])?",
                     num_gpus, f"only {found} GPU{'s' * (found > 1)}" if found else "no GPU")
