"""The flags of `ps_train doctor`, and the cluster or hosts that they name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Optional

from ps_train.config import fields
from ps_train.config.fields import field
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ConfigError, refuse
from ps_train.parts.ssh.flags import RemoteFlags

_DOCTOR = "What to examine"


@dataclasses.dataclass(frozen=True)
class DoctorConfig:
    """The flags of `ps_train doctor`, checked.

    Raises:
      ConfigError: a value is not allowed; the message names each one.
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
    train_dir: str = fields.redeclare(Config, "train_dir")
    data_dir: str = fields.redeclare(Config, "data_dir")
    dataset: str = fields.redeclare(Config, "dataset")
    peer_timeout_secs: float = field(30.0, _DOCTOR, "How long to wait for the other tasks.", unit="seconds", above=0,
                                     maximum=3600)

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), DoctorConfig) + RemoteFlags.part_problems(self, self))
        if bool(self.ps_hosts) != bool(self.worker_hosts):
            raise ConfigError("--ps_hosts and --worker_hosts: only one of them is given; give both, or none to examine "
                              "this machine")
        if self.job_name is not None and not self.ps_hosts:
            raise ConfigError("--job_name: given without --ps_hosts and --worker_hosts; give them too, or leave it out")
        if self.task_index is not None and self.job_name is None:
            raise ConfigError("--task_index: given without --job_name; give that too, or leave it out")


def parse_doctor(argv: Sequence[str]) -> DoctorConfig:
    """Returns the flags of a command line.

    Raises:
      ConfigError: it is wrong.
    """
    values, _ = fields.parse_flags(argv, DoctorConfig, help_command="ps_train doctor --help")
    return DoctorConfig(**values)
