"""`replica_device_setter` that balances the bytes on the ps, where TensorFlow's assigns variables in turn."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.graph.devices import task_of
from ps_train.graph.placement import LeastBytes

_tensorflow_setter = tf.train.replica_device_setter


def replica_device_setter(
    ps_tasks: int = 0, ps_device: str = "/job:ps", worker_device: str = "/job:worker", merge_devices: bool = True,
    cluster: Any = None, ps_ops: Any = None, ps_strategy: Callable[[tf.Operation], int] | None = None,
) -> Any:
    """Returns a device function; the parameters are those of `tf.compat.v1.train.replica_device_setter`.

    Args:
      ps_strategy: by default each variable goes to the ps with the fewest bytes so far. Every worker must create its
        variables in the same order, as with TensorFlow's.
    """
    if cluster is not None:
        job = task_of(ps_device)[0] or "ps"
        ps_tasks = len(tf.train.ClusterSpec(cluster).as_dict().get(job, ()))
    strategy = ps_strategy or (LeastBytes(ps_tasks) if ps_tasks else None)
    return _tensorflow_setter(ps_tasks=ps_tasks, ps_device=ps_device, worker_device=worker_device,
                              merge_devices=merge_devices, cluster=cluster, ps_ops=ps_ops, ps_strategy=strategy)
