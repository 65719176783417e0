"""The flags of `ps_train status`, `save`, `stop` and `resume`, which watch and control a running training."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from ps_train.cluster.addresses import parse_hosts
from ps_train.config import fields
from ps_train.errors import refuse

_field = functools.partial(fields.field, group="Watching and controlling")


@dataclasses.dataclass(frozen=True)
class ControlConfig:
    """Where the training is.

    Raises:
      ConfigError: a value is not allowed or missing; the message names each one.
    """

    train_dir: str = _field("", help="Folder of the training.", unit="path", unset="none")
    ps_hosts: str = _field("", help="Addresses of its parameter servers, where the folder cannot be reached.",
                           unit="host:port,...", unset="those in the folder",
                           form=lambda name, hosts: hosts and parse_hosts(name, hosts))
    timeout_secs: float = _field(60.0, help="Wait this long for the answer.", unit="seconds", minimum=0.1)
    tf_log: bool = _field(False, help="Show the start-up messages of TensorFlow.")

    def __post_init__(self) -> None:
        refuse(self._common_problems())

    def _common_problems(self) -> list[str]:
        problems = fields.problems(vars(self), type(self))
        if not self.train_dir and not self.ps_hosts:
            problems.append("--train_dir: not given; give the folder of the training, or --ps_hosts")
        return problems


@dataclasses.dataclass(frozen=True)
class StatusConfig(ControlConfig):
    """The flags of `ps_train status`, checked; raises as `ControlConfig` does."""

    json: bool = _field(False, help="Print one line of JSON.")
    watch: bool = _field(False, help="Print the status again and again, until Ctrl-C.")
    watch_secs: float = _field(2.0, help="Time between two looks with --watch.", unit="seconds", minimum=0.1)


def parse_control(argv: Sequence[str], verb: str, cls: type = ControlConfig) -> ControlConfig:
    """Returns the flags of a command line; raises ConfigError if it is wrong."""
    values, _ = fields.parse_flags(argv, cls, help_command=f"ps_train {verb} --help")
    return cls(**values)
