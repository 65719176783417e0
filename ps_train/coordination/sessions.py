"""TensorFlow sessions with tasks that come and go: session options, closing, and the meaning of an error.

A blackboard call has a session of its own, which is not the training session and outlives it. Its calls are bounded,
and take another route after an error:

    this task's server --------> ps 0 ... ps n
    ps 0's server -------------> ps 0 ... ps n       after a call through this task's server has failed

The reasons: docs/decisions/sessions.md and docs/decisions/blackboard.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Task
from ps_train.coordination import variables
from ps_train.errors import BlackboardError, ClusterLostError, ConfigError
from ps_train.runtime import clock, tensorflow_errors, threads, waits

# Bound here: a script's `tf.Session` is replaced by one that asks the blackboard first
# (parts/legacy/classic/sessions.py).
Session = tf.Session
_RUN_TIMEOUT_SECS = 5.0
# No task has this job, so the ps's server creates a session with itself only, in any cluster.
_NO_OTHER_TASK = "/job:nobody"
# CancelledError: the error of an operation that a step was waiting for when its session was lost.
_LOST = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.CancelledError)
_ANSWER_SECS = 5.0  # beyond the time-out of a call
_LOST_AMONG_OTHERS = re.compile(r"^(ABORTED|UNAVAILABLE|DEADLINE_EXCEEDED): ", re.MULTILINE)
_LOST_VARIABLE = re.compile(r"Could not find variable |Resource \S+/\S+ does not exist\.|\(Could not find resource: ")
_log = logging.getLogger(__name__)


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
    # The time-out of RunOptions may never begin if a server has ended (`Connection.run`), and it begins late: each new
    # set of fetches is first sent to the ps, and a frozen one (SIGSTOP) lets that wait forever. Hence the second bound.
    timeout_secs = options.timeout_in_ms / 1000 + _ANSWER_SECS
    try:
        return waits.bounded(call, timeout_secs, awaited)
    except ClusterLostError as error:
        raise tf.errors.DeadlineExceededError(None, None, str(error)) from error


def close_in_background(session: tf.Session) -> threads.Call:
    """Closes a session in a daemon thread, and returns the thread; it keeps what `close` raises if a task has died."""
    # Not in this thread: if another task has died, `close` blocks for 30 s (tensorflow/python/client/session.py).
    return clock.start_call(session.close, threads.CLOSING)


def is_lost(error: tf.errors.OpError) -> bool:
    """Returns whether an error means that a ps or its variables are lost, as opposed to an error in the user's code."""
    if isinstance(error, _LOST):
        return True
    # If a step fails in several places, TensorFlow raises one error, of any type, whose message lists the others.
    if _LOST_AMONG_OTHERS.search(error.message):
        return True
    if variables.REFUSED in error.message:  # this chief was replaced, which its heartbeat finds soon
        return True
    # A ps that restarted has no variables. Reading one raises the first message, updating one the second
    # (tensorflow/core/kernels/resource_variable_ops.cc), or the third if all are gone (framework/resource_mgr.cc).
    is_variable = _LOST_VARIABLE.search(error.message) is not None
    return is_variable and isinstance(error, (tf.errors.FailedPreconditionError, tf.errors.NotFoundError))


class Connection:
    """Runs operations of one graph on the ps, one call at a time."""

    def __init__(
        self, graph: tf.Graph, target: str, ps: Sequence[Task], own_task: Task | None, *, is_elastic: bool
    ) -> None:
        """Prepares the routes; nothing is sent yet. The arguments are those of `Blackboard`."""
        self._graph = graph
        self._ps = list(ps)
        self._routes = [(target, options([*ps, *([own_task] if own_task else [])], is_elastic))]
        if own_task:
            self._routes.append((f"grpc://{ps[0].address}", options(ps, is_elastic)))
        self._session: tf.Session | None = None
        self._lock = clock.lock()

    def run(self, fetches: Any, feed: Mapping[tf.Tensor, Any] | None = None) -> Any:
        """Returns the values of `tf.Session.run`.

        Raises:
          BlackboardError: a ps does not answer, or has not created its part of the blackboard yet.
          ConfigError: the task at a ps's address is not the ps that this task expects.
        """
        with self._lock:
            if self._session is None:
                target, config = self._routes[0]
                self._session = Session(target, graph=self._graph, config=config)
            session, options = self._session, tf.RunOptions(timeout_in_ms=int(_RUN_TIMEOUT_SECS * 1000))
            try:
                # The time-out of RunOptions begins when the server has created the session. If the server has ended,
                # that never happens, so a second bound is needed here.
                return waits.bounded(lambda: session.run(fetches, feed, options), 2 * _RUN_TIMEOUT_SECS,
                                     f"an answer of {self._ps[0]}")
            except tf.errors.InvalidArgumentError as error:  # a device that the server does not know, for example
                raise ConfigError(
                    "wrong_ps", f"{' or '.join(map(str, self._ps))} is not the ps that this task expects: "
                    f"{tensorflow_errors.reason(error)}; start all tasks from the same version, and all with or all "
                    "without --elastic") from error
            except (tf.errors.OpError, ClusterLostError, RuntimeError) as error:  # RuntimeError: `close` was called
                self._session = None
                close_in_background(session)
                # This task's server may be the one that blocks: closing a lost training session was seen to occupy it
                # for 20 s. The next call takes the other route.
                self._routes.reverse()
                reason = tensorflow_errors.reason(error)
                raise BlackboardError(
                    "ps_unreachable", f"the blackboard on {self._ps[0]} does not answer: {reason}") from error

    def close(self) -> None:
        """Closes the session, without waiting for a lost ps or for a call that is under way."""
        session, self._session = self._session, None
        if session is not None:
            close_in_background(session)


def if_answered(call: Callable[[], Any]) -> Any:
    """Returns `call()`, or None if it raises BlackboardError: a later call may be answered."""
    try:
        return call()
    except BlackboardError as error:
        _log.debug("%s", error)
        return None


def run_on_ps(ps: Task, graph: tf.Graph, fetches: Any) -> Any:
    """Returns the values of fetches, computed by the server at a ps's address in a session with no other task.

    Raises:
      BlackboardError: the ps does not answer, or has not created its blackboard yet.
    """
    opened: list[tf.Session] = []

    def run() -> Any:
        opened.append(Session(f"grpc://{ps.address}", graph=graph,
                               config=tf.ConfigProto(device_filters=[_NO_OTHER_TASK])))
        return opened[0].run(fetches, options=tf.RunOptions(timeout_in_ms=int(_RUN_TIMEOUT_SECS * 1000)))

    try:
        return waits.bounded(run, 2 * _RUN_TIMEOUT_SECS, f"an answer of {ps}")
    except (tf.errors.OpError, ClusterLostError) as error:
        reason = tensorflow_errors.reason(error)
        raise BlackboardError("ps_unreachable", f"the blackboard on {ps} does not answer: {reason}") from error
    finally:
        for session in opened:
            close_in_background(session)
