"""Do all tasks describe the same cluster? Before it joins, a worker compares its description with each ps.

    each ps records its description --> all equal      the worker continues
                                    --> one differs    ConfigError; recorded on the ps as `mismatch`: all tasks end

Every question goes to the ps's server and stays there. A session through the worker's server would end in
`No worker known as /job:worker/...` if a ps does not know that worker. See docs/decisions/blackboard.md.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading

import tensorflow.compat.v1 as tf

from ps_train.cluster import description, reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import variables
from ps_train.coordination.connection import run_on_ps
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ConfigError

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
        raise BlackboardError("ps_unreachable", f"{first} does not answer")
    ps_description, _ = _read_description(first)
    if ps_description and not description.knows(ps_description, cluster.task):
        raise ConfigError("clusters_differ", f"{first} was not configured with {cluster.task}; give every task the "
                          "same --ps_hosts, or the same cluster in TF_CONFIG")


def _agrees(cluster: Cluster, ps: Task, existing_servers: bool) -> bool:
    """Returns true if the ps describes the same cluster, false if it does not answer yet.

    Raises:
      ConfigError: see `check`.
    """
    try:
        ps_description, mismatch = _read_description(ps)
    except BlackboardError as error:
        _log.debug("%s", error)
        return False
    differing = description.difference(cluster, ps, ps_description) if ps_description else ""
    if differing and not existing_servers and _is_needed(cluster, ps_description):
        mismatch = mismatch or f"the tasks have different cluster settings: {differing}"
    if mismatch:
        _record_mismatch(cluster, mismatch)
    if differing or mismatch:
        raise ConfigError("clusters_differ", differing or mismatch)
    return True


def _is_needed(cluster: Cluster, ps_description: str) -> bool:
    """Returns whether training is incomplete without this worker: the ps expects it, and it has never taken part."""
    if not (cluster.is_chief or description.knows(ps_description, cluster.task)):
        return False  # a worker that is not expected
    number = cluster.worker_number
    try:
        claims, local_steps, state = run_on_ps(cluster.ps[0], *_reading("claims", "local_steps", "state"))
    except BlackboardError:  # then training has not begun
        return True
    # If the worker took part before, training continues: it may be started again with the right flags.
    return not claims[number] and not local_steps[number] and state in (State.IDLE, State.RUNNING)


def _record_mismatch(cluster: Cluster, mismatch: str) -> None:
    """Records the mismatch at every ps that is up."""
    for ps in cluster.ps:
        try:
            if reachability.accepts(ps.address):
                run_on_ps(ps, *_writing_mismatch(mismatch))
        except BlackboardError as error:
            _log.debug("%s", error)


def _read_description(ps: Task) -> tuple[str, str]:
    """Returns how a ps describes the cluster, and the mismatch that it knows of."""
    ps_description, mismatch = run_on_ps(ps, *_reading("cluster", "mismatch"))
    return ps_description.decode(), mismatch.decode()


@functools.cache
def _reading(*names: str) -> tuple[tf.Graph, list[tf.Tensor]]:
    with tf.Graph().as_default() as graph:
        return graph, [variables.read(name) for name in names]


def _writing_mismatch(mismatch: str) -> tuple[tf.Graph, tf.Operation]:
    with tf.Graph().as_default() as graph:
        return graph, variables.write("mismatch", mismatch)
