"""`ps_train doctor`: runs the checks that the flags ask for, prints a line for each, and says whether one failed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence

from ps_train.cluster import resolve
from ps_train.cluster.spec import Cluster, Task
from ps_train.config.groups import problem_of_data_dir
from ps_train.errors import ConfigError, LaunchError
from ps_train.launch import supervision
from ps_train.launch.process import killed_with_parent
from ps_train.parts.doctor import machine, network
from ps_train.parts.doctor.flags import DoctorConfig
from ps_train.parts.doctor.machine import FAIL, OK, WARN, Finding
from ps_train.parts.ssh import hosts, preflight
from ps_train.parts.ssh.hosts import Host, RemoteShell
from ps_train.runtime import logs

_DATA_SECS = 120.0


def examine(config: DoctorConfig) -> None:
    """Prints the findings, a line for each check as soon as it is made.

    Raises:
      ConfigError: the flags contradict each other, or a check failed.
    """
    failed = _show(_findings(config, _cluster(config), _hosts(config)))
    if failed:
        raise ConfigError(f"{failed} check{'s' * (failed > 1)} failed; each line with `fail` says what to do")


def _show(findings: Iterable[Finding]) -> int:
    """Prints the findings; returns how many failed."""
    failed = 0
    for finding in findings:
        logs.show(finding.line())
        failed += finding.verdict == FAIL
    return failed


def _cluster(config: DoctorConfig) -> Cluster | None:
    if not config.ps_hosts:
        return None
    return resolve.find_cluster(ps_hosts=config.ps_hosts, worker_hosts=config.worker_hosts,
                                job_name=config.job_name or "ps",
                                task_index=config.task_index if config.job_name else 0)


def _hosts(config: DoctorConfig) -> tuple[RemoteShell, list[Host]] | None:
    if not config.hosts:
        return None
    remote_hosts = hosts.read_hosts(config.hosts)
    hosts.refuse_loopback(remote_hosts)
    shell = RemoteShell(hosts.split_ssh_command(config.ssh_command), config.remote_dir or os.getcwd(),
                        config.remote_python or sys.executable, hosts.chosen_environment(config.env, os.environ))
    return shell, remote_hosts


def _findings(
    config: DoctorConfig, cluster: Cluster | None, remote: tuple[RemoteShell, list[Host]] | None
) -> Iterator[Finding]:
    is_alone = cluster is None and remote is None
    num_tasks = config.num_ps + config.num_workers if is_alone else 1
    yield from machine.software()
    yield from machine.processor(num_tasks)
    yield from machine.gpus()
    yield from machine.own_name()
    if is_alone:
        yield from machine.free_ports(num_tasks, config.base_port)
    if config.train_dir:
        yield from machine.folder(config.train_dir)
    yield _data(config)
    if remote is not None:
        yield from _over_ssh(*remote, config.base_port)
    if cluster is not None:
        tasks: list[Task] = [*cluster.ps, *cluster.workers]
        yield from (network.lookups(tasks) if config.job_name is None
                    else network.meet_others(cluster, tasks, config.peer_timeout_secs))


def _data(config: DoctorConfig) -> Finding:
    """Loads the dataset in another process, and fetches it if it is missing, as a training would."""
    if config.data_dir != DoctorConfig.data_dir and (problem := problem_of_data_dir(config.data_dir)):
        return Finding(FAIL, "data", problem)  # a dataset that downloads its files would create the folder
    # In its own process: a dataset imports TensorFlow, and may hang.
    command = [sys.executable, "-m", "ps_train", "--download_only", f"--dataset={config.dataset}",
               *([f"--data_dir={config.data_dir}"] if config.data_dir else [])]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_DATA_SECS, check=False,
                               preexec_fn=killed_with_parent())
    except subprocess.TimeoutExpired:
        return Finding(FAIL, "data", f"{config.dataset} was not ready within {_DATA_SECS:g} s: fetch it first, with "
                                     "`ps_train --download_only`")
    if ended.returncode:
        message = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        # `launch` then trains on the synthetic digits by itself.
        verdict = WARN if config.dataset == DoctorConfig.dataset else FAIL
        return Finding(verdict, "data", f"{config.dataset}: {message.removeprefix('ps_train: ')}")
    return Finding(OK, "data", f"{config.dataset} is ready")


def _over_ssh(remote: RemoteShell, remote_hosts: Sequence[Host], first_port: int) -> Iterator[Finding]:
    """Yields whether each host of --hosts can run tasks, as a launch asks."""
    with supervision.noted_signals() as signals:
        try:
            with preflight.reserved_hosts(remote, dict.fromkeys(remote_hosts, 1), first_port, signals) as reserved:
                answered = dict(reserved)
        except LaunchError:
            raise
        except ConfigError as error:
            yield from (Finding(FAIL, "ssh", line) for line in str(error).splitlines())
            return
    for host, ports in answered.items():
        yield Finding(OK, "ssh", f"{host} answers, with the same ps_train and TensorFlow; port {ports[0]} is free")
