"""The port of a task: whether it is free, and how its server binds one that a launcher keeps free for it.

    launcher: hold_ports (launch/machines.py) --> socket --inherited--> task: release_held_port --> its server binds it

docs/decisions/processes.md says more.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys

from ps_train.cluster import addresses
from ps_train.cluster.spec import Task
from ps_train.errors import ConfigError

_log = logging.getLogger(__name__)
HELD_PORT_VARIABLE = "PS_TRAIN_HELD_PORT_FD"  # holds the file descriptor of the socket that a task inherits
CAN_SHARE_PORT = sys.platform == "linux"  # whether a server with SO_REUSEADDR may bind the port of such a socket


def release_held_port() -> None:
    """Lets this process's server bind the port that a launcher kept free for it; does nothing without a launcher."""
    if descriptor := os.environ.pop(HELD_PORT_VARIABLE, ""):
        let_server_bind(socket.socket(fileno=int(descriptor)))


def let_server_bind(holder: socket.socket) -> None:
    """Lets a server of this process bind a held port, which stays taken for others until the process ends."""
    if CAN_SHARE_PORT:
        # On Linux a server that sets SO_REUSEADDR, as gRPC's does, may bind the port of a socket that also sets it and
        # does not listen. The socket stays open until the process ends, so no other launcher can take the port.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.detach()
    else:
        holder.close()  # BSD and macOS would not let the server share the port


def check_port(task: Task) -> None:
    """Checks that the task's port is free: TensorFlow would only say "Could not start gRPC server".

    Warns if the task's address seems to belong to another machine.

    Raises:
      ConfigError: the port is in use, or this user may not open it; the error says how to find its holder.
    """
    why_not_here = addresses.why_not_here(task.address)
    if why_not_here:  # only a warning: behind a NAT, a proxy or a Kubernetes service such an address is right
        _log.warning("%s: its host %s; other tasks can reach it only through a NAT, a proxy or a service; without one, "
                     "start it on the machine of that name, or correct --task_index or the list of hosts", task,
                     why_not_here)
    port = addresses.port_of(task.address)
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            return  # no IPv6 on this machine, for example: TensorFlow's own attempt decides
        if error.errno == errno.EACCES:
            raise ConfigError("port_forbidden", f"port {port} of {task} may not be opened by this user; give the task "
                              "another port") from None
        raise ConfigError("port_busy", f"port {port} of {task} is in use by another process; give the task another "
                          f"port, or find the process with `ss -ltnp 'sport = :{port}'`") from None
