"""Ports that stay free for a task from when a launcher chooses them until the task's server binds.

    hold_ports --> sockets --inherited by the task--> release_held_port --> its server binds
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
FIRST_PORT = 2222  # the default port of dist_mnist's ps
HELD_PORT_VARIABLE = "PS_TRAIN_HELD_PORT_FD"  # names the inherited socket that keeps a task's port free
CAN_BIND_BESIDE = sys.platform == "linux"  # a server that sets SO_REUSEADDR may bind beside such a socket


def hold_ports(count: int, first: int = FIRST_PORT) -> list[socket.socket]:
    """Returns sockets bound to the lowest free ports; nobody else gets those while the sockets are open.

    They bind without SO_REUSEADDR, so that a second launcher finds every port taken that another one holds, and also
    the ports that it has released to its tasks.

    Raises:
      ConfigError: fewer ports than that are free.
    """
    held: list[socket.socket] = []
    for port in range(first, 65536):
        if len(held) == count:
            return held
        held += _hold(port)
    for holder in held:
        holder.close()
    raise ConfigError(f"{count} tasks need as many ports, and only {len(held)} are free from {first} on; start fewer "
                      "tasks, or end what holds the ports (`ss -ltnp`)")


def _hold(port: int) -> list[socket.socket]:
    """Returns [socket], or [] where the port is taken."""
    dual_stack = socket.has_dualstack_ipv6()
    holder = socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET)
    try:
        if dual_stack:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.bind(("", port))
    except OSError:
        holder.close()
        return []
    return [holder]


def release_held_port() -> None:
    """Lets this process's server bind the port that a launcher kept free for it, if one did.

    On Linux a server that sets SO_REUSEADDR, as gRPC's does, may bind beside a socket that sets it too and does not
    listen. So the socket stays, here and in the launcher, and at no moment is the port free for another launcher. BSD
    and macOS would refuse the server; there the socket is closed.
    """
    descriptor = os.environ.pop(HELD_PORT_VARIABLE, "")
    if not descriptor:
        return
    holder = socket.socket(fileno=int(descriptor))
    if CAN_BIND_BESIDE:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.detach()  # open until the process ends
    else:
        holder.close()


def check_port(task: Task) -> None:
    """Looks whether the task's port can be had: TensorFlow would only say "Could not start gRPC server".

    An address that seems to be another machine's is told only: behind a NAT, a proxy or a service of Kubernetes it is
    right nevertheless.

    Raises:
      ConfigError: it is in use, or may not be opened; the text says how to find who has it.
    """
    why_not_here = addresses.why_not_here(task.address)
    if why_not_here:
        _log.warning("%s: its own host %s; if no NAT, proxy or service leads here, the other tasks cannot reach it: "
                     "start it on the machine of that name, or correct --task_index or the host list", task,
                     why_not_here)
    port = addresses.port_of(task.address)
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            return  # no IPv6 here, say: then TensorFlow's own attempt decides
        why = "is in use by another process" if error.errno == errno.EADDRINUSE else "may not be opened by this user"
        raise ConfigError(f"port {port} of {task} {why}; give the task another port, or find the holder with "
                          f"`ss -ltnp 'sport = :{port}'`") from None
