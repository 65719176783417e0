"""Who is in the cluster and which task this is (pure: no TensorFlow).

    --ps_hosts --worker_hosts --job_name --task_index --\\
                                                         resolve --> Cluster(job, index, addresses)
    TF_CONFIG ------------------------------------------/
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from ps_train.errors import ConfigError

JOBS = ("ps", "worker", "chief", "master", "evaluator")
_CHIEF_JOBS = ("chief", "master")  # TF_CONFIG's two words for the same role; at most one of them may be there
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]@]+):(?P<port>[0-9]+)")


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of the cluster."""

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
        return f"{self.name} {self.address}"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """All tasks, and which of them this process is.

    Attributes:
      job: this task's job.
      index: this task's index in its job.
      addresses: job -> index -> "host:port"; indices need not be contiguous.
    """

    job: str
    index: int
    addresses: Mapping[str, Mapping[int, str]]

    @property
    def task(self) -> Task:
        """This task."""
        return Task(self.job, self.index, self.addresses[self.job][self.index])

    @property
    def ps(self) -> list[Task]:
        """The parameter servers by index."""
        return self._tasks("ps")

    @property
    def workers(self) -> list[Task]:
        """All tasks that train, the chief first."""
        return [task for job in (*_CHIEF_JOBS, "worker") for task in self._tasks(job)]

    @property
    def chief(self) -> Task:
        """The worker that prepares and saves: the chief or master task, else the first worker."""
        return self.workers[0]

    @property
    def is_chief(self) -> bool:
        """Whether this task is the chief."""
        return bool(self.workers) and self.task == self.chief

    @property
    def worker_number(self) -> int:
        """This task's position among the workers, from 0: the index of its shard and of its GPU."""
        return self.workers.index(self.task)

    @property
    def device_filters(self) -> list[str]:
        """The tasks that this task's session talks to: without them it waits for ever for an absent worker."""
        return ["/job:ps", self.task.device]

    @property
    def server_spec(self) -> dict[str, dict[int, str]]:
        """What `tf.train.ClusterSpec` takes; an evaluator has no server and is left out."""
        return {job: dict(tasks) for job, tasks in self.addresses.items() if job != "evaluator" and tasks}

    def _tasks(self, job: str) -> list[Task]:
        return [Task(job, index, address) for index, address in sorted(self.addresses.get(job, {}).items())]


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
        cluster = parse_tf_config(tf_config)
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
    _refuse_duplicates(addresses)
    if task_index not in addresses[job_name]:
        count = len(addresses[job_name])
        raise ConfigError(f"--task_index: got {task_index}; allowed: 0 to {count - 1}, since --{job_name}_hosts names "
                          f"{count} task{'s' if count > 1 else ''}")
    return Cluster(job_name, task_index, addresses)


def parse_hosts(what: str, text: str) -> dict[int, str]:
    """Returns index -> "host:port" of a comma-separated list; `what` names it in errors.

    Raises:
      ConfigError: an entry is not host:port with a port from 1 to 65535, or the list is empty.
    """
    return {index: parse_address(f"{what} entry {index}", entry) for index, entry in enumerate(text.split(","))}


def parse_address(what: str, address: Any) -> str:
    """Returns the address unchanged if it is "host:port", "[ipv6]:port" with a port from 1 to 65535.

    Raises:
      ConfigError: it is not; the text says what it looked like.
    """
    if not isinstance(address, str) or not address:
        raise ConfigError(f"{what}: got {address!r}; allowed: host:port, such as localhost:2222")
    match = _ADDRESS.fullmatch(address)
    if match is None:
        why = "a blank" if re.search(r"\s", address) else "a scheme" if "://" in address else "no host:port"
        raise ConfigError(f"{what}: got {address!r}, which has {why}; allowed: host:port, such as localhost:2222")
    port = match["port"]
    if not 1 <= int(port) <= 65535 or port != str(int(port)):
        raise ConfigError(f"{what}: got {address!r}; allowed ports: 1 to 65535")
    return address


def parse_tf_config(text: str) -> Cluster:
    """Returns the Cluster that a TF_CONFIG text describes, in the dense or the sparse form.

    Raises:
      ConfigError: it is not JSON (with the position), lacks a part, or contradicts itself.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"TF_CONFIG: is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; "
                          f"there it reads {text[error.pos:error.pos + 20]!r}") from None
    addresses = {job: _parse_job(job, tasks) for job, tasks in _mapping(content, "cluster").items()}
    _refuse_duplicates(addresses)
    cluster = Cluster(*_parse_task(_mapping(content, "task"), addresses), addresses)
    if not cluster.ps:
        raise ConfigError("TF_CONFIG: cluster names no ps; allowed: at least one, such as \"ps\": [\"host:2222\"]")
    if not cluster.workers:
        raise ConfigError("TF_CONFIG: cluster names no worker and no chief; allowed: at least one of them")
    return cluster


def _mapping(content: Any, key: str) -> dict[str, Any]:
    part = content.get(key) if isinstance(content, dict) else None
    if not isinstance(part, dict) or not part:
        raise ConfigError(f"TF_CONFIG: {key!r} is missing or no object; it should read like "
                          '{"cluster": {"ps": ["host:2222"], "worker": ["host:2223"]}, '
                          '"task": {"type": "worker", "index": 0}}')
    return part


def _parse_job(job: str, tasks: Any) -> dict[int, str]:
    """Returns index -> address of `["host:port", ...]` or of the sparse `{"3": "host:port"}`."""
    what = f"TF_CONFIG: cluster[{job!r}]"
    if job not in JOBS:
        raise ConfigError(f"{what}: unknown job; allowed: {', '.join(JOBS)}")
    if not isinstance(tasks, (list, dict)) or not tasks:
        raise ConfigError(f"{what}: got {tasks!r}; allowed: a list of host:port, or an object of index: host:port")
    if job in _CHIEF_JOBS and len(tasks) > 1:
        raise ConfigError(f"{what}: names {len(tasks)} tasks; allowed: 1")
    items = enumerate(tasks) if isinstance(tasks, list) else tasks.items()
    found: dict[int, str] = {}
    for key, address in items:
        index = _parse_index(f"{what} index", key)
        if index in found:
            raise ConfigError(f"{what}: index {index} is there twice")
        found[index] = parse_address(f"{what}[{key}]", address)
    return found


def _parse_index(what: str, value: Any) -> int:
    """Returns a task index given as 3 or, as templates often write it, "3"."""
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]+", str(value), re.ASCII):
        raise ConfigError(f"{what}: got {value!r}; allowed: an integer from 0")
    return int(value)


def _parse_task(task: dict[str, Any], addresses: Mapping[str, Mapping[int, str]]) -> tuple[str, int]:
    job = task.get("type")
    if job not in addresses:
        raise ConfigError(f"TF_CONFIG: task type is {job!r}; allowed: {', '.join(addresses)}, the jobs of its cluster")
    index = _parse_index("TF_CONFIG: task index", task.get("index"))
    if index not in addresses[job]:
        known = ", ".join(str(known_index) for known_index in sorted(addresses[job]))
        raise ConfigError(f"TF_CONFIG: task index is {index}; allowed: {known}, the indices of job {job!r}")
    return job, index


def _refuse_duplicates(addresses: Mapping[str, Mapping[int, str]]) -> None:
    if all(job in addresses for job in _CHIEF_JOBS):
        raise ConfigError("TF_CONFIG: cluster names both a chief and a master; they are the same role, keep one")
    owners: dict[str, str] = {}
    for job, tasks in addresses.items():
        for index, address in tasks.items():
            owner = f"{job}:{index}"
            if address in owners:
                raise ConfigError(f"address {address} is given to both {owners[address]} and {owner}; "
                                  "each task needs its own")
            owners[address] = owner


def _check_agreement(cluster: Cluster, flag_values: Mapping[str, Any]) -> None:
    """Raises ConfigError, showing both, where a flag that was given says other than TF_CONFIG."""
    from_tf_config = {
        "job_name": cluster.job,
        "task_index": cluster.index,
        "ps_hosts": ",".join(task.address for task in cluster.ps),
        "worker_hosts": ",".join(cluster.addresses.get("worker", {}).values()),
    }
    differing = [name for name in flag_values if flag_values[name] != from_tf_config[name]]
    if differing:
        raise ConfigError("\n".join(
            f"--{name}={flag_values[name]} contradicts TF_CONFIG, which says {from_tf_config[name]}; "
            "leave the flag out, or unset TF_CONFIG" for name in differing))
