"""`ps_train doctor`: the flags, and the checks that they ask for, with a line for each."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Optional

from ps_train.cluster import resolve
from ps_train.cluster.spec import Cluster, Task
from ps_train.config import fields, flag_help
from ps_train.config.fields import field
from ps_train.config.folders import problem_of_data_dir
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ConfigError, refuse
from ps_train.launch import supervision
from ps_train.launch.process import killed_with_parent
from ps_train.parts.doctor import machine, network, store
from ps_train.parts.doctor.machine import FAIL, OK, WARN, Finding
from ps_train.parts.object_store.flags import StoreFlags, protocol_of
from ps_train.parts.ssh import hosts, preflight
from ps_train.parts.ssh.hosts import Host, RemoteFlags, RemoteShell
from ps_train.runtime import logs
from ps_train.verbs.verb import Verb

_DATA_SECS = 120.0


@dataclasses.dataclass(frozen=True)
class DoctorConfig:
    """The flags of `ps_train doctor`, checked.

    Raises:
      ConfigError: values are not allowed, or flags do not fit each other.
    """

    ps_hosts: str = fields.redeclare(Config, "ps_hosts", default="", form=None, unset="none: only this machine")
    worker_hosts: str = fields.redeclare(Config, "worker_hosts", default="", form=None, unset="none: only this machine")
    job_name: Optional[str] = fields.redeclare(  # an evaluator has no address, so there is nothing to measure
        Config, "job_name", choices=("ps", "worker"), help="Job of this task: it takes its place, waits for the "
        "others, and measures the network.")
    task_index: Optional[int] = fields.redeclare(Config, "task_index")
    num_ps: int = fields.redeclare(LaunchConfig, "num_ps")
    num_workers: int = fields.redeclare(LaunchConfig, "num_workers")
    base_port: int = fields.redeclare(LaunchConfig, "base_port")
    hosts: str = fields.redeclare(RemoteFlags, "hosts")
    ssh_command: str = fields.redeclare(RemoteFlags, "ssh_command")
    remote_dir: str = fields.redeclare(RemoteFlags, "remote_dir")
    remote_python: str = fields.redeclare(RemoteFlags, "remote_python")
    env: str = fields.redeclare(RemoteFlags, "env")
    train_dir: str = fields.redeclare(StoreFlags, "train_dir")
    data_dir: str = fields.redeclare(Config, "data_dir")
    dataset: str = fields.redeclare(Config, "dataset")
    model: str = fields.redeclare(Config, "model")
    params: str = fields.redeclare(Config, "params")
    peer_timeout_secs: float = field(30.0, "What to examine", "How long to wait for the other tasks.", unit="seconds",
                                     above=0, maximum=3600)

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), DoctorConfig) + RemoteFlags().part_problems(self))
        if bool(self.ps_hosts) != bool(self.worker_hosts):
            raise ConfigError("flag_missing", "--ps_hosts and --worker_hosts: only one of them is given; give both, or "
                              "neither to examine this machine")
        if self.job_name is not None and not self.ps_hosts:
            raise ConfigError("flag_without_effect", "--job_name: given without --ps_hosts and --worker_hosts; give "
                              "them too, or omit it")
        if self.task_index is not None and self.job_name is None:
            raise ConfigError("flag_without_effect", "--task_index: given without --job_name; give that too, or omit "
                              "it")


def parse_doctor(argv: Sequence[str]) -> DoctorConfig:
    """Returns the flags of a command line; raises ConfigError if it is wrong."""
    values, _ = fields.parse_flags(argv, DoctorConfig, help_command="ps_train doctor --help")
    return DoctorConfig(**values)


def examine(config: DoctorConfig) -> None:
    """Prints the findings, each as soon as its check ends.

    Raises:
      ConfigError: the flags do not describe a cluster or hosts, or a check failed.
    """
    cluster = remote = None
    if config.ps_hosts:
        cluster = resolve.find_cluster(ps_hosts=config.ps_hosts, worker_hosts=config.worker_hosts,
                                       job_name=config.job_name or "ps",
                                       task_index=config.task_index if config.job_name else 0)
    if config.hosts:
        remote = hosts.make_remote_shell(config), hosts.read_hosts(config.hosts)
        hosts.refuse_loopback(remote[1])
    num_failed = 0
    for finding in _findings(config, cluster, remote):
        logs.show(finding.line())
        num_failed += finding.verdict == FAIL
    if num_failed:
        raise ConfigError("checks_failed", f"{num_failed} check{'s' * (num_failed > 1)} failed; each line with `fail` "
                          "says what to do")


def _findings(
    config: DoctorConfig, cluster: Cluster | None, remote: tuple[RemoteShell, list[Host]] | None
) -> Iterator[Finding]:
    is_alone = cluster is None and remote is None
    num_tasks = config.num_ps + config.num_workers if is_alone else 1
    yield from machine.software()
    yield from machine.processor(num_tasks)
    yield machine.gpus()
    yield machine.host_name()
    if is_alone:
        yield machine.free_ports(num_tasks, config.base_port)
    if config.train_dir:
        yield from store.store_folder(config.train_dir) if protocol_of(config.train_dir) else machine.folder(
            config.train_dir)
    yield check_data(config)
    if remote is not None:
        yield from _over_ssh(*remote, config.base_port)
    if cluster is not None:
        tasks: list[Task] = [*cluster.ps, *cluster.workers]
        yield from (network.lookups(tasks) if config.job_name is None
                    else network.meet_others(cluster, tasks, config.peer_timeout_secs))


def check_data(config: DoctorConfig) -> Finding:
    """Loads the dataset in another process, and fetches it if it is missing, as a training would.

    A fault is only a warning where no worker of the cluster reads the data on this machine.
    """
    finding = _load_data(config)
    if finding.verdict == FAIL and (config.hosts or config.job_name == "ps"):
        return Finding(WARN, "data", f"{finding.text} (only machines with workers need it)")
    return finding


def _load_data(config: DoctorConfig) -> Finding:
    if config.data_dir != DoctorConfig.data_dir and (problem := problem_of_data_dir(config.data_dir)):
        return Finding(FAIL, "data", problem)  # a dataset that downloads its files would create the folder
    # In its own process: a dataset imports TensorFlow, and may hang.
    # The model is only loaded: some of the parameters may be its own.
    given = [name for name in ("dataset", "model", "params", "data_dir") if getattr(config, name)]
    command = [sys.executable, "-m", "ps_train", "--download_only", *fields.as_flags(config, given)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_DATA_SECS,
                               check=False, preexec_fn=killed_with_parent())
    except subprocess.TimeoutExpired:
        return Finding(FAIL, "data", f"{config.dataset} was not ready within {_DATA_SECS:g} s: fetch it first, with "
                                     "`ps_train --download_only`")
    if ended.returncode:
        message = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        # `launch` then trains on the synthetic digits by itself.
        verdict = WARN if config.dataset == DoctorConfig.dataset else FAIL
        return Finding(verdict, "data", f"{config.dataset}: {message.removeprefix('ps_train: ')}")
    return Finding(OK, "data", f"{config.dataset} is ready")


def _over_ssh(shell: RemoteShell, remote_hosts: Sequence[Host], first_port: int) -> Iterator[Finding]:
    """Yields whether each host of --hosts can run tasks, as a launch asks."""
    with supervision.noted_signals() as signals:
        try:
            with preflight.reserved_hosts(shell, dict.fromkeys(remote_hosts, 1), first_port, signals) as reserved:
                ports_of_hosts = dict(reserved)
        except ConfigError as error:
            yield from (Finding(FAIL, "ssh", problem) for problem in error.problems)
            return
    for host, ports in ports_of_hosts.items():
        yield Finding(OK, "ssh", f"{host} answers, with the same ps_train and TensorFlow; port {ports[0]} is free")


DOCTOR = Verb(
    usage="""\
  ps_train doctor [--ps_hosts=... --worker_hosts=... [--job_name=JOB]]
           Examine this machine, and the network between the tasks.""",
    run=lambda argv: examine(parse_doctor(argv)), flags_help=lambda _: flag_help.help_text(DoctorConfig))
