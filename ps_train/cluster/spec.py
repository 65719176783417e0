"""The tasks of the cluster, and which of them this process is.

    Cluster.ps, workers, chief     the tasks of each role           Cluster.task       this task
    Cluster.worker_number, shard   this worker among all workers    Cluster.is_chief   whether it is the chief

`resolve.py` makes a Cluster from flags or TF_CONFIG.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

JOBS = ("ps", "worker", "chief", "master", "evaluator")
CHIEF_JOBS = ("chief", "master")  # two names of the same role; a cluster has at most one of them


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of the cluster; its address is "" if the cluster does not contain it."""

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
      addresses: job -> index -> "host:port"; the indexes of a sparse cluster have gaps, and an evaluator may be absent.
      is_elastic: whether workers that are not listed here may join and leave.
      partial: the jobs of which `addresses` may list some tasks only, such as those in TF_CONFIG's sparse form.
    """

    job: str
    index: int
    addresses: Mapping[str, Mapping[int, str]]
    is_elastic: bool = False
    partial: frozenset[str] = frozenset()

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
        """The tasks listed here that train, the chief first."""
        return [task for job in (*CHIEF_JOBS, "worker") for task in self._tasks(job)]

    @property
    def chief(self) -> Task:
        """The worker that initialises and saves: the chief or master task, or worker 0 in a cluster without one."""
        named = [task for job in CHIEF_JOBS for task in self._tasks(job)]
        return named[0] if named else self._task("worker", 0)

    @property
    def is_chief(self) -> bool:
        """Whether this task is the chief."""
        return self.task == self.chief

    @property
    def worker_number(self) -> int:
        """This task's number among the workers, from 0; it selects the worker's shard of the data and its GPU."""
        return self.number_of(self.task)

    def number_of(self, worker: Task) -> int:
        """Returns the number of a worker: its index, plus 1 for a "worker" task in a cluster with a chief or master."""
        # Not its position among the workers listed here: in TF_CONFIG's sparse form a worker may know only itself.
        has_chief_job = any(self.addresses.get(job) for job in CHIEF_JOBS)
        return worker.index + (has_chief_job and worker.job == "worker")

    def worker_name(self, number: int) -> str:
        """Returns the name of the worker with that number, such as `worker:1`; the inverse of `number_of`."""
        named = {self.number_of(task): task.name for task in self.workers}
        chief_task_is_zero = self.chief.job != "worker"
        return named.get(number, f"worker:{number - chief_task_is_zero}")

    @property
    def num_workers(self) -> int:
        """How many workers there are, as far as this task knows: one more than the highest number."""
        return 1 + max(map(self.number_of, self.workers))

    @property
    def shard(self) -> tuple[int, int]:
        """This worker's share of the data, (index, count); all of it in an elastic cluster, whose size varies."""
        return (0, 1) if self.is_elastic else (self.worker_number, self.num_workers)

    @property
    def peers(self) -> list[Task]:
        """The tasks that this worker's session talks to, including this one."""
        return [*self.ps, self.task]

    def hosts(self, job: str) -> str:
        """Returns the addresses of a job by index, in the form of --ps_hosts and --worker_hosts."""
        return ",".join(task.address for task in self._tasks(job))

    @property
    def server_spec(self) -> dict[str, dict[int, str]]:
        """The cluster as `tf.train.ClusterSpec` takes it, without the evaluator, which has no server."""
        return {job: dict(tasks) for job, tasks in self.addresses.items() if tasks and job != "evaluator"}

    @property
    def boot(self) -> tuple[dict[str, dict[int, str]], str, int]:
        """The arguments with which this task's server starts: the tasks, and this task's job and index."""
        if self.is_elastic:
            # The server knows only itself, and by a name that no session uses: TensorFlow refuses a session that brings
            # its own cluster (`sessions.options`) if that cluster contains the server's own name.
            return {"boot": {0: self.task.address}}, "boot", 0
        return self.server_spec, self.job, self.index

    def _tasks(self, job: str) -> list[Task]:
        return [Task(job, index, address) for index, address in sorted(self.addresses.get(job, {}).items())]

    def _task(self, job: str, index: int) -> Task:
        return Task(job, index, self.addresses.get(job, {}).get(index, ""))
