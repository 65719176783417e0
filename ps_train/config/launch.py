"""The flags of `ps_train launch`, beside those of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.fields import field
from ps_train.config.task import Config
from ps_train.errors import refuse

_LAUNCH = "Launching a whole cluster on this machine"


@dataclasses.dataclass(frozen=True)
class LaunchConfig:
    """What `ps_train launch` adds to the flags of a task."""

    num_ps: int = field(2, _LAUNCH, "Parameter servers to start.", minimum=1)
    num_workers: int = field(2, _LAUNCH, "Workers to start, the chief among them.", minimum=1)
    tmux: bool = field(False, _LAUNCH, "Open a tmux pane for each task instead of one merged output.")
    max_restarts: int = field(
        0, _LAUNCH, "Start a task again that was lost or killed, up to so many times per task, after a growing pause.",
        unit="restarts", minimum=0)
    log_dir: str = field("", _LAUNCH, "Folder of the tasks' log files.", unit="path", unset="logs in train_dir")

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), LaunchConfig))


PLACED_BY_LAUNCH = frozenset({"job_name", "task_index", "ps_hosts", "worker_hosts", "existing_servers"})


def parse_launch(argv: Sequence[str]) -> tuple[Config, LaunchConfig]:
    """Returns what each task is told, with `given`, and what the launcher itself is told.

    Raises:
      ConfigError: the command line is wrong, or it places the tasks, which is the launcher's work.
    """
    values, given = fields.parse(argv, LaunchConfig, Config)
    refuse([f"--{name}: launch places the tasks itself; leave it out, and give --num_ps and --num_workers"
            for name in sorted(given & PLACED_BY_LAUNCH)])
    own = {name: values.pop(name) for name in fields.rules(LaunchConfig)}
    return Config(**values, given=given - set(own)), LaunchConfig(**own)
