"""Bytes that the tasks of a peer have sent to each other, asked of the kernel: it costs a run nothing.

Linux counts for each TCP socket what its peer has acknowledged (tcp_info.tcpi_bytes_acked, tcp(7)); `pidfd_getfd(2)`,
Linux 5.6, shows a parent the sockets of its children. A connection counts when both of its ends are among the tasks:
that leaves out whoever looks on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Iterator

_PIDFD_GETFD = 438  # the same number on every architecture
_TCP_INFO_BYTES = 256
_BYTES_ACKED_OFFSET = 120  # in struct tcp_info, linux/tcp.h


def between(pids: Iterable[int]) -> int | None:
    """Returns the bytes sent so far between these processes; None where the kernel does not say."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        sent = {ends: count for pid in pids for ends, count in _sent_by(pid)}
    except OSError:
        return None
    return sum(count for (own, other), count in sent.items() if (other, own) in sent)


def _sent_by(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yields ((own port, other port), bytes sent) of each TCP connection of a process; nothing if it has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for descriptor in _socket_descriptors(pid):
            copy = _copy(process, descriptor)
            if copy is not None:
                with copy, contextlib.suppress(OSError):  # it listens only, or has just been closed
                    ends = copy.getsockname()[1], copy.getpeername()[1]
                    info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                    yield ends, struct.unpack_from("Q", info, _BYTES_ACKED_OFFSET)[0]
    finally:
        os.close(process)


def _socket_descriptors(pid: int) -> list[int]:
    folder, found = f"/proc/{pid}/fd", []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(f"{folder}/{name}").startswith("socket:"):
                    found.append(int(name))
    return found


def _copy(process: int, descriptor: int) -> socket.socket | None:
    """Returns a copy of a TCP socket of another process; None where it is of another kind, or gone.

    Raises:
      PermissionError: the kernel does not let us.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    copied = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    if copied < 0:
        if ctypes.get_errno() in (1, 13, 38):
            raise PermissionError("pidfd_getfd")
        return None
    found = socket.socket(fileno=copied)
    if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
        return found
    found.close()
    return None
