"""The flags of tasks on other machines."""

from __future__ import annotations

import dataclasses
from typing import Any

from ps_train.config import fields
from ps_train.config.fields import field

_REMOTE = "Launching on other machines"


@dataclasses.dataclass(frozen=True)
class RemoteFlags:
    """On which machines the tasks run, and how they are reached."""

    hosts: str = field("", _REMOTE, "Machines for the tasks, over ssh: a file with lines `host slots=N`, or "
                       "host:slots,... (docs/ssh.md).", unset="this machine")
    task_placement: str = field("round_robin", _REMOTE, "Deal the tasks out to the hosts in turn, ps first, or fill "
                                "the slots of a host before the next.", choices=("round_robin", "fill"))
    ssh_command: str = field("ssh", _REMOTE, "How to call ssh, with its options, such as 'ssh -p 2222 -i KEY'.")
    remote_dir: str = field("", _REMOTE, "Working directory on the hosts.", unit="path", unset="the path of this one")
    remote_python: str = field("", _REMOTE, "Python on the hosts.", unit="path", unset="the path of this one")
    env: str = field("", _REMOTE, "Environment variables for the tasks on the hosts, NAME or NAME=value, in addition "
                     "to PYTHONPATH and TF_*.", unset="no others")

    def part_problems(self, config: Any) -> list[str]:
        """Returns a line for each flag about other machines that has no effect without --hosts."""
        return [f"--{name}: has an effect only with --hosts; leave it out, or give --hosts"
                for name, (rule, _, default) in fields.rules(type(self)).items()
                if rule.group == _REMOTE and getattr(self, name) != default and not self.hosts]
