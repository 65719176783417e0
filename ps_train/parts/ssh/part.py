"""The part of ssh in a launch: the tasks run on the hosts of --hosts."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps_train.launch.command_lines import TaskList
from ps_train.launch.machines import NO_VARIABLES, Place
from ps_train.launch.part import LaunchPart
from ps_train.parts.ssh import hosts, preflight
from ps_train.parts.ssh.hosts import Host, RemoteShell


class SshPart(LaunchPart):
    """Runs the tasks on other machines, with --hosts."""

    def machines(
        self, launch_config: Any, tasks: TaskList, signals: Sequence[int], grace_secs: float, *, working_dir: str = ""
    ) -> contextlib.AbstractContextManager | None:
        """Returns a context that gives the hosts once all of them have answered, or None without --hosts.

        Raises:
          ConfigError: a flag about hosts is wrong, or hosts cannot run tasks.
          LaunchError: this process was asked to stop.
        """
        if not launch_config.hosts:
            return None
        return _reached_machines(launch_config, tasks, signals, grace_secs=grace_secs, working_dir=working_dir)


class OtherMachines:
    """Each task on its host, over ssh; see `launch.machines.ThisMachine`."""

    is_here = False

    def __init__(self, task_hosts: Mapping[str, Host], shell: RemoteShell, reserved: Mapping[Host, Sequence[int]],
                 grace_secs: float) -> None:
        """Takes the host of each task, the ports reserved on each host, and how long a task may take to end."""
        self._host, self._shell, self._grace_secs = task_hosts, shell, grace_secs
        free_ports = {host: iter(numbers) for host, numbers in reserved.items()}
        self._port = {name: next(free_ports[host]) for name, host in task_hosts.items()}
        self._is_reserved = False

    def reserve(self) -> list[Place]:
        """Returns the place of each task; a probe on each host reserves the ports."""
        self._is_reserved = True
        return [Place(host.address, self._port[name], None) for name, host in self._host.items()]

    def command(self, name: str, line: Sequence[str], variables: Mapping[str, str] = NO_VARIABLES) -> list[str]:
        """Returns the local command that runs a command line of ps_train, with these variables, on a task's host."""
        return self._shell.relay_command(self._host[name], name, ["-m", "ps_train", *line], self._grace_secs,
                                          self._port[name] if self._is_reserved else 0, variables)

    def announcement(self, lines: Sequence[Sequence[str]], log_dir: str) -> str:
        """Returns the lines that show how to start the same tasks by hand."""
        width = max(len(host.login) for host in self._host.values())
        typed = [f"  {host.login:<{width}}  {self._shell.typed(['-m', 'ps_train', *line])}"
                 for host, line in zip(self._host.values(), lines)]
        return "\n".join([f"Starting {len(lines)} tasks over ssh; by hand these would be the commands, each on its "
                          "host:", *typed, f"Logs, here: {log_dir}"])


@contextlib.contextmanager
def _reached_machines(
    launch_config: Any, tasks: TaskList, signals: Sequence[int], *, grace_secs: float, working_dir: str
) -> Iterator[OtherMachines]:
    found = hosts.read_hosts(launch_config.hosts, working_dir)
    task_hosts = hosts.place_tasks(tasks.names, found, launch_config.task_placement)
    shell = hosts.make_remote_shell(launch_config, working_dir)
    counts = collections.Counter(task_hosts)
    with preflight.reserved_hosts(
            shell, counts, launch_config.base_port, signals, working_dir=working_dir) as reserved:
        yield OtherMachines(dict(zip(tasks.names, task_hosts)), shell, reserved, grace_secs)
