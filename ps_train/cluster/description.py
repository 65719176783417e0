"""Compares how two tasks are configured.

    ps: describe_cluster --> text on its blackboard --> worker: difference --> "" or a line that says how they differ

Only jobs and indexes are compared. Addresses may differ: a task may reach another one through a tunnel or a proxy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ps_train.cluster.spec import Cluster, Task

_MAX_SHOWN = 8


def describe_cluster(cluster: Cluster) -> str:
    """Returns the cluster as this task is configured, as text for `difference`."""
    return json.dumps({
        "task": cluster.task.name,
        "elastic": cluster.is_elastic,
        "tasks": {job: sorted(tasks) for job, tasks in cluster.server_spec.items()},
        "partial": sorted(cluster.partial),
    })


def difference(cluster: Cluster, ps: Task, description: str) -> str:
    """Returns how the clusters of a worker and of one of its ps differ, as a line, or "" if they agree.

    A job of which either task may know only some tasks is not compared. But the ps must know this worker, unless the
    cluster is elastic.

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


def knows(description: str, task: Task) -> bool:
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
