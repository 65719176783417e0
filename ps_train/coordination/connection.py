"""The session through which a task's blackboard calls reach the ps: bounded calls, and another route after an error.

    this task's server --------> ps 0 ... ps n
    ps 0's server -------------> ps 0 ... ps n       after a call through this task's server has failed

It is not the training session, and outlives it. See docs/decisions/blackboard.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Task
from ps_train.coordination import sessions
from ps_train.errors import BlackboardError, ClusterLostError, ConfigError
from ps_train.runtime import clock, tensorflow_errors, waits

# Bound here: a script's `tf.Session` is replaced by one that asks the blackboard first
# (parts/legacy/classic/sessions.py).
_Session = tf.Session
_RUN_TIMEOUT_SECS = 5.0
# No task has this job, so the ps's server creates a session with itself only, in any cluster.
_NO_OTHER_TASK = "/job:nobody"
_UNREACHABLE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError,
                tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.CancelledError)


class Connection:
    """Runs operations of one graph on the ps, one call at a time."""

    def __init__(
        self, graph: tf.Graph, target: str, ps: Sequence[Task], own_task: Task | None, *, is_elastic: bool
    ) -> None:
        """Prepares the routes; nothing is sent yet. The arguments are those of `Blackboard`."""
        self._graph = graph
        self._ps = list(ps)
        self._routes = [(target, sessions.options([*ps, *([own_task] if own_task else [])], is_elastic))]
        if own_task:
            self._routes.append((f"grpc://{ps[0].address}", sessions.options(ps, is_elastic)))
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
                self._session = _Session(target, graph=self._graph, config=config)
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
            except (*_UNREACHABLE, ClusterLostError, RuntimeError) as error:  # RuntimeError: `close` was called
                self._session = None
                sessions.close_in_background(session)
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
            sessions.close_in_background(session)


def run_on_ps(ps: Task, graph: tf.Graph, fetches: Any) -> Any:
    """Returns the values of fetches, computed by the server at a ps's address in a session with no other task.

    Raises:
      BlackboardError: the ps does not answer, or has not created its blackboard yet.
    """
    opened: list[tf.Session] = []

    def run() -> Any:
        opened.append(_Session(f"grpc://{ps.address}", graph=graph,
                               config=tf.ConfigProto(device_filters=[_NO_OTHER_TASK])))
        return opened[0].run(fetches, options=tf.RunOptions(timeout_in_ms=int(_RUN_TIMEOUT_SECS * 1000)))

    try:
        return waits.bounded(run, 2 * _RUN_TIMEOUT_SECS, f"an answer of {ps}")
    except (tf.errors.OpError, ClusterLostError) as error:
        reason = tensorflow_errors.reason(error)
        raise BlackboardError("ps_unreachable", f"the blackboard on {ps} does not answer: {reason}") from error
    finally:
        for session in opened:
            sessions.close_in_background(session)
