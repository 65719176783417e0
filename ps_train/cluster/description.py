"""What a task was told of its cluster, and how that differs from what another was told (pure: no TensorFlow).

    ps: describe --> text on its blackboard        worker: difference --> "" or the line that says it

Only jobs and indexes count. Addresses may differ: a task may reach another through a tunnel or a proxy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ps_train.cluster.spec import Cluster, Task

_MOST_SHOWN = 8


def describe(cluster: Cluster) -> str:
    """Returns what this task was told, as text for `difference`."""
    return json.dumps({
        "task": cluster.task.name,
        "elastic": cluster.is_elastic,
        "tasks": {job: sorted(tasks) for job, tasks in cluster.server_spec.items()},
        "partial": sorted(cluster.partial),
    })


def difference(own: Cluster, ps: Task, text: str) -> str:
    """Returns the line that says how a worker and one of its ps were told different clusters, "" where they were not.

    A job of which one of the two may know some tasks only is not compared; but the ps must know this worker, unless
    workers come and go.

    Args:
      own: what the worker was told.
      ps: one of its ps.
      text: what `describe` returned at the address of that ps.
    """
    theirs, mine = json.loads(text), json.loads(describe(own))
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
    """Tells whether a ps was told of a task; one that knows some tasks of that job only may not have been."""
    told = json.loads(text)
    return task.job in told["partial"] or task.index in told["tasks"].get(task.job, [])


def _membership(is_elastic: bool) -> str:
    return "workers come and go" if is_elastic else "the workers are fixed"


def _words(job: str, indexes: Sequence[int]) -> str:
    """Returns `2 workers`, or where the indexes have gaps `workers 0, 3`."""
    plural = job if job == "ps" or len(indexes) == 1 else f"{job}s"
    if list(indexes) == list(range(len(indexes))):
        return f"{len(indexes) or 'no'} {plural}"
    shown = [str(index) for index in indexes[:_MOST_SHOWN]] + ["..."] * (len(indexes) > _MOST_SHOWN)
    return f"{plural} {', '.join(shown)}"
