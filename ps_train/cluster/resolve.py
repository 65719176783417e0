"""Finds the cluster of this task, in the four flags or in TF_CONFIG.

    TF_CONFIG is set        TF_CONFIG counts, and the flags on the command line must agree with it
    it is not               --ps_hosts, --worker_hosts, --job_name, --task_index

docs/decisions/elastic.md explains elastic clusters, whose workers may join and leave.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ps_train.cluster.addresses import parse_hosts, refuse_duplicates
from ps_train.cluster.spec import Cluster
from ps_train.cluster.tf_config import LARGEST_INDEX, parse_tf_config
from ps_train.errors import ConfigError, Problem, refuse


def find_cluster(
    *,
    ps_hosts: str = "",
    worker_hosts: str = "",
    job_name: str | None = None,
    task_index: int | None = None,
    tf_config: str = "",
    given: frozenset[str] = frozenset(),
    elastic: bool | None = None,
) -> Cluster:
    """Returns the Cluster that TF_CONFIG describes or, if it is not set, the flags.

    Args:
      ps_hosts: "host:port,..." of the parameter servers.
      worker_hosts: "host:port,..." of the workers.
      job_name: this task's job, or None if --job_name was not given.
      task_index: this task's index, or None if --task_index was not given.
      tf_config: the text of TF_CONFIG, "" if it is not set.
      given: the names of the flags that the user gave, which must agree with TF_CONFIG.
      elastic: whether workers may join and leave, or None to derive that from the form of TF_CONFIG.

    Raises:
      ConfigError: a value is malformed or out of range, or two values contradict each other.
    """
    flag_values: dict[str, Any] = {"ps_hosts": ps_hosts, "worker_hosts": worker_hosts, "job_name": job_name,
                                   "task_index": task_index}
    if tf_config.strip():
        settings = parse_tf_config(tf_config)
        cluster = Cluster(settings.job, settings.index, settings.addresses,
                          settings.is_dynamic if elastic is None else elastic, settings.sparse_jobs)
        _check_agreement(cluster, {name: value for name, value in flag_values.items() if name in given})
        if not cluster.is_elastic and not cluster.workers:
            raise ConfigError("tf_config_without_workers", "TF_CONFIG: cluster names no worker, which only an elastic "
                              "cluster may do; leave --noelastic out")
    else:
        cluster = _from_flags(**flag_values, is_elastic=bool(elastic))
    return _without_other_workers(cluster) if cluster.is_elastic else cluster


def _from_flags(
    *, ps_hosts: str, worker_hosts: str, job_name: str | None, task_index: int | None, is_elastic: bool
) -> Cluster:
    if job_name is None:
        raise ConfigError("flag_missing", "--job_name: not given, and TF_CONFIG is not set; give --job_name=ps or "
                          "--job_name=worker, or run a whole cluster on this machine with `ps_train launch`")
    if job_name not in ("ps", "worker", "evaluator"):
        raise ConfigError("flag_out_of_range", f"--job_name: got {job_name!r}, which only TF_CONFIG can place; allowed "
                          "here: ps, worker, evaluator")
    addresses = {"ps": parse_hosts("--ps_hosts", ps_hosts), "worker": parse_hosts("--worker_hosts", worker_hosts)}
    for job, hosts in addresses.items():
        if len(hosts) > LARGEST_INDEX + 1:
            raise ConfigError("flag_out_of_range", f"--{job}_hosts: got {len(hosts)} addresses; allowed: at most "
                              f"{LARGEST_INDEX + 1}; start fewer tasks")
    if task_index is None:
        task_index = _only_index(job_name, addresses, is_elastic)
    if is_elastic:
        addresses["worker"] = _elastic_workers(addresses["worker"], job_name, task_index)
    refuse_duplicates(addresses)
    _check_index(job_name, task_index, addresses)
    return Cluster(job_name, task_index, addresses, is_elastic)


def _only_index(job_name: str, addresses: Mapping[str, Mapping[int, str]], is_elastic: bool) -> int:
    """Returns 0, the index of the only task of a job, or raises ConfigError."""
    if is_elastic and job_name == "worker":
        raise ConfigError("flag_missing", "--task_index: not given, and with --elastic a worker may have any index; "
                          f"give this worker's index, from 0 to {LARGEST_INDEX}, 0 for the chief")
    count = len(addresses.get(job_name, [0]))
    if count > 1:
        raise ConfigError("flag_missing", f"--task_index: not given, and --{job_name}_hosts names {count} tasks; give "
                          f"this task's index, 0 to {count - 1}")
    return 0


def _check_index(job_name: str, task_index: int, addresses: Mapping[str, Mapping[int, str]]) -> None:
    indices = addresses.get(job_name, [0])  # a cluster has one evaluator, which needs no address
    if task_index not in indices:
        count = len(indices)
        why = f"--{job_name}_hosts names {count} task{'s' if count > 1 else ''}"
        raise ConfigError("flag_out_of_range", f"--task_index: got {task_index}; allowed: 0 to {count - 1}, since "
                          f"{why if job_name in addresses else 'a cluster has one evaluator'}")


def _elastic_workers(addresses: dict[int, str], job_name: str, task_index: int) -> dict[int, str]:
    """Returns index -> address of the workers of an elastic cluster; a single address is that of this worker."""
    if job_name != "worker":
        return {}
    if task_index > LARGEST_INDEX:
        raise ConfigError("flag_out_of_range", f"--task_index: got {task_index}; allowed: 0 to {LARGEST_INDEX}")
    return {task_index: addresses[0]} if len(addresses) == 1 else addresses


def _without_other_workers(cluster: Cluster) -> Cluster:
    """Returns an elastic cluster with this worker only: the blackboard lists the current workers."""
    this_worker = {index: address for index, address in cluster.addresses.get("worker", {}).items()
                   if (cluster.job, cluster.index) == ("worker", index)}
    return dataclasses.replace(cluster, addresses={**cluster.addresses, "worker": this_worker},
                               partial=cluster.partial | {"worker"})


def _check_agreement(cluster: Cluster, flag_values: Mapping[str, Any]) -> None:
    from_tf_config = {
        "job_name": cluster.job,
        "task_index": cluster.index,
        "ps_hosts": cluster.hosts("ps"),
        "worker_hosts": cluster.hosts("worker"),
    }
    refuse([Problem("flag_contradicts_tf_config", f"--{name}={value} contradicts TF_CONFIG, which says "
                    f"{from_tf_config[name]!r}; leave the flag out, or unset TF_CONFIG")
            for name, value in flag_values.items() if value != from_tf_config[name]])
