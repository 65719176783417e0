"""Finds the cluster of a task in its environment, and describes it as TF_CONFIG does.

    jobset       JOBSET_NAME, JOBSET_REPLICATED_JOB, JOB_COMPLETION_INDEX
    indexed_job  JOB_NAME, JOB_COMPLETION_INDEX
    slurm        SLURM_*
    env          PS_TRAIN_*

A Job gives each of its pods JOB_COMPLETION_INDEX and the host name JOB-INDEX
(https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode). JobSet calls its Jobs
JOBSET-REPLICATEDJOB-NUMBER, sets JOBSET as the subdomain of all pods, and labels each pod with the first two names
(labelAndAnnotateObject in pkg/controllers/jobset_controller.go of kubernetes-sigs/jobset, v0.12.0); the manifest turns
these labels into variables. Kubeflow's TrainJob is a JobSet of the same name
(pkg/runtime/framework/plugins/jobset/jobset.go of kubeflow/trainer, v2.3.0).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ps_train.cluster.addresses import parse_hosts
from ps_train.cluster.tf_config import LARGEST_INDEX
from ps_train.errors import ConfigError
from ps_train.parts.schedulers import slurm
from ps_train.parts.schedulers.environment import Environment, FoundTask
from ps_train.parts.schedulers.flags import parse_tasks

_PORT = 2222
_HOST_JOBS = ("ps", "worker", "chief")  # an evaluator needs no address
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # of an object of Kubernetes: RFC 1123


def scheduled_cluster(config: Any, environ: Mapping[str, str]) -> str:
    """Returns the text of TF_CONFIG for this task, or "" without --cluster_from.

    Args:
      config: the Config of the task.
      environ: the environment of the process.

    Raises:
      ConfigError: a variable is missing or malformed, or contradicts the flags.
    """
    if config.cluster_from is None:
        return ""
    if environ.get("TF_CONFIG", "").strip():
        raise ConfigError("cluster_given_twice", f"--cluster_from={config.cluster_from}: given, and TF_CONFIG is set; "
                          "leave the flag out, or unset TF_CONFIG")
    variables = Environment(environ, config.cluster_from)
    tasks = parse_tasks("--cluster_tasks", config.cluster_tasks)
    if config.cluster_from == "env":
        found = _from_variables(variables)
    elif config.cluster_from == "slurm":
        found = slurm.find_task(variables, tasks, config.cluster_port)
    else:
        find = {"jobset": _in_jobset, "indexed_job": _in_indexed_job}[config.cluster_from]
        found = find(variables, tasks, config)
    cluster = {job: hosts for job, hosts in found.addresses.items() if hosts}  # without "ps" for "ps:0"
    return json.dumps({"cluster": cluster, "task": {"type": found.job, "index": found.index}})


def _in_jobset(variables: Environment, tasks: Mapping[str, int], config: Any) -> FoundTask:
    """Returns the task of a pod: of the ReplicatedJob that has the name of its job, or of one with all the tasks."""
    jobset, replicated_job = (variables.matching(name, _NAME, "a name in Kubernetes")
                              for name in ("JOBSET_NAME", "JOBSET_REPLICATED_JOB"))
    number = _completion_index(variables)
    service = config.cluster_service or jobset
    if replicated_job not in tasks:
        return _by_number(variables, tasks, number, f"{jobset}-{replicated_job}-0", service, config)
    can_join = config.elastic and replicated_job == "worker"
    if number >= tasks[replicated_job] and not can_join:
        raise _outside(number, tasks[replicated_job], f"{replicated_job}:{tasks[replicated_job]}")
    counts = {**tasks, replicated_job: max(tasks[replicated_job], number + 1)}
    hosts = {job: [f"{jobset}-{job}-0-{index}.{service}" for index in range(count)] for job, count in counts.items()}
    return _placed(variables, hosts, replicated_job, number, config)


def _in_indexed_job(variables: Environment, tasks: Mapping[str, int], config: Any) -> FoundTask:
    job_name = variables.matching("JOB_NAME", _NAME, "a name in Kubernetes")
    return _by_number(variables, tasks, _completion_index(variables), job_name, config.cluster_service or job_name,
                      config)


def _by_number(
    variables: Environment, tasks: Mapping[str, int], number: int, job_name: str, service: str, config: Any
) -> FoundTask:
    """Returns the task of a pod of one Job whose pods are all the tasks, job after job; further pods are workers."""
    num_tasks = sum(tasks.values())
    if not config.elastic and number >= num_tasks:
        raise _outside(number, num_tasks, config.cluster_tasks)
    jobs = [job for job, count in tasks.items() for _ in range(count)]
    jobs += ["worker"] * (number + 1 - num_tasks)
    hosts: dict[str, list[str]] = {}
    for position, job in enumerate(jobs):
        hosts.setdefault(job, []).append(f"{job_name}-{position}.{service}")
    return _placed(variables, hosts, jobs[number], jobs[:number].count(jobs[number]), config)


def _placed(
    variables: Environment, hosts: Mapping[str, list[str]], job: str, index: int, config: Any
) -> FoundTask:
    """Returns the task, whose pod must have the host name under which the others look for it."""
    expected, actual = hosts[job][index].partition(".")[0], variables.optional("HOSTNAME").partition(".")[0]
    if actual and actual != expected:
        raise ConfigError("task_misplaced", f"HOSTNAME: this pod is {actual}, and the other tasks look for "
                          f"{job}:{index} at {expected}; give a ReplicatedJob replicas: 1, and no pod hostNetwork or "
                          "a hostname")
    port = config.cluster_port or _PORT
    addresses = {host_job: [f"{host}:{port}" for host in job_hosts] for host_job, job_hosts in hosts.items()}
    return FoundTask(addresses, job, index)


def _completion_index(variables: Environment) -> int:
    return variables.number("JOB_COMPLETION_INDEX", LARGEST_INDEX)


def _outside(number: int, count: int, tasks: str) -> ConfigError:
    return ConfigError("task_not_in_cluster", f"JOB_COMPLETION_INDEX: got {number}; allowed: 0 to {count - 1}, since "
                       f"--cluster_tasks has {tasks}; give it as many tasks as the Job has completions")


def _from_variables(variables: Environment) -> FoundTask:
    """Returns the task of the variables that stand for the cluster flags."""
    job = variables.one_of("PS_TRAIN_JOB_NAME", (*_HOST_JOBS, "evaluator"))
    needed = {"ps", job, "chief" if variables.optional("PS_TRAIN_CHIEF_HOSTS") else "worker"}
    addresses = {}
    for host_job in _HOST_JOBS:
        name = f"PS_TRAIN_{host_job.upper()}_HOSTS"
        hosts = variables.required(name) if host_job in needed else variables.optional(name)
        if hosts:
            addresses[host_job] = [*parse_hosts(name, hosts).values()]
    is_numbered = job in ("ps", "worker")
    index = variables.number("PS_TRAIN_TASK_INDEX", len(addresses[job]) - 1) if is_numbered else 0
    return FoundTask(addresses, job, index)
