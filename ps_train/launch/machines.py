"""Where the tasks of a launch run: as processes here, or on the hosts of --hosts over ssh.

    ThisMachine, OtherMachines   reserve ports for the tasks, and say with which local command each one starts
"""

from __future__ import annotations

import collections
import contextlib
import os
import socket
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ps_train.cluster import ports
from ps_train.config.launch import LaunchConfig
from ps_train.launch import command_lines
from ps_train.launch.command_lines import TaskList
from ps_train.parts.ssh import hosts, preflight
from ps_train.parts.ssh.hosts import Host, RemoteShell

_NO_MORE: Mapping[str, str] = types.MappingProxyType({})


class Place(NamedTuple):
    """Where a task runs: the address that others use, its port, and the socket here that reserves the port."""

    address: str
    port: int
    holder: socket.socket | None


class ThisMachine:
    """All tasks here."""

    def __init__(self, tasks: TaskList, first_port: int) -> None:
        """Reserves nothing yet; `first_port` is the first to try."""
        self._tasks, self._first_port = tasks, first_port

    def reserve(self) -> list[Place]:
        """Returns the place of each task; its port is taken until its socket is closed.

        Raises:
          ConfigError: there are not enough free ports.
        """
        held = ports.hold_ports(len(self._tasks.names), self._first_port)
        return [Place("localhost", holder.getsockname()[1], holder) for holder in held]

    def command(self, name: str, line: Sequence[str], variables: Mapping[str, str] = _NO_MORE) -> list[str]:
        """Returns the command of the process that runs a command line of ps_train in the place of a task.

        Args:
          variables: of the task's environment, which it inherits here.
        """
        return command_lines.on_this_python(line)

    def announcement(self, lines: Sequence[Sequence[str]], log_dir: str) -> str:
        """Returns the text that says how to start the same tasks by hand."""
        return command_lines.announcement(lines, log_dir)


class OtherMachines:
    """Each task on its host, over ssh; see `remote/`."""

    def __init__(self, tasks: TaskList, placed: Sequence[Host], remote: RemoteShell,
                 reserved: dict[Host, list[int]], grace_secs: float) -> None:
        """Takes the host of each task, the ports reserved on each host, and how long a task may take to end."""
        self._tasks, self._remote, self._grace_secs = tasks, remote, grace_secs
        self._host = dict(zip(tasks.names, placed))
        left = {host: list(numbers) for host, numbers in reserved.items()}
        self._port = {name: left[host].pop(0) for name, host in self._host.items()}
        self._is_reserved = False

    def reserve(self) -> list[Place]:
        """Returns the place of each task; a probe on each host reserves the ports."""
        self._is_reserved = True
        return [Place(host.address, self._port[name], None) for name, host in self._host.items()]

    def command(self, name: str, line: Sequence[str], variables: Mapping[str, str] = _NO_MORE) -> list[str]:
        """Returns the command of the local process that runs a command line of ps_train on the host of a task.

        Args:
          variables: of the task's environment there.
        """
        return self._remote.relay_command(self._host[name], name, ["-m", "ps_train", *line], self._grace_secs,
                                          self._port[name] if self._is_reserved else 0, variables)

    def announcement(self, lines: Sequence[Sequence[str]], log_dir: str) -> str:
        """Returns the text that says how to start the same tasks by hand."""
        width = max(len(host.login) for host in self._host.values())
        typed = [f"  {host.login:<{width}}  {self._remote.typed(['-m', 'ps_train', *line])}"
                 for host, line in zip(self._host.values(), lines)]
        return "\n".join([f"Starting {len(lines)} tasks over ssh; by hand these would be the commands, each on its "
                          "host:", *typed, f"Logs, here: {log_dir}"])


@contextlib.contextmanager
def machines_of(
    launch_config: LaunchConfig, tasks: TaskList, signals: Sequence[int], grace_secs: float
) -> Iterator[ThisMachine | OtherMachines]:
    """Yields where the tasks run; with --hosts after all hosts have answered.

    Raises:
      ConfigError: --hosts or a flag beside it is wrong, or a line for each host that cannot run tasks.
      LaunchError: this process was told to stop.
    """
    if not launch_config.hosts:
        yield ThisMachine(tasks, launch_config.base_port)
        return
    placed = hosts.place_tasks(tasks.names, hosts.read_hosts(launch_config.hosts), launch_config.task_placement)
    remote = RemoteShell(
        hosts.split_ssh_command(launch_config.ssh_command), launch_config.remote_dir or os.getcwd(),
        launch_config.remote_python or sys.executable, hosts.chosen_environment(launch_config.env, os.environ))
    counts = collections.Counter(placed)
    with preflight.reserved_hosts(remote, counts, launch_config.base_port, signals) as reserved:
        yield OtherMachines(tasks, placed, remote, reserved, grace_secs)
