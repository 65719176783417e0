"""Declares the launcher's own flags of `ps_train launch`, and parses its command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, TypeVar

from ps_train.cluster.tf_config import LARGEST_INDEX
from ps_train.config import fields
from ps_train.config.fields import field
from ps_train.config.groups import LAUNCH, ModelFlags
from ps_train.config.task import Config
from ps_train.errors import Problem, refuse
from ps_train.parts import table

_PART_FLAGS = [table.attribute_of(row, *row.launch_flags.split(":")) for row in table.TABLE if row.launch_flags]
# Those with which a part finds the cluster of a single task.
_PLACING = [table.attribute_of(row, "flags", row.flags) for row in table.TABLE if row.cluster]
PLACED_BY_PARTS = frozenset(field.name for flags in _PLACING for field in dataclasses.fields(flags))
PLACED_BY_LAUNCH = PLACED_BY_PARTS | {"job_name", "task_index", "ps_hosts", "worker_hosts", "existing_servers"}
_TaskConfig = TypeVar("_TaskConfig", bound=ModelFlags)


@dataclasses.dataclass(frozen=True)
class LaunchFlags:
    """How many tasks to launch, and how."""

    num_ps: int = field(2, LAUNCH, "Parameter servers to start.", minimum=1, maximum=LARGEST_INDEX + 1)
    num_workers: int = field(2, LAUNCH, "Workers to start, including the chief.", minimum=1, maximum=LARGEST_INDEX + 1)
    max_restarts: int = field(
        0, LAUNCH, "How often to restart each lost task: at once if it ran for 30 s, else after a growing pause.",
        unit="restarts", minimum=0)
    log_dir: str = field("", LAUNCH, "Folder for the tasks' log files.", unit="path", unset="logs in train_dir")
    base_port: int = field(2222, LAUNCH, "First port to try on each machine.", unit="port", minimum=1, maximum=65535)


@dataclasses.dataclass(frozen=True)
class LaunchConfig(LaunchFlags, *_PART_FLAGS):  # type: ignore[misc]
    """The launcher's own flags of `ps_train launch`; raises ConfigError if they are wrong."""

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), LaunchConfig)
        refuse(problems + [line for flags in _PART_FLAGS for line in flags.part_problems(self, self)])


def parse_launch(argv: Sequence[str]) -> tuple[Config, LaunchConfig]:
    """Returns the Config of the tasks and the LaunchConfig of the launcher.

    Raises:
      ConfigError: the command line is wrong, or gives flags that the launcher sets for each task itself.
    """
    return parse_launch_of(Config, argv, PLACED_BY_LAUNCH)


def parse_launch_of(
    task_class: type[_TaskConfig], argv: Sequence[str], placed: Collection[str], others: Sequence[type] = (),
    more_problems: Callable[[Mapping[str, Any], frozenset[str]], list[Problem]] = lambda values, given: [],
) -> tuple[_TaskConfig, LaunchConfig]:
    """Returns the configuration of the tasks, of any verb, and that of the launcher.

    Args:
      task_class: the flags of a task.
      argv: the command line, without program and verb.
      placed: the flags that place a task.
      others: classes with flags of other verbs, see `fields.parse_flags`.
      more_problems: finds further problems in the values of all flags and the names of those on the command line.

    Raises:
      ConfigError: the command line is wrong, or it places the tasks, which is the launcher's job.
    """
    values, given = fields.parse_flags(argv, LaunchConfig, task_class, others=others)
    refuse([Problem("flag_set_by_launch",
                    f"--{name}: launch places the tasks itself; leave it out, and give --num_ps and --num_workers")
            for name in sorted(given & set(placed))] + more_problems(values, given))
    launch_values = {name: values.pop(name) for name in fields.rules(LaunchConfig)}
    return task_class(**values, given=given - launch_values.keys()), LaunchConfig(**launch_values)
