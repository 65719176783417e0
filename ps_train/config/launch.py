"""Declares the flags of `ps_train launch` beside those of its tasks, and parses its command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, TypeVar

from ps_train.config import fields
from ps_train.config.fields import field
from ps_train.config.groups import ModelFlags
from ps_train.config.task import Config
from ps_train.errors import refuse

_LAUNCH = "Launching a cluster on this machine"
_REMOTE = "Launching on other machines"
_TaskConfig = TypeVar("_TaskConfig", bound=ModelFlags)


@dataclasses.dataclass(frozen=True)
class LaunchConfig:
    """The flags of `ps_train launch` beside those of its tasks."""

    num_ps: int = field(2, _LAUNCH, "Parameter servers to start.", minimum=1)
    num_workers: int = field(2, _LAUNCH, "Workers to start, including the chief.", minimum=1)
    tmux: bool = field(False, _LAUNCH, "Show each task in a tmux pane of its own instead of merging the output.")
    max_restarts: int = field(
        0, _LAUNCH, "How often to restart each task that was lost or killed, after a growing pause.",
        unit="restarts", minimum=0)
    log_dir: str = field("", _LAUNCH, "Folder for the tasks' log files.", unit="path", unset="logs in train_dir")
    base_port: int = field(2222, _LAUNCH, "First port to try on each machine.", unit="port", minimum=1, maximum=65535)
    hosts: str = field("", _REMOTE, "Machines for the tasks, over ssh: a file with lines `host slots=N`, or "
                       "host:slots,... (docs/ssh.md).", unset="this machine")
    task_placement: str = field("round_robin", _REMOTE, "Deal the tasks out to the hosts in turn, ps first, or fill "
                                "the slots of a host before the next.", choices=("round_robin", "fill"))
    ssh_command: str = field("ssh", _REMOTE, "How to call ssh, with its options, such as 'ssh -p 2222 -i KEY'.")
    remote_dir: str = field("", _REMOTE, "Working directory on the hosts.", unit="path", unset="the path of this one")
    remote_python: str = field("", _REMOTE, "Python on the hosts.", unit="path", unset="the path of this one")
    env: str = field("", _REMOTE, "Environment variables for the tasks on the hosts, NAME or NAME=value, beside "
                     "PYTHONPATH and TF_*.", unset="no others")

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), LaunchConfig) + without_hosts(vars(self), LaunchConfig))


def without_hosts(values: Mapping[str, Any], flags_class: type) -> list[str]:
    """Returns a line for each flag about other machines that is given although --hosts is not."""
    return [f"--{name}: has an effect only with --hosts; leave it out, or give --hosts"
            for name, (rule, _, default) in fields.rules(flags_class).items()
            if rule.group == _REMOTE and values[name] != default and not values["hosts"]]


PLACED_BY_LAUNCH = frozenset({"job_name", "task_index", "ps_hosts", "worker_hosts", "existing_servers"})


def parse_launch(argv: Sequence[str]) -> tuple[Config, LaunchConfig]:
    """Returns the Config of the tasks and the LaunchConfig of the launcher.

    Raises:
      ConfigError: the command line is wrong, or gives flags that the launcher sets for each task itself.
    """
    return parse_launch_of(Config, argv, PLACED_BY_LAUNCH)


def parse_launch_of(
    task_class: type[_TaskConfig], argv: Sequence[str], placed: Collection[str], others: Sequence[type] = (),
    more_problems: Callable[[Mapping[str, Any], frozenset[str]], list[str]] = lambda values, given: [],
) -> tuple[_TaskConfig, LaunchConfig]:
    """Returns the configuration of the tasks, of any verb, and that of the launcher.

    Args:
      task_class: the flags of a task.
      argv: the command line, without program and verb.
      placed: the flags that place a task.
      others: classes with flags of other verbs, see `fields.parse_flags`.
      more_problems: finds further problems in the values of all flags and the names of those that were given.

    Raises:
      ConfigError: the command line is wrong, or it places the tasks, which is the launcher's job.
    """
    values, given = fields.parse_flags(argv, LaunchConfig, task_class, others=others)
    refuse([f"--{name}: launch places the tasks itself; leave it out, and give --num_ps and --num_workers"
            for name in sorted(given & set(placed))] + more_problems(values, given))
    own = {name: values.pop(name) for name in fields.rules(LaunchConfig)}
    return task_class(**values, given=given - own.keys()), LaunchConfig(**own)
