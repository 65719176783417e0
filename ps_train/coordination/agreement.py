"""Do all tasks describe the same cluster, and do all workers train the same model in the same way?

Before it joins, a worker compares its description of the cluster with each ps. Only jobs and indexes are compared: a
task may reach another through a tunnel or a proxy, at an address that only it knows.

    each ps records its description --> all equal      the worker continues
                                    --> one differs    ConfigError; recorded on the ps as `mismatch`: all tasks end

Every question goes to the ps's server and stays there. A session through the worker's server would end in
`No worker known as /job:worker/...` if a ps does not know that worker.

The fingerprint of a worker is everything else that must be the same for all workers of a training, as text:

    chief: fingerprint_of --> the blackboard --> other workers: fingerprint_differences --> refused, or admitted

See docs/decisions/blackboard.md.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination import variables
from ps_train.coordination.sessions import run_on_ps
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ConfigError

_MAX_SHOWN = 8  # indexes of tasks
_MOST_DIFFERENCES = 4
_UNKNOWN = "unknown"  # a value that one of the two tasks does not know is not compared
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
    if ps_description and not _knows(ps_description, cluster.task):
        raise ConfigError("clusters_differ", f"{first} was not configured with {cluster.task}; give every task the "
                          "same --ps_hosts, or the same cluster in TF_CONFIG")


def _agrees(cluster: Cluster, ps: Task, existing_servers: bool) -> bool:
    """Returns true if the ps describes the same cluster; raises as `check` does, and BlackboardError: no answer yet."""
    ps_description, mismatch = _read_description(ps)
    differing = _cluster_difference(cluster, ps, ps_description) if ps_description else ""
    if differing and not existing_servers and _is_needed(cluster, ps_description):
        mismatch = mismatch or f"the tasks have different cluster settings: {differing}"
    if mismatch:
        _record_mismatch(cluster, mismatch)
    if differing or mismatch:
        raise ConfigError("clusters_differ", differing or mismatch)
    return True


def _is_needed(cluster: Cluster, ps_description: str) -> bool:
    """Returns whether training is incomplete without this worker: the ps expects it, and it has never taken part."""
    if not (cluster.is_chief or _knows(ps_description, cluster.task)):
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
    with tf.Graph().as_default() as graph:
        write_op = variables.write("mismatch", mismatch)
    for ps in cluster.ps:
        try:
            if reachability.accepts(ps.address):
                run_on_ps(ps, graph, write_op)
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


def describe_cluster(cluster: Cluster) -> str:
    """Returns the cluster as this task is configured, as text for the other tasks."""
    return json.dumps({
        "task": cluster.task.name,
        "elastic": cluster.is_elastic,
        "tasks": {job: sorted(tasks) for job, tasks in cluster.server_spec.items()},
        "partial": sorted(cluster.partial),
    })


def _cluster_difference(cluster: Cluster, ps: Task, description: str) -> str:
    """Returns how the clusters of a worker and of one of its ps differ, as a line, or "" if they agree.

    A job of which either may know only some tasks is not compared. But unless elastic, the ps must know this worker.

    Args:
      cluster: the cluster of the worker.
      ps: one of its ps.
      description: the result of `describe_cluster` at the address of that ps.
    """
    theirs, mine = json.loads(description), json.loads(describe_cluster(cluster))
    if theirs["task"] != ps.name:
        return (f"{cluster.task} was configured with {ps.name} at {ps.address}, but {theirs['task']} runs there; "
                "list the ps in the same order for every task")
    if theirs["elastic"] != mine["elastic"]:
        kinds = ("an elastic", "a fixed") if theirs["elastic"] else ("a fixed", "an elastic")
        return (f"{ps} was configured for {kinds[0]} cluster, {cluster.task} for {kinds[1]} one; start all tasks with "
                "--elastic, or all without it")
    jobs = [job for job in sorted({*theirs["tasks"], *mine["tasks"]})
            if job not in theirs["partial"] + mine["partial"] and theirs["tasks"].get(job) != mine["tasks"].get(job)]
    if not jobs and not cluster.is_elastic and cluster.index not in theirs["tasks"].get(cluster.job, []):
        jobs = [cluster.job]
    if not jobs:
        return ""
    my_tasks, their_tasks = (" and ".join(_words(job, settings["tasks"].get(job, [])) for job in jobs)
                             for settings in (mine, theirs))
    return (f"{ps} was configured with {their_tasks}, {cluster.task} with {my_tasks}; give every task the same "
            "--ps_hosts and --worker_hosts, or the same cluster in TF_CONFIG")


def _knows(description: str, task: Task) -> bool:
    """Returns whether a ps is configured with a task, or may know only some tasks of that job (`partial`)."""
    settings = json.loads(description)
    return task.job in settings["partial"] or task.index in settings["tasks"].get(task.job, [])


def _words(job: str, indexes: Sequence[int]) -> str:
    """Returns `2 workers`, or `workers 0, 3` if the indexes have gaps."""
    plural = job if job == "ps" or len(indexes) == 1 else f"{job}s"
    if list(indexes) == list(range(len(indexes))):
        return f"{len(indexes) or 'no'} {plural}"
    shown = [str(index) for index in indexes[:_MAX_SHOWN]] + ["..."] * (len(indexes) > _MAX_SHOWN)
    return f"{plural} {', '.join(shown)}"


def fingerprint_of(
    cluster: Cluster, options: Mapping[str, Any], variables: Sequence[tf.Variable],
    packed: Mapping[str, str] | None = None, others: Mapping[str, str] | None = None, train_dir: str = "",
    *, takes_share: bool = False,
) -> str:
    """Returns the fingerprint of a worker.

    Args:
      options: name -> value of the flags that all workers must share.
      variables: the graph's global variables; all workers must share their names, shapes, dtypes and placement.
      packed: name of a packed variable -> name of the variable that contains it (parts/packing/).
      others: name -> further values that must be the same for all workers.
      train_dir: the chief's; the other workers do not know it.
      takes_share: whether the input is this worker's share of the data, by the number of workers that this task knows.
    """
    return json.dumps({
        **{f"--{name}": value for name, value in options.items()},
        "number of ps": len(cluster.ps),
        "number of workers": cluster.shard[1] if takes_share or "worker" not in cluster.partial else _UNKNOWN,
        "--train_dir": os.path.realpath(train_dir) if train_dir else _UNKNOWN,
        **{f"variable {variable.op.name}": _variable(variable, (packed or {}).get(variable.op.name))
           for variable in variables},
        **(others or {}),
    }, sort_keys=True)


def _variable(variable: tf.Variable, place: str | None) -> str:
    shape = variable.shape.as_list() if variable.shape.rank is not None else "of unknown shape"
    ps = tf.DeviceSpec.from_string(variable.device).task
    return f"{variable.dtype.base_dtype.name}{shape} on ps:{ps}{f', in {place}, as it has no hooks' if place else ''}"


def fingerprint_differences(theirs: str, this: str, *, their_name: str) -> list[str]:
    """Returns a line for each difference between two fingerprints; only the first few if there are many.

    Args:
      theirs: the fingerprint of the other task.
      this: the fingerprint of this task.
      their_name: the other task in messages, such as "worker:0 (chief)".
    """
    other, mine = json.loads(theirs), json.loads(this)
    names = [name for name in sorted({*other, *mine})
             if other.get(name) != mine.get(name) and _UNKNOWN not in (other.get(name), mine.get(name))]
    lines = [f"{name}: here {mine.get(name, 'missing')}, at {their_name} {other.get(name, 'missing')}"
             for name in names[:_MOST_DIFFERENCES]]
    return lines + ([f"and {len(names) - _MOST_DIFFERENCES} more"] if len(names) > _MOST_DIFFERENCES else [])
