"""Command line and environment of each task of a job."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.public.catalogue import Job
from benchmarks.public.sandbox import REPO, Sandbox

HOWS = {
    "plain": [],
    "v1": [os.path.join(REPO, "benchmarks", "public", "as_v1.py")],
    "run": ["-m", "ps_train", "run"],
}
_CLUSTER_FLAGS = ("--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}", "--job_name={job}", "--task_index={index}")
_STAND_INS = os.path.join(REPO, "benchmarks", "public", "stand_ins")
_FIRST_PORT = 22220  # in a network of its own every port is free


class Task(NamedTuple):
    """A task of a job: its name, such as `worker:0`, and how it is started."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


def tasks(job: Job, how: str, sandbox: Sandbox) -> list[Task]:
    """Returns the tasks of a job, the ps first.

    Args:
      job: what to run.
      how: `plain` as it is, `v1` with compat.v1 as tensorflow, `run` under `ps_train run`.
      sandbox: its folders.
    """
    cluster = _cluster(job)
    found = []
    for name, addresses in sorted(cluster.items(), key=lambda item: item[0] != "ps"):
        for index in range(len(addresses)):
            values = {
                "data": sandbox.data, "work": sandbox.work, "code": sandbox.code, "stand_ins": _STAND_INS,
                "job": name, "index": index, "cluster": json.dumps(cluster),
                "ps_hosts": ",".join(cluster.get("ps", [])), "worker_hosts": ",".join(cluster.get("worker", [])),
            }
            own = {**job.by_task.get(name, {}), **job.by_task.get(f"{name}:{index}", {})}
            flags = _CLUSTER_FLAGS if job.cluster_by == "flags" else ()
            arguments = [text.format(**values) for text in (*job.arguments, *own.get("arguments", ()), *flags)]
            environment = {key: value.format(**values)
                           for key, value in {**job.environment, **own.get("environment", {})}.items()}
            if job.cluster_by == "TF_CONFIG":
                more = {key: value.format(**values) for key, value in job.tf_config.items()}
                environment["TF_CONFIG"] = json.dumps({**_tf_config(cluster, name, index), **more})
            options = [option.format(**values) for option in job.options] if how == "run" else []
            script = shlex.split(own.get("script", job.script))
            command = [sys.executable, *HOWS[how], *options, *script, *arguments]
            found.append(Task(f"{name}:{index}", command, _environ(how, sandbox, environment)))
    return found


def _cluster(job: Job) -> dict[str, list[str]]:
    numbers = iter(range(_FIRST_PORT, _FIRST_PORT + sum(job.tasks.values())))
    return {name: [f"localhost:{next(numbers)}" for _ in range(count)] for name, count in job.tasks.items()}


def _tf_config(cluster: Mapping[str, Sequence[str]], name: str, index: int) -> dict[str, object]:
    """Returns TF_CONFIG as Cloud ML and Kubeflow give it: the evaluator is not in the cluster."""
    described = {job: addresses for job, addresses in cluster.items() if job != "evaluator"}
    return {"cluster": described, "task": {"type": name, "index": index}, "environment": "cloud"}


def _environ(how: str, sandbox: Sandbox, own: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a task; on PYTHONPATH, what the job puts there comes first, ours last."""
    paths = [own.get("PYTHONPATH", ""), REPO if how == "run" else "", os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1",
               "HOME": sandbox.home, **own, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    if "TF_CONFIG" not in own:
        environ.pop("TF_CONFIG", None)
    return environ
