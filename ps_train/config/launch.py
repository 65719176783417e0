"""Declares the flags of `ps_train launch` beside those of its tasks, and parses its command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.fields import field
from ps_train.config.task import Config
from ps_train.errors import refuse

_LAUNCH = "Launching a cluster on this machine"


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

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), LaunchConfig))


PLACED_BY_LAUNCH = frozenset({"job_name", "task_index", "ps_hosts", "worker_hosts", "existing_servers"})


def parse_launch(argv: Sequence[str]) -> tuple[Config, LaunchConfig]:
    """Returns the Config of the tasks and the LaunchConfig of the launcher.

    Raises:
      ConfigError: the command line is wrong, or gives flags that the launcher sets for each task itself.
    """
    values, given = fields.parse_flags(argv, LaunchConfig, Config)
    refuse([f"--{name}: launch places the tasks itself; leave it out, and give --num_ps and --num_workers"
            for name in sorted(given & PLACED_BY_LAUNCH)])
    own = {name: values.pop(name) for name in fields.rules(LaunchConfig)}
    return Config(**values, given=given - set(own)), LaunchConfig(**own)
