"""Who is in the cluster and which task this is (pure: no TensorFlow).

    --ps_hosts --worker_hosts --job_name --task_index --\\
                                                         resolve --> Cluster(job, index, addresses)
    TF_CONFIG ------------------------------------------/
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ps_train.addresses import parse_hosts, refuse_duplicates
from ps_train.errors import ConfigError, refuse
from ps_train.tf_config import CHIEF_JOBS, parse_tf_config


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of the cluster; its address is "" where the cluster does not say it."""

    job: str
    index: int
    address: str

    @property
    def name(self) -> str:
        """`worker:1`, as in messages."""
        return f"{self.job}:{self.index}"

    @property
    def device(self) -> str:
        """`/job:worker/task:1`, as TensorFlow names it."""
        return f"/job:{self.job}/task:{self.index}"

    def __str__(self) -> str:
        return f"{self.name} {self.address}".rstrip()


@dataclasses.dataclass(frozen=True)
class Cluster:
    """All tasks, and which of them this process is.

    Attributes:
      job: this task's job.
      index: this task's index in its job.
      addresses: job -> index -> "host:port"; a sparse cluster has gaps, and an evaluator may be missing.
    """

    job: str
    index: int
    addresses: Mapping[str, Mapping[int, str]]

    @property
    def task(self) -> Task:
        """This task."""
        return self._task(self.job, self.index)

    @property
    def ps(self) -> list[Task]:
        """The parameter servers by index."""
        return self._tasks("ps")

    @property
    def workers(self) -> list[Task]:
        """All tasks that train and that the cluster names, the chief first."""
        return [task for job in (*CHIEF_JOBS, "worker") for task in self._tasks(job)]

    @property
    def chief(self) -> Task:
        """The worker that prepares and saves: the chief or master task where there is one, else worker 0."""
        named = [task for job in CHIEF_JOBS for task in self._tasks(job)]
        return named[0] if named else self._task("worker", 0)

    @property
    def is_chief(self) -> bool:
        """Whether this task is the chief."""
        return self.task == self.chief

    @property
    def worker_number(self) -> int:
        """This task's number among the workers, from 0: the index of its shard and of its GPU."""
        return self.number_of(self.task)

    def number_of(self, worker: Task) -> int:
        """Returns the number of a worker: its index, behind the chief or master task where there is one.

        It does not depend on which other workers the cluster names: in the sparse form a worker may know itself only.
        """
        has_chief_job = any(self.addresses.get(job) for job in CHIEF_JOBS)
        return worker.index + (has_chief_job and worker.job == "worker")

    @property
    def num_workers(self) -> int:
        """How many workers there are, as far as this task knows: one more than the largest number."""
        return 1 + max(map(self.number_of, self.workers))

    @property
    def device_filters(self) -> list[str]:
        """The tasks that this task's session talks to: without them it waits for ever for an absent worker."""
        return ["/job:ps", self.task.device]

    def hosts(self, job: str) -> str:
        """The job's addresses by index, as --ps_hosts and --worker_hosts give them."""
        return ",".join(task.address for task in self._tasks(job))

    @property
    def server_spec(self) -> dict[str, dict[int, str]]:
        """What `tf.train.ClusterSpec` takes; an evaluator has no server and is left out."""
        return {job: dict(tasks) for job, tasks in self.addresses.items() if job != "evaluator"}

    def _tasks(self, job: str) -> list[Task]:
        return [Task(job, index, address) for index, address in sorted(self.addresses.get(job, {}).items())]

    def _task(self, job: str, index: int) -> Task:
        return Task(job, index, self.addresses.get(job, {}).get(index, ""))


def resolve(
    ps_hosts: str,
    worker_hosts: str,
    job_name: str | None,
    task_index: int | None,
    tf_config: str = "",
    given: frozenset[str] = frozenset(),
) -> Cluster:
    """Returns the Cluster that the flags, or TF_CONFIG where it is set, describe.

    Args:
      ps_hosts: "host:port,..." of the parameter servers.
      worker_hosts: "host:port,..." of the workers.
      job_name: this task's job, or None.
      task_index: this task's index, or None.
      tf_config: the text of TF_CONFIG, "" for none.
      given: the names of the flags that the user gave: with TF_CONFIG these must agree with it.

    Raises:
      ConfigError: anything in it is malformed, contradictory or out of range.
    """
    flag_values = {"ps_hosts": ps_hosts, "worker_hosts": worker_hosts,
                   "job_name": job_name, "task_index": task_index}
    if tf_config.strip():
        cluster = Cluster(*parse_tf_config(tf_config))
        _check_agreement(cluster, {name: value for name, value in flag_values.items() if name in given})
        return cluster
    return _from_flags(ps_hosts, worker_hosts, job_name, task_index)


def _from_flags(ps_hosts: str, worker_hosts: str, job_name: str | None, task_index: int | None) -> Cluster:
    if job_name is None:
        raise ConfigError("--job_name: not given, and TF_CONFIG is not set; give --job_name=ps or --job_name=worker, "
                          "or run a whole cluster on this machine with `ps_train launch`")
    if task_index is None:
        raise ConfigError("--task_index: not given, and TF_CONFIG is not set; give this task's index in its job, "
                          "from 0")
    if job_name not in ("ps", "worker"):
        raise ConfigError(f"--job_name: got {job_name!r}, which only TF_CONFIG can place; allowed here: ps, worker")
    addresses = {"ps": parse_hosts("--ps_hosts", ps_hosts), "worker": parse_hosts("--worker_hosts", worker_hosts)}
    refuse_duplicates(addresses)
    if task_index not in addresses[job_name]:
        count = len(addresses[job_name])
        raise ConfigError(f"--task_index: got {task_index}; allowed: 0 to {count - 1}, since --{job_name}_hosts names "
                          f"{count} task{'s' if count > 1 else ''}")
    return Cluster(job_name, task_index, addresses)


def _check_agreement(cluster: Cluster, flag_values: Mapping[str, Any]) -> None:
    """Raises ConfigError, showing both, where a flag that was given says other than TF_CONFIG."""
    from_tf_config = {
        "job_name": cluster.job,
        "task_index": cluster.index,
        "ps_hosts": cluster.hosts("ps"),
        "worker_hosts": cluster.hosts("worker"),
    }
    refuse([f"--{name}={value} contradicts TF_CONFIG, which says {from_tf_config[name]!r}; "
            "leave the flag out, or unset TF_CONFIG"
            for name, value in flag_values.items() if value != from_tf_config[name]])
