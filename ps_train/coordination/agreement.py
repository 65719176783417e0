"""Do all tasks describe the same cluster? Before it joins, a worker compares its description with each ps.

    each ps records its description --> all equal      the worker continues
                                    --> one differs    ConfigError; recorded on the ps as `mismatch`: all tasks end

Every question goes to the ps's server and stays there. A session through the worker's server would end in
`No worker known as /job:worker/...` if a ps does not know that worker. See docs/decisions/blackboard.md.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.cluster import description, reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import sessions, variables
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ClusterLostError, ConfigError
from ps_train.runtime import tensorflow_errors, waits

# Bound here: a script's `tf.Session` is replaced by one that asks the blackboard first
# (parts/legacy/classic/sessions.py).
_Session = tf.Session
_CALL_SECS = 5.0
# No task has this job, so the ps's server creates a session with itself only, in any cluster.
_NO_OTHER_TASK = "/job:nobody"
_log = logging.getLogger(__name__)


def check(cluster: Cluster, timeout_secs: float, stop: threading.Event, *, existing_servers: bool = False) -> None:
    """Returns when every ps is up and describes the same cluster as this worker.

    Args:
      cluster: this worker's description.
      timeout_secs: bound of the wait for the ps.
      stop: ends the wait.
      existing_servers: whether this worker is a client of servers that outlive it. Such a worker may use only some of
        the workers' servers, and if it does not fit, it ends alone.

    Raises:
      ConfigError: a ps describes another cluster, or other tasks of this training have found a mismatch before.
      ClusterLostError: a ps was not up within the time-out; the message names it.
      StoppedError: `stop` was set.
    """
    if existing_servers:
        cluster = dataclasses.replace(cluster, partial=cluster.partial | {"worker"})
    reachability.wait_for_tasks(
        cluster.ps, timeout_secs, stop, is_ready=lambda ps: _agrees(cluster, ps, existing_servers))


def check_ps(cluster: Cluster, first: Task) -> None:
    """Checks that ps 0 knows this ps. If it does not, no worker that ps 0 accepts uses this ps.

    Raises:
      ConfigError: ps 0 does not know it.
      BlackboardError: ps 0 does not answer.
    """
    if not reachability.accepts(first.address):
        raise BlackboardError(f"{first} is not there")
    ps_description, _ = _ask(first, _read_description)
    if ps_description and not description.knows(ps_description.decode(), cluster.task):
        raise ConfigError(f"{first} was not configured with {cluster.task}; give every task the same --ps_hosts, or "
                          "the same cluster in TF_CONFIG")


def _agrees(cluster: Cluster, ps: Task, existing_servers: bool) -> bool:
    """Returns true if the ps describes the same cluster, false if it does not answer yet.

    Raises:
      ConfigError: see `check`.
    """
    try:
        ps_description, mismatch = (value.decode() for value in _ask(ps, _read_description))
    except BlackboardError as error:
        _log.debug("%s", error)
        return False
    differing = description.difference(cluster, ps, ps_description) if ps_description else ""
    if differing and not existing_servers and _is_needed(cluster, ps_description):
        mismatch = mismatch or f"the tasks have different cluster settings: {differing}"
    if mismatch:
        _record_mismatch(cluster, mismatch)
    if differing or mismatch:
        raise ConfigError(differing or mismatch)
    return True


def _is_needed(cluster: Cluster, ps_description: str) -> bool:
    """Returns whether training is incomplete without this worker: the ps expects it, and it has never taken part."""
    if not (cluster.is_chief or description.knows(ps_description, cluster.task)):
        return False  # a worker that is not expected
    number = cluster.worker_number
    try:
        claim, local_steps, state = _ask(cluster.ps[0], lambda: (
            variables.read("claims")[number], variables.read("local_steps")[number], variables.read("state")))
    except BlackboardError:  # then training has not begun
        return True
    # If the worker took part before, training continues: it may be started again with the right flags.
    return not claim and not local_steps and state in (State.IDLE, State.RUNNING)


def _record_mismatch(cluster: Cluster, mismatch: str) -> None:
    """Records the mismatch at every ps that is up."""
    for ps in cluster.ps:
        try:
            if reachability.accepts(ps.address):
                _ask(ps, lambda: variables.write("mismatch", mismatch))
        except BlackboardError as error:
            _log.debug("%s", error)


def _read_description() -> tuple[tf.Tensor, tf.Tensor]:
    return variables.read("cluster"), variables.read("mismatch")


def _ask(ps: Task, build: Callable[[], Any]) -> Any:
    """Returns the values of what `build()` adds to a graph, computed by the server at a ps's address.

    Raises:
      BlackboardError: the ps does not answer, or has not created its blackboard yet.
    """
    with tf.Graph().as_default() as graph:
        fetches = build()
    opened: list[tf.Session] = []

    def run() -> Any:
        opened.append(_Session(f"grpc://{ps.address}", graph=graph,
                              config=tf.ConfigProto(device_filters=[_NO_OTHER_TASK])))
        return opened[0].run(fetches, options=tf.RunOptions(timeout_in_ms=int(_CALL_SECS * 1000)))

    try:
        return waits.bounded(run, 2 * _CALL_SECS, f"an answer of {ps}")
    except (tf.errors.OpError, ClusterLostError) as error:
        raise BlackboardError(f"the blackboard on {ps} does not answer: {tensorflow_errors.reason(error)}") from error
    finally:
        for session in opened:
            sessions.close_in_background(session)
