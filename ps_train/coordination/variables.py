"""The variables that the blackboard consists of, made with raw operations under fixed names.

So any graph can name them, and no Saver, no readiness check and no `tf.global_variables()` sees them. Each function
adds to the current graph, for the current device: `with tf.device(ps.device)` around it says whose note it is.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

MAX_WORKERS = 1024  # so that no task needs to know how many workers there are
MAX_PS = 1024
_EVERY_PS = {
    "state": ([], tf.int64),
    "incarnation": ([], tf.int64),
    "first_ps": ([], tf.string),
    "told": ([], tf.string),  # of cluster/description.py: what this ps was told of the cluster
    "mismatch": ([], tf.string),  # of agreement.py: how two tasks were told of different clusters, or ""
}
_FIRST_PS = {
    "clock": ([], tf.float64),
    "prepared": ([MAX_PS], tf.int64),
    "claims": ([MAX_WORKERS], tf.int64),
    "beats": ([MAX_WORKERS], tf.float64),
    "steps": ([MAX_WORKERS], tf.int64),
    "local_steps": ([MAX_WORKERS], tf.int64),
    "finished": ([MAX_WORKERS], tf.int64),
    "joined": ([MAX_WORKERS], tf.int64),  # of liveness.py: the claim of the process that has trained last
    "sharing": ([MAX_WORKERS], tf.int64),  # of liveness.py: among how many each one's last round was when it began
    "fingerprint": ([], tf.string),
    "paces": ([MAX_WORKERS], tf.int64),  # of updates/staleness.py
    "taken": ([MAX_WORKERS], tf.int64),  # updates/unrolled/steps.py: of each worker the steps of a session run so far
    # Sync, see updates/sync/aggregation.py: the gradients an update waits for and whether one is being applied; of each
    # worker the global step that its next gradient is for, how many it has pushed for that, and the global step that
    # it waits for; the gradients that are in no update, or not yet.
    "required": ([], tf.int64),
    "updating": ([], tf.int64),
    "computed_for": ([MAX_WORKERS], tf.int64),
    "pushed": ([MAX_WORKERS], tf.int64),
    "awaited": ([MAX_WORKERS], tf.int64),
    "unused": ([], tf.int64),
    "over": ([], tf.int64),  # of updates/sync/standalone.py: 1 once nobody makes updates any more
}
_ALL = {**_EVERY_PS, **_FIRST_PS}


def read(name: str) -> tf.Tensor:
    """Returns the value of a note."""
    return tf.raw_ops.ReadVariableOp(resource=_handle(name), dtype=_ALL[name][1])


def write(name: str, value: Any) -> tf.Operation:
    """Replaces a note."""
    dtype = _ALL[name][1]
    return tf.raw_ops.AssignVariableOp(
        resource=_handle(name), value=value if dtype == tf.string else tf.cast(value, dtype))


def add(name: str, value: Any) -> tf.Operation:
    """Adds to a note of one number."""
    return tf.raw_ops.AssignAddVariableOp(resource=_handle(name), value=tf.cast(value, _ALL[name][1]))


def write_element(name: str, index: Any, value: Any) -> tf.Operation:
    """Replaces one element of a note."""
    return tf.raw_ops.ResourceScatterUpdate(
        resource=_handle(name), indices=index, updates=tf.cast(value, _ALL[name][1]))


def add_element(name: str, index: Any, value: Any) -> tf.Operation:
    """Adds to one element of a note."""
    return tf.raw_ops.ResourceScatterAdd(
        resource=_handle(name), indices=index, updates=tf.cast(value, _ALL[name][1]))


def clear(name: str) -> tf.Operation:
    """Replaces a note by zeros, or by an empty text."""
    return write(name, tf.zeros(*_ALL[name]))


def clear_first_ps() -> list[tf.Operation]:
    """Clears what is on the first ps only."""
    return [clear(name) for name in _FIRST_PS]


def exists(name: str) -> tf.Tensor:
    """Returns whether a note was ever written, bool scalar."""
    return tf.raw_ops.VarIsInitializedOp(resource=_handle(name))


def _handle(name: str) -> tf.Tensor:
    shape, dtype = _ALL[name]
    return tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=f"ps_train/{name}", container="")
