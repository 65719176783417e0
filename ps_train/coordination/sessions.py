"""What every TensorFlow session needs when peers come and go: its options, its end, and what its errors mean."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Task

# Cancelled: what a step was waiting for when its session was lost.
_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.CancelledError)
_LOST_AMONG_OTHERS = re.compile(r"^(ABORTED|UNAVAILABLE|DEADLINE_EXCEEDED): ", re.MULTILINE)


def options(tasks: Sequence[Task], is_elastic: bool) -> tf.ConfigProto:
    """Returns the options of a session that talks to these tasks and to no other: it waits for none of the others.

    Args:
      tasks: the one whose server the session is made at must be among them.
      is_elastic: the servers know only themselves; then the session brings the addresses. With its state shared, all
        sessions find the same variables (tensorflow/core/distributed_runtime/session_mgr.cc).
    """
    found = tf.ConfigProto(device_filters=[task.device for task in tasks], allow_soft_placement=True)
    if is_elastic:
        addresses: dict[str, dict[int, str]] = {}
        for task in tasks:
            addresses.setdefault(task.job, {})[task.index] = task.address
        found.cluster_def.CopyFrom(tf.train.ClusterSpec(addresses).as_cluster_def())
        found.experimental.share_session_state_in_clusterspec_propagation = True
    return found


def close_in_background(session: tf.Session) -> threading.Thread:
    """Closes a session in a daemon thread, which it returns: after a peer died, it stalls 30 s (client/session.py)."""
    thread = threading.Thread(target=_close, args=(session,), daemon=True, name="close session")
    thread.start()
    return thread


def _close(session: tf.Session) -> None:
    try:
        session.close()
    except tf.errors.OpError:  # the peer is gone, and with it what there was to close
        return


def is_lost(error: tf.errors.OpError) -> bool:
    """Tells whether an error means that a ps is gone or frozen, or its variables are, and not a fault of the user."""
    if isinstance(error, _LOST):
        return True
    # Of a step that failed at several places TensorFlow raises one error, of any type, that lists the others.
    if _LOST_AMONG_OTHERS.search(error.message):
        return True
    # A ps that came back empty: reading says the first, updating the second (kernels/resource_variable_ops.cc).
    is_variable = "Could not find variable" in error.message or "Resource" in error.message
    return is_variable and isinstance(error, (tf.errors.FailedPreconditionError, tf.errors.NotFoundError))
