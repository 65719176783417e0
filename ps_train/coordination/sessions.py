"""TensorFlow sessions with tasks that come and go: session options, closing, and the meaning of an error.

The reasons: docs/decisions/sessions.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Task
from ps_train.coordination import terms
from ps_train.errors import ClusterLostError
from ps_train.runtime import clock, threads, waits

# CancelledError: the error of an operation that a step was waiting for when its session was lost.
_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.CancelledError)
_ANSWER_SECS = 5.0  # beyond the time-out of a call
_LOST_AMONG_OTHERS = re.compile(r"^(ABORTED|UNAVAILABLE|DEADLINE_EXCEEDED): ", re.MULTILINE)


def options(tasks: Sequence[Task], is_elastic: bool) -> tf.ConfigProto:
    """Returns the options of a session that uses only these tasks, and waits for no other.

    Args:
      tasks: must include the task at whose server the session is opened.
      is_elastic: whether the servers know only themselves, so the session must bring the addresses.
    """
    config = tf.ConfigProto(device_filters=[task.device for task in tasks], allow_soft_placement=True)
    if is_elastic:
        addresses: dict[str, dict[int, str]] = {}
        for task in tasks:
            addresses.setdefault(task.job, {})[task.index] = task.address
        config.cluster_def.CopyFrom(tf.train.ClusterSpec(addresses).as_cluster_def())
        # Otherwise each session would have its own variables (tensorflow/core/distributed_runtime/session_mgr.cc).
        config.experimental.share_session_state_in_clusterspec_propagation = True
    return config


def run_bounded(
    session: tf.Session, fetches: Any, feed: Mapping[Any, Any] | None = None, *, options: tf.RunOptions
) -> Any:
    """Returns `session.run(fetches, feed, options)`; it ends even if a server has ended.

    Args:
      options: with a time-out.

    Raises:
      tf.errors.DeadlineExceededError: no answer within the time-out.
      tf.errors.OpError: see `tf.compat.v1.Session.run`.
    """
    return call_bounded(lambda: session.run(fetches, feed_dict=feed, options=options), options)


def call_bounded(call: Callable[[], Any], options: tf.RunOptions, awaited: str = "an answer of the servers") -> Any:
    """Returns `call()`, which runs a session with these options; `awaited` names its result. See `run_bounded`."""
    # The time-out of RunOptions may never begin if a server has ended (connection.py), and it begins late: each new set
    # of fetches is first sent to the ps, and a frozen one (SIGSTOP) lets that wait forever. So a second bound is
    # needed.
    timeout_secs = options.timeout_in_ms / 1000 + _ANSWER_SECS
    try:
        return waits.bounded(call, timeout_secs, awaited)
    except ClusterLostError as error:
        raise tf.errors.DeadlineExceededError(None, None, str(error)) from error


def close_in_background(session: tf.Session) -> threads.Call:
    """Closes a session in a daemon thread, and returns the thread."""
    # Not in this thread: if another task has died, `close` blocks for 30 s (tensorflow/python/client/session.py).
    return clock.start_call(functools.partial(_close, session), threads.CLOSING)


def _close(session: tf.Session) -> None:
    try:
        session.close()
    except tf.errors.OpError:  # the other task has ended, and the session with it
        return


def is_lost(error: tf.errors.OpError) -> bool:
    """Returns whether an error means that a ps or its variables are lost, as opposed to an error in the user's code."""
    if isinstance(error, _LOST):
        return True
    # If a step fails in several places, TensorFlow raises one error, of any type, whose message lists the others.
    if _LOST_AMONG_OTHERS.search(error.message):
        return True
    if terms.REFUSED in error.message:  # this chief was replaced, which its heartbeat finds soon
        return True
    # A ps that restarted has no variables. Reading one raises the first message, updating one the second
    # (tensorflow/core/kernels/resource_variable_ops.cc).
    is_variable = "Could not find variable" in error.message or "Resource" in error.message
    return is_variable and isinstance(error, (tf.errors.FailedPreconditionError, tf.errors.NotFoundError))
