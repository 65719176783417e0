"""Compares what two tasks were told about the cluster.

    ps: describe_cluster --> text on its blackboard --> worker: difference --> "" or a line that names the difference

Only jobs and indexes are compared. Addresses may differ: a task may reach another one through a tunnel or a proxy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ps_train.cluster.spec import Cluster, Task

_MAX_SHOWN = 8


def describe_cluster(cluster: Cluster) -> str:
    """Returns what this task was told about the cluster, as text for `difference`."""
    return json.dumps({
        "task": cluster.task.name,
        "elastic": cluster.is_elastic,
        "tasks": {job: sorted(tasks) for job, tasks in cluster.server_spec.items()},
        "partial": sorted(cluster.partial),
    })


def difference(own: Cluster, ps: Task, text: str) -> str:
    """Returns how the clusters of a worker and of one of its ps differ, as a line, or "" if they agree.

    A job of which either task may know only some tasks is not compared. But the ps must know this worker, unless the
    cluster is elastic.

    Args:
      own: the cluster of the worker.
      ps: one of its ps.
      text: the result of `describe_cluster` at the address of that ps.
    """
    theirs, mine = json.loads(text), json.loads(describe_cluster(own))
    if theirs["task"] != ps.name:
        return (f"{own.task} was told that {ps.name} is at {ps.address}, but {theirs['task']} is there; name the ps in "
                "the same order to every task")
    if theirs["elastic"] != mine["elastic"]:
        return (f"{ps} was told that {_membership(theirs['elastic'])}, {own.task} that {_membership(mine['elastic'])}; "
                "start all tasks with or all without --elastic")
    jobs = [job for job in sorted({*theirs["tasks"], *mine["tasks"]})
            if job not in theirs["partial"] + mine["partial"] and theirs["tasks"].get(job) != mine["tasks"].get(job)]
    if not jobs and not own.is_elastic and own.index not in theirs["tasks"].get(own.job, []):
        jobs = [own.job]
    if not jobs:
        return ""
    here, there = (" and ".join(_words(job, told["tasks"].get(job, [])) for job in jobs) for told in (mine, theirs))
    return (f"{ps} was told of {there}, {own.task} of {here}; give every task the same --ps_hosts and --worker_hosts, "
            "or the same cluster in TF_CONFIG")


def knows(text: str, task: Task) -> bool:
    """Tells whether a ps was told about a task, or may know only some tasks of that job (`partial`)."""
    told = json.loads(text)
    return task.job in told["partial"] or task.index in told["tasks"].get(task.job, [])


def _membership(is_elastic: bool) -> str:
    return "workers may join and leave" if is_elastic else "the workers are fixed"


def _words(job: str, indexes: Sequence[int]) -> str:
    """Returns `2 workers`, or `workers 0, 3` if the indexes have gaps."""
    plural = job if job == "ps" or len(indexes) == 1 else f"{job}s"
    if list(indexes) == list(range(len(indexes))):
        return f"{len(indexes) or 'no'} {plural}"
    shown = [str(index) for index in indexes[:_MAX_SHOWN]] + ["..."] * (len(indexes) > _MAX_SHOWN)
    return f"{plural} {', '.join(shown)}"
