"""Declares the flags with which a task finds its cluster in its environment."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, Optional

from ps_train.cluster.tf_config import LARGEST_INDEX
from ps_train.config.fields import field
from ps_train.config.groups import CLUSTER
from ps_train.errors import ConfigError, Problem

SOURCES = ("jobset", "indexed_job", "slurm", "env")
_JOBS = ("ps", "worker", "chief", "evaluator")
_SINGLE_JOBS = ("chief", "evaluator")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # of a Service: RFC 1035


def parse_tasks(flag: str, text: str) -> dict[str, int]:
    """Returns job -> number of tasks of a text such as "ps:2,worker:3", in its order; of ps there may be none, "ps:0".

    Raises:
      ConfigError: the text has another form, or an impossible number; the error names `flag`.
    """
    entries = [entry.partition(":") for entry in text.split(",")] if text else []
    tasks = {job: int(count) for job, _, count in entries if count.isascii() and count.isdecimal()}
    if (len(tasks) < len(entries) or not tasks.keys() <= {*_JOBS}
            or not all(count or job == "ps" for job, count in tasks.items())
            or sum(tasks.values()) > LARGEST_INDEX or any(tasks.get(job, 1) > 1 for job in _SINGLE_JOBS)):
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: the number of tasks of each job, such as "
                          f"ps:2,worker:3; the jobs are {', '.join(_JOBS)}, with one chief and one evaluator at most")
    return tasks


def _parse_service(flag: str, text: str) -> str:
    """Returns the name of a Service; raises ConfigError if it is none."""
    if text and not _NAME.fullmatch(text):
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: the name of a Service: lower-case "
                          "letters, digits and hyphens")
    return text


@dataclasses.dataclass(frozen=True)
class SchedulerFlags:
    """Where a task finds its cluster, if neither the cluster flags nor TF_CONFIG have it."""

    _needs_ps = True  # not a flag: a class with these flags may be for clusters without a ps

    cluster_from: Optional[str] = field(
        None, CLUSTER, "Find the cluster in the variables that a scheduler sets; env: in PS_TRAIN_JOB_NAME, "
        "PS_TRAIN_TASK_INDEX, PS_TRAIN_PS_HOSTS and PS_TRAIN_WORKER_HOSTS.", choices=SOURCES,
        unset="the flags above, or TF_CONFIG")
    cluster_tasks: str = field(
        "", CLUSTER, "How many tasks of each job the scheduler starts, in the order of their numbers (with "
        "--cluster_from); with slurm, the tasks that it does not count are workers.", unit="job:count,...",
        form=parse_tasks, unset="none")
    cluster_port: Optional[int] = field(
        None, CLUSTER, "Port of each pod's server; with slurm, the first port on each node (with --cluster_from).",
        minimum=1, maximum=65535, unset="2222; with slurm, from 20000 on by the number of the job")
    cluster_service: str = field(
        "", CLUSTER, "Headless Service in which the pods have host names (with --cluster_from).", unit="name",
        form=_parse_service, unset="that with the name of the JobSet or Job")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a line for each way in which the flags do not fit each other."""
        return list(self._problems(config))

    def _problems(self, config: Any) -> Iterator[Problem]:
        details = [name for name in ("cluster_tasks", "cluster_port", "cluster_service") if getattr(self, name)]
        if self.cluster_from is None:
            for name in details:
                yield Problem("flag_without_effect", f"--{name}: has an effect only with --cluster_from; add that "
                              "flag, or leave this one out")
            return
        for name in sorted(config.given & {"job_name", "task_index", "ps_hosts", "worker_hosts"}):
            yield Problem("flags_conflict", f"--{name}: given with --cluster_from={self.cluster_from}, which finds "
                          "the cluster; leave one of them out")
        without_effect = {"env": details, "slurm": [name for name in details if name == "cluster_service"]}
        for name in without_effect.get(self.cluster_from, ()):
            yield Problem("flag_without_effect",
                          f"--{name}: has no effect with --cluster_from={self.cluster_from}; leave it out")
        if self.cluster_from == "env" and config.elastic:
            yield Problem("flags_conflict", "--cluster_from=env: given with --elastic, whose workers have one address; "
                          "give the cluster flags themselves")
        if self.cluster_from != "env":
            yield from self._problems_of_tasks()

    def _problems_of_tasks(self) -> Iterator[Problem]:
        tasks = parse_tasks("--cluster_tasks", self.cluster_tasks)
        needed = ("ps",) if self.cluster_from == "slurm" or "chief" in tasks else ("ps", "worker")
        if missing := [job for job in needed if job not in tasks]:
            yield Problem("flag_missing", f"--cluster_tasks: got {self.cluster_tasks!r}, which counts no "
                          f"{' and no '.join(missing)}; with --cluster_from={self.cluster_from} give the number of "
                          "tasks of each job, such as --cluster_tasks=ps:2,worker:3")
        if self._needs_ps and tasks.get("ps") == 0:
            yield Problem("flag_out_of_range", f"--cluster_tasks: got {self.cluster_tasks!r}; allowed: at least one "
                          "ps; only `ps_train tf_config` finds clusters without one")
