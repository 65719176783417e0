"""The cluster that a script gives its `Server`, and the launcher's addresses for those that are written into it."""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import socket
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses as address_rules
from ps_train.cluster.spec import Cluster, Task
from ps_train.cluster.tf_config import chief_listed_again
from ps_train.errors import ConfigError
from ps_train.parts.legacy.source import CLUSTER_VARIABLE

_log = logging.getLogger(__name__)

Addresses = dict[str, dict[int, str]]
_MAPPED = "_ps_train_mapped_jobs"  # an attribute of a ClusterSpec


class ScriptCluster(Cluster):
    """The cluster of a script, which may list the chief again, as worker 0: one task, and the number of worker 1 is 1.

    Both names stay: the script and its graph may use either.
    """

    @property
    def workers(self) -> list[Task]:
        """The tasks listed here that train, each once."""
        return [task for task in super().workers if not self._is_listed_again(task)]

    @property
    def chief(self) -> Task:
        """The chief, by the name of this process if it is the chief."""
        return self.task if self._is_listed_again(self.task) else super().chief

    def number_of(self, worker: Task) -> int:
        """Returns the number of a worker: its index if worker 0 is the chief."""
        return worker.index if chief_listed_again(self.addresses) else super().number_of(worker)

    def refuse_duplicates(self) -> None:
        """Raises ConfigError if two tasks share an address."""
        chief_job = chief_listed_again(self.addresses)
        if chief_job:
            _log.info("the cluster lists %s:0 again, as worker:0; they are one task, the chief", chief_job)
        address_rules.refuse_duplicates({job: tasks for job, tasks in self.addresses.items() if job != chief_job})

    def _is_listed_again(self, task: Task) -> bool:
        return (task.job, task.index) == ("worker", 0) and bool(chief_listed_again(self.addresses))


_moved: dict[str, str] = {}  # address that is written into the script -> the launcher's


def note_moved(written: Addresses, real: Addresses) -> None:
    """Notes the launcher's addresses that stand for those that are written into the script."""
    _moved.update({address: today for job, tasks in written.items() for index, address in tasks.items()
                   if (today := real[job].get(index, address)) != address})


def real_target(target: str) -> str:
    """Returns the target of a session, with the launcher's address for the one in the script."""
    scheme, separator, address = target.rpartition("://")
    address = _without_blanks(address) if separator else address
    return f"{scheme}{separator}{_moved.get(address, address)}"


def _without_blanks(address: str) -> str:
    # Scripts split "a:2222, b:2222" at its comma, and TensorFlow took "a: 2222" for a:2222.
    return re.sub(r"\s+", "", address)


def addresses_of(server_or_cluster_def: Any) -> Addresses:
    """Returns job -> index -> address of what `tf.train.Server` takes as a cluster."""
    if isinstance(server_or_cluster_def, tf.train.ServerDef):
        server_or_cluster_def = server_or_cluster_def.cluster
    spec = tf.train.ClusterSpec(server_or_cluster_def)
    return {job: {index: _without_blanks(spec.task_address(job, index)) for index in spec.task_indices(job)}
            for job in spec.jobs}


def sparse_jobs(server_or_cluster_def: Any) -> frozenset[str]:
    """Returns the jobs of which a cluster lists some tasks only: with gaps, or with one task, as {index: address}.

    A script keeps its workers from each other in this way: each knows the ps and itself.
    """
    mapped = getattr(server_or_cluster_def, _MAPPED, _mapped_jobs(server_or_cluster_def))
    if isinstance(server_or_cluster_def, tf.train.ServerDef):
        server_or_cluster_def = server_or_cluster_def.cluster
    spec = tf.train.ClusterSpec(server_or_cluster_def)
    return frozenset(job for job in spec.jobs if spec.task_indices(job) != list(range(spec.num_tasks(job)))
                     or (job in mapped and spec.num_tasks(job) == 1))


def _mapped_jobs(cluster: Any) -> frozenset[str]:
    """Returns the jobs that a dictionary gives as {index: address}."""
    jobs = cluster.items() if isinstance(cluster, dict) else ()
    return frozenset(job for job, tasks in jobs if isinstance(tasks, dict))


def note_mapped_jobs() -> None:
    """Lets each `tf.train.ClusterSpec` know which of its jobs were given as {index: address}; it makes lists of all."""
    make = tf.train.ClusterSpec.__init__
    if hasattr(make, "__wrapped__"):  # done before
        return

    @functools.wraps(make)
    def make_and_note(spec: Any, cluster: Any) -> None:
        make(spec, cluster)
        setattr(spec, _MAPPED, getattr(cluster, _MAPPED, _mapped_jobs(cluster)))

    tf.train.ClusterSpec.__init__ = make_and_note


def launched_addresses(written: Addresses, partial: frozenset[str] = frozenset()) -> Addresses:
    """Returns the launcher's addresses of the tasks that a script names; if no launcher has started this task, its own.

    Args:
      written: the addresses in the script.
      partial: the jobs of which the script lists some tasks only.

    Raises:
      ConfigError: the launcher has started another number of tasks.
    """
    real = dict(written)
    launched = json.loads(os.environ.get(CLUSTER_VARIABLE) or "{}")
    # A script may have them from TF_CONFIG already, and name the chief as the first worker, as DeepRec's do.
    knows_them = {address for tasks in written.values() for address in tasks.values()} <= {
        address for hosts in launched.values() for address in hosts}
    for job, hosts in launched.items():
        if job not in written or knows_them:
            continue
        if job in partial:
            real[job] = {index: hosts[index] for index in written[job] if index < len(hosts)}
            continue
        if len(hosts) != len(written[job]):
            raise ConfigError(
                "task_count_mismatch", f"the script names {len(written[job])} tasks of job {job!r}, and the "
                f"launcher started {len(hosts)}; give --num_ps and --num_workers as in the script")
        real[job] = dict(enumerate(hosts))
    return real


def launched_cluster(written: Addresses, job_name: str | None, task_index: int | None,
                     partial: frozenset[str] = frozenset()) -> ScriptCluster:
    """Returns the cluster, with the launcher's addresses if a launcher has started this task.

    Args:
      written: the addresses in the script.
      job_name, task_index: of this task; may be None if there is one of each.
      partial: the jobs of which the script lists some tasks only.

    Raises:
      ConfigError: the task is not in the cluster, or the launcher has started another number of tasks.
    """
    real = launched_addresses(written, partial)
    if job_name is None and len(real) == 1:  # as TensorFlow's class does
        job_name = next(iter(real))
    if task_index is None and len(real.get(job_name or "", {})) == 1:
        task_index = next(iter(real[job_name or ""]))
    if task_index is None or task_index not in real.get(job_name or "", {}):
        known = ", ".join(f"{job}:{index}" for job, tasks in real.items() for index in tasks)
        raise ConfigError("task_not_in_cluster", f"tf.train.Server: task {job_name}:{task_index} is not in the "
                          f"cluster; allowed: {known}")
    real[str(job_name)] = {**real[str(job_name)], task_index: _with_port(real[str(job_name)][task_index])}
    return ScriptCluster(str(job_name), task_index, real, partial=partial)


def _with_port(address: str) -> str:
    """Returns an address with a free port for port 0, which lets TensorFlow's server choose one."""
    host, _, port = address.rpartition(":")
    if port != "0":
        return address
    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{host}:{probe.getsockname()[1]}"
