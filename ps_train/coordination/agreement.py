"""Before a worker takes part: it compares the cluster that it was told of with the one that each of its ps was told of.

    each ps notes what it was told --> the same at all ps    the worker goes on
                                   --> another one           ConfigError, noted on the ps as `mismatch`: all tasks end

What a worker asks here goes to each ps's own server, and stays there: a session through the worker's server ends in
`No worker known as /job:worker/...` where a ps was not told of that worker.
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

_CALL_SECS = 5.0
# No task has this job: so the ps's server makes a session with itself only, whatever cluster it was told of.
_NOBODY = "/job:nobody"
_log = logging.getLogger(__name__)


def check(cluster: Cluster, timeout_secs: float, stop: threading.Event, existing_servers: bool = False) -> None:
    """Returns when every ps is up and was told of the same cluster as this worker.

    Args:
      cluster: what this worker was told.
      timeout_secs: bound of the wait for the ps.
      stop: ends the wait.
      existing_servers: whether this worker is a client of servers that outlive it. It may use some of the workers'
        servers only, and where it does not fit it ends alone.

    Raises:
      ConfigError: a ps was told of another cluster, or tasks of this training have found that before.
      ClusterLostError: a ps was not there within the time-out; the text names it.
      StoppedError: `stop` was set.
    """
    missing = list(cluster.ps)
    if existing_servers:
        cluster = dataclasses.replace(cluster, partial=cluster.partial | {"worker"})

    def all_agree() -> bool:
        missing[:] = [ps for ps in missing if stop.is_set() or not _agrees(cluster, ps, existing_servers)]
        return not missing

    waits.until(all_agree, timeout_secs, lambda: ", ".join(map(str, missing)), stop,
                  "is it started, and reachable from this machine?")


def check_ps(own: Cluster, first: Task) -> None:
    """Looks whether ps 0 was told of this ps; without that, no worker that ps 0 lets in uses it.

    Raises:
      ConfigError: it was not.
      BlackboardError: ps 0 does not answer.
    """
    if not reachability.accepts(first.address):
        raise BlackboardError(f"{first} is not there")
    text, _ = _ask(first, _read_what_is_told)
    if text and not description.knows(text.decode(), own.task):
        raise ConfigError(f"{first} was not told of {own.task}; give every task the same --ps_hosts, or the same "
                          "cluster in TF_CONFIG")


def _agrees(cluster: Cluster, ps: Task, existing_servers: bool) -> bool:
    """Returns false where the ps does not answer yet.

    Raises:
      ConfigError: see `check`.
    """
    if not reachability.accepts(ps.address):
        return False
    try:
        text, mismatch = (note.decode() for note in _ask(ps, _read_what_is_told))
    except BlackboardError as error:
        _log.debug("%s", error)
        return False
    differing = description.difference(cluster, ps, text) if text else ""
    if differing and not existing_servers and _is_missed(cluster, text):
        mismatch = mismatch or f"the tasks were told of different clusters: {differing}"
    if mismatch:
        _spread(cluster, mismatch)
    if differing or mismatch:
        raise ConfigError(differing or mismatch)
    return True


def _is_missed(cluster: Cluster, text: str) -> bool:
    """Tells whether the training is not whole without this worker: the ps expects it, and it has never been there.

    One that took part before leaves the training as it is, as somebody may start it again with the right flags. So does
    a stranger.
    """
    if not (cluster.is_chief or description.knows(text, cluster.task)):
        return False
    number = cluster.worker_number
    try:
        claim, local_steps, state = _ask(cluster.ps[0], lambda: (
            variables.read("claims")[number], variables.read("local_steps")[number], variables.read("state")))
    except BlackboardError:  # then nobody trains yet
        return True
    return not claim and not local_steps and state in (State.IDLE, State.RUNNING)


def _spread(cluster: Cluster, mismatch: str) -> None:
    """Notes at every ps that is up what does not fit."""
    for ps in cluster.ps:
        try:
            if reachability.accepts(ps.address):
                _ask(ps, lambda: variables.write("mismatch", mismatch))
        except BlackboardError as error:
            _log.debug("%s", error)


def _read_what_is_told() -> tuple[tf.Tensor, tf.Tensor]:
    return variables.read("told"), variables.read("mismatch")


def _ask(ps: Task, build: Callable[[], Any]) -> Any:
    """Returns what the operations that `build()` makes give on the server at a ps's address.

    Raises:
      BlackboardError: it does not answer, or has not put up its blackboard yet.
    """
    with tf.Graph().as_default() as graph:
        fetches = build()
    made: list[tf.Session] = []

    def run() -> Any:
        made.append(tf.Session(f"grpc://{ps.address}", graph=graph,
                               config=tf.ConfigProto(device_filters=[_NOBODY])))
        return made[0].run(fetches, options=tf.RunOptions(timeout_in_ms=int(_CALL_SECS * 1000)))

    try:
        return waits.bounded(run, 2 * _CALL_SECS, f"an answer of {ps}")
    except (tf.errors.OpError, ClusterLostError) as error:
        raise BlackboardError(f"the blackboard on {ps} does not answer: {tensorflow_errors.reason(error)}") from error
    finally:
        for session in made:
            sessions.close_in_background(session)
