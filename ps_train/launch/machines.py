"""Where the tasks of a launch run, and on which ports: here, unless a part has other machines (parts/ssh).

A port stays taken from the time when the launcher chooses it until the server of the task binds it (cluster/ports.py).
"""

from __future__ import annotations

import contextlib
import socket
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_train.errors import ConfigError
from ps_train.launch import command_lines
from ps_train.launch.command_lines import TaskList
from ps_train.launch.part import make_launch_parts

FIRST_PORT = 2222  # the default port of dist_mnist's ps
NO_VARIABLES: Mapping[str, str] = types.MappingProxyType({})


class Place(NamedTuple):
    """Where a task runs: the address that others use, its port, and the socket here that reserves the port."""

    address: str
    port: int
    holder: socket.socket | None


class ThisMachine:
    """All tasks on this machine: reserves their ports, and returns the command of each.

    Attributes:
      is_here: whether the tasks run on this machine.
    """

    is_here = True

    def __init__(self, tasks: TaskList, first_port: int) -> None:
        """Reserves nothing yet; `first_port` is the first to try."""
        self._tasks, self._first_port = tasks, first_port

    def reserve(self) -> list[Place]:
        """Returns the place of each task; its port is taken until its socket is closed.

        Raises:
          ConfigError: there are not enough free ports.
        """
        held = hold_ports(len(self._tasks.names), self._first_port)
        return [Place("localhost", holder.getsockname()[1], holder) for holder in held]

    def command(self, name: str, line: Sequence[str], variables: Mapping[str, str] = NO_VARIABLES) -> list[str]:
        """Returns the command of the process that runs a command line of ps_train for a task.

        Args:
          variables: of the task's environment, which it inherits here.
        """
        return command_lines.on_this_python(line)

    def announcement(self, lines: Sequence[Sequence[str]], log_dir: str) -> str:
        """Returns the lines that say how to start the same tasks by hand."""
        return command_lines.announcement(lines, log_dir)


def machines_of(
    launch_config: Any, tasks: TaskList, signals: Sequence[int], grace_secs: float, *, working_dir: str = ""
) -> contextlib.AbstractContextManager:
    """Returns a context that gives the machines of the tasks: those of a part, or `ThisMachine`.

    Args:
      launch_config: the LaunchConfig, or another one with the flags that say on which machines the tasks run.
      working_dir: that of the launch; "" for that of this process.

    Raises:
      ConfigError: a flag of the part is wrong, or a line for each machine that cannot run tasks.
      LaunchError: this process was asked to stop.
    """
    for part in make_launch_parts():
        machines = part.machines(launch_config, tasks, signals, grace_secs, working_dir=working_dir)
        if machines is not None:
            return machines
    return contextlib.nullcontext(ThisMachine(tasks, launch_config.base_port))


def hold_ports(count: int, first: int = FIRST_PORT) -> list[socket.socket]:
    """Returns sockets bound to the `count` lowest free ports from `first`, which are taken while the sockets are open.

    Raises:
      ConfigError: fewer than `count` ports are free.
    """
    held: list[socket.socket] = []
    for port in range(first, 65536):
        if len(held) == count:
            break
        held += _hold(port)
    if len(held) == count:
        return held
    for holder in held:
        holder.close()
    raise ConfigError("too_few_ports", f"{count} tasks need {count} ports, but only {len(held)} are free from {first} "
                      "on; start fewer tasks, or end the processes that hold ports (`ss -ltnp`)")


def _hold(port: int) -> list[socket.socket]:
    """Returns [socket], or [] if the port is taken."""
    dual_stack = socket.has_dualstack_ipv6()
    # Without SO_REUSEADDR: a second launcher then cannot bind a port that another one holds or has released to a task.
    holder = socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET)
    try:
        if dual_stack:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.bind(("", port))
    except OSError:
        holder.close()
        return []
    return [holder]
