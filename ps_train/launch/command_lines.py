"""The command line of each task of a cluster on this machine, and the commands that the launcher recommends."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ps_train.config import fields
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class TaskList:
    """The tasks that a launcher starts.

    Attributes:
      names: `ps:0` and so on: the ps first, then the chief, then the other workers.
      chief: the name of the task whose progress is that of the cluster.
      verb: the words between `python -m ps_train` and the flags.
      host_flags: job -> the flag for its addresses; empty for a single task, which needs none.
    """

    names: Sequence[str]
    chief: str
    verb: Sequence[str]
    host_flags: Mapping[str, str]


def task_list(launch_config: LaunchConfig) -> TaskList:
    """Returns the tasks of a cluster of ps and workers."""
    names = [f"{job}:{index}" for job, count in (("ps", launch_config.num_ps), ("worker", launch_config.num_workers))
             for index in range(count)]
    return TaskList(names, "worker:0", (), {"ps": "ps_hosts", "worker": "worker_hosts"})


def task_flags(config: Config) -> list[str]:
    """Returns the flags that the user gave for every task, as on a command line."""
    return fields.as_flags(config, config.given - {"download_only"})


def command_lines(
    tasks: TaskList, ports: Sequence[int], config: Config, machines: Sequence[str] = ()
) -> list[list[str]]:
    """Returns the command line of each task, without `python -m ps_train`.

    Args:
      ports: of each task.
      machines: the host name of each task; none if all run on this machine.
    """
    hosts: dict[str, list[str]] = {job: [] for job in tasks.host_flags}
    if not hosts:
        return [[*tasks.verb, *task_flags(config)] for _ in tasks.names]
    for name, port, machine in zip(tasks.names, ports, machines or ["localhost"] * len(tasks.names)):
        hosts[name.partition(":")[0]].append(f"{machine}:{port}")
    cluster = [f"--{tasks.host_flags[job]}={','.join(addresses)}" for job, addresses in hosts.items()]
    return [[*tasks.verb, *cluster, f"--job_name={job}", f"--task_index={index}", *task_flags(config)]
            for job, _, index in (name.partition(":") for name in tasks.names)]


def preparation(tasks: TaskList, config: Config) -> list[str]:
    """Returns the arguments of `python -m ps_train` that fetch the data and build the chief's graph once."""
    if config.download_only:
        return [*tasks.verb, "--download_only", *task_flags(config)]
    no_ports = range(1, len(tasks.names) + 1)  # it opens no socket
    return [*command_lines(tasks, no_ports, config)[tasks.names.index(tasks.chief)], "--download_only"]


def interpreter(executable: str, working_dir: str, search_path: str | None) -> str:
    """Returns the shortest name with which a user in the working directory can start this Python."""
    for name in ("python", "python3"):
        path = shutil.which(name, path=search_path)
        if path and os.path.dirname(os.path.abspath(path)) == os.path.dirname(executable):
            return name
    inside = os.path.relpath(executable, working_dir)
    return executable if inside.startswith(os.pardir) else inside


def on_this_python(line: Sequence[str]) -> list[str]:
    """Returns the command of a subprocess that runs a command line of ps_train."""
    return [sys.executable, "-m", "ps_train", *line]


def tensorboard(train_dir: str) -> str:
    """Returns the command that shows the curves of a training, and the one that installs TensorBoard if needed."""
    python = interpreter(sys.executable, os.getcwd(), None)
    show = shlex.join([python, "-m", "tensorboard.main", f"--logdir={train_dir}"])
    if importlib.util.find_spec("tensorboard") is None:
        return f"{show}  (it is not installed: {shlex.quote(python)} -m pip install tensorboard)"
    return show


def announcement(lines: Sequence[Sequence[str]], log_dir: str) -> str:
    """Returns the lines that say how to start the same tasks by hand, and where the logs are."""
    return "\n".join([
        f"Starting {len(lines)} tasks; by hand these would be the commands, one per terminal, in {os.getcwd()}:",
        *("  " + typed(line) for line in lines),
        f"Logs: {log_dir}"])


def continuation(tasks: TaskList, config: Config, launch_config: LaunchConfig) -> str:
    """Returns the lines that say how to continue a training that was stopped, in the same folder."""
    return f"To continue this training, in {os.getcwd()}:\n  {typed(launch_line(tasks, config, launch_config))}"


def launch_line(tasks: TaskList, config: Config, launch_config: LaunchConfig) -> list[str]:
    """Returns the command line of this launch in its folder, without `python -m ps_train`."""
    chosen = [name for name, (_, _, default) in fields.rules(LaunchConfig).items()
              if getattr(launch_config, name) != default]
    return ["launch", *tasks.verb, *fields.as_flags(launch_config, chosen), *task_flags(config)]


def typed(line: Sequence[str]) -> str:
    """Returns a command line of ps_train as a user would type it in the working directory."""
    return shlex.join([interpreter(sys.executable, os.getcwd(), None), "-m", "ps_train", *line])


def flag_text(value: Any) -> str:
    """Returns the value of a flag, of any type that a program gives it, as on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_item_text(name, item)}" for name, item in value.items() if item is not None)
    if isinstance(value, (list, tuple)):
        return ",".join(map(flag_text, value))
    return str(value)


def _item_text(name: str, item: Any) -> str:
    text = flag_text(item)
    if "," in text:
        raise ConfigError("flag_malformed", f"{name}: got {item!r}; allowed: a value without a comma, which separates "
                          "the items of a flag")
    return text
