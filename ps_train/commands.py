"""The command line of each task of a cluster on this machine.

    Crew       which tasks there are, and how each of them is told who is who
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence

from ps_train import flagset
from ps_train.config import Config, LaunchConfig


@dataclasses.dataclass(frozen=True)
class Crew:
    """The tasks that a launcher starts.

    Attributes:
      names: `ps:0` and so on: the ps first, then the chief.
      chief: the name of the task whose progress is that of the cluster.
      verb: the words between `python -m ps_train` and the flags.
      host_flags: job -> the flag that takes its addresses; empty for a single task that needs none.
    """

    names: Sequence[str]
    chief: str
    verb: Sequence[str]
    host_flags: Mapping[str, str]


def crew_of(launch_config: LaunchConfig) -> Crew:
    """Returns the tasks of the classic cluster."""
    names = [f"{job}:{index}" for job, count in (("ps", launch_config.num_ps), ("worker", launch_config.num_workers))
             for index in range(count)]
    return Crew(names, "worker:0", (), {"ps": "ps_hosts", "worker": "worker_hosts"})


def task_flags(config: Config) -> list[str]:
    """Returns the flags, as on a command line, that the user gave for every task."""
    flags = []
    for name, (_, kind, _) in flagset.rules(type(config)).items():
        if name in config.given and name != "download_only":
            value = getattr(config, name)
            flags.append(f"--{'' if value else 'no'}{name}" if kind is bool else f"--{name}={value}")
    return flags


def command_lines(crew: Crew, ports: Sequence[int], config: Config) -> list[list[str]]:
    """Returns each task's command line after `python -m ps_train`."""
    hosts: dict[str, list[str]] = {job: [] for job in crew.host_flags}
    if not hosts:
        return [[*crew.verb, *task_flags(config)] for _ in crew.names]
    for name, port in zip(crew.names, ports):
        hosts[name.partition(":")[0]].append(f"localhost:{port}")
    cluster = [f"--{crew.host_flags[job]}={','.join(addresses)}" for job, addresses in hosts.items()]
    return [[*crew.verb, *cluster, f"--job_name={job}", f"--task_index={index}", *task_flags(config)]
            for job, _, index in (name.partition(":") for name in crew.names)]


def interpreter(executable: str, working_dir: str, search_path: str | None) -> str:
    """Returns the shortest name under which a person in the working directory can start this Python."""
    for name in ("python", "python3"):
        found = shutil.which(name, path=search_path)
        if found and os.path.dirname(os.path.abspath(found)) == os.path.dirname(executable):
            return name
    inside = os.path.relpath(executable, working_dir)
    return executable if inside.startswith(os.pardir) else inside


def on_this_python(flags: Sequence[str]) -> list[str]:
    """Returns the command of a task with these flags, for a subprocess."""
    return [sys.executable, "-m", "ps_train", *flags]


def announcement(lines: Sequence[Sequence[str]], log_dir: str) -> str:
    """Returns what tells a person how to start the same tasks by hand, and where the logs are."""
    working_dir = os.getcwd()
    python = interpreter(sys.executable, working_dir, None)
    return "\n".join([
        f"Starting {len(lines)} tasks; by hand these would be the commands, one per terminal, in {working_dir}:",
        *("  " + shlex.join([python, "-m", "ps_train", *line]) for line in lines),
        f"Logs: {log_dir}"])
