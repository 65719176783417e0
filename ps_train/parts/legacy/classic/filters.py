"""Which tasks a session talks to: those that its graph names, the ps, and itself. It waits for no other.

Without device filters a session waits without bound for every task of the cluster (docs/decisions/sessions.md).
"""

from __future__ import annotations

from collections.abc import Collection

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.graph.devices import task_of


def filters_of(graph: tf.Graph, cluster: Cluster) -> list[str]:
    """Returns the device filters of a session of this task; [] if the graph has no operation yet."""
    operations = graph.get_operations()
    if not operations:
        return []
    named = {device for device in map(_task_device, {operation.device for operation in operations}) if device}
    return sorted(named | {cluster.task.device} | {task.device for task in cluster.ps})


def _task_device(device: str) -> str:
    job, index = task_of(device)
    if job is None:
        return ""
    return f"/job:{job}" if index is None else f"/job:{job}/task:{index}"


def with_filters(config: tf.ConfigProto | None, filters: Collection[str]) -> tf.ConfigProto:
    """Returns session options with the filters, unless the script has given filters of its own."""
    merged = tf.ConfigProto(allow_soft_placement=True)
    if config is not None:
        merged.CopyFrom(config)
    if not merged.device_filters:
        merged.device_filters.extend(filters)
    return merged
