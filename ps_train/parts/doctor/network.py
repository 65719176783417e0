"""Examines the network between the tasks of a cluster: names, reachability, latency, bandwidth and clocks.

    from one machine     each address: does its name resolve, and does a task accept connections there?
    as one of the tasks  a small server at its address answers the others; each task measures its way to every other

Each task waits until it has measured all others, and serves until all others have measured it.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator, Sequence

from ps_train.cluster.addresses import host_of, port_of
from ps_train.cluster.reachability import accepts
from ps_train.cluster.spec import Cluster, Task
from ps_train.parts.doctor.machine import FAIL, OK, WARN, Finding

_PINGS = 20
_BULK_BYTES = 16 << 20
_WORD = struct.Struct("!cd")  # the kind of a request or answer, and a number
_MAGIC = b"ps_train doctor 1\n"  # distinguishes a doctor from a TensorFlow server
_CONNECT_SECS, _ANSWER_SECS = 2.0, 10.0
_MAX_CLOCK_DIFFERENCE_SECS = 5.0  # with more, logs and event files are hard to compare


def lookups(tasks: Sequence[Task]) -> Iterator[Finding]:
    """Yields whether each host name resolves, and whether a task listens there."""
    for task in tasks:
        try:
            socket.getaddrinfo(host_of(task.address), port_of(task.address))
        except OSError as error:
            yield Finding(FAIL, str(task), f"its host name does not resolve here ({error.strerror}): correct it, or "
                                           "add it to the DNS or /etc/hosts")
            continue
        yield Finding(OK, str(task), "accepts connections") if accepts(task.address) else Finding(
            WARN, str(task), "its name resolves, but no task listens; to measure the network, start `ps_train doctor` "
                             "with --job_name and --task_index for each task")


class MeasuringServer:
    """Answers the doctors of the other tasks at this task's address, until it is closed."""

    def __init__(self, task: Task) -> None:
        """Listens.

        Raises:
          OSError: the port is taken, or may not be opened.
        """
        self.measured_by: set[str] = set()  # the tasks that have finished measuring this one
        has_both = socket.has_dualstack_ipv6()  # IPv4 and IPv6, as TensorFlow's server has
        self._listener = socket.create_server(
            ("", port_of(task.address)), family=socket.AF_INET6 if has_both else socket.AF_INET, backlog=128,
            dualstack_ipv6=has_both)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_ANSWER_SECS)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        # A peer that breaks off has its own doctor, which reports it.
        with connection, contextlib.suppress(OSError, EOFError):
            connection.settimeout(_ANSWER_SECS)
            connection.sendall(_MAGIC)
            while True:
                word, number = _WORD.unpack(_receive(connection, _WORD.size))
                if word == b"p":
                    connection.sendall(_WORD.pack(b"p", time.time()))
                elif word == b"b":
                    _receive(connection, int(number))
                    connection.sendall(_WORD.pack(b"b", number))
                elif word == b"d":
                    self.measured_by.add(_receive(connection, int(number)).decode("utf-8", "replace"))


def meet_others(cluster: Cluster, tasks: Sequence[Task], timeout_secs: float) -> Iterator[Finding]:
    """Yields a finding for the connection to each other task, once its doctor runs; waits at most `timeout_secs`."""
    this_task = cluster.task
    try:
        server = MeasuringServer(this_task)
    except OSError as error:
        yield Finding(FAIL, str(this_task), f"cannot listen at its port ({error.strerror}): end the process that holds "
                                            "it, or give the task another port")
        return
    end_secs = time.monotonic() + timeout_secs
    with contextlib.closing(server):
        missing = [task for task in tasks if task != this_task]
        measured_tasks = set()
        while missing and time.monotonic() < end_secs:
            for task in list(missing):
                finding = _measure(this_task, task)
                if finding is not None:
                    missing.remove(task)
                    measured_tasks.add(task.name)
                    yield finding
            time.sleep(0.1 if missing else 0)
        for task in missing:
            yield Finding(FAIL, str(task), f"no doctor answers there within {timeout_secs:g} s: start one for it; if "
                                           "it runs, look for a firewall, a wrong address or a missing route")
        # The others may still be on their way here.
        while late := measured_tasks - server.measured_by:
            if time.monotonic() > end_secs:
                yield Finding(FAIL, str(this_task), f"{', '.join(sorted(late))} did not reach it: is its address "
                                                    "right, and its port open in the firewall?")
                return
            time.sleep(0.05)


def _measure(this_task: Task, task: Task) -> Finding | None:
    """Returns a finding about the connection to a task, or None while no doctor answers there."""
    try:
        with socket.create_connection((host_of(task.address), port_of(task.address)), _CONNECT_SECS) as connection:
            connection.settimeout(_ANSWER_SECS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _receive(connection, len(_MAGIC)) != _MAGIC:
                return Finding(FAIL, str(task), "another program listens there: end it, or give the task another port")
            trips, lead_secs = _ping(connection)
            start_secs = time.monotonic()
            connection.sendall(_WORD.pack(b"b", _BULK_BYTES) + bytes(_BULK_BYTES))
            _receive(connection, _WORD.size)
            speed = _BULK_BYTES / (time.monotonic() - start_secs)
            name = this_task.name.encode()
            connection.sendall(_WORD.pack(b"d", len(name)) + name)
    except (OSError, EOFError):
        return None
    measured = (f"{statistics.median(trips) * 1e6:,.0f} us there and back, {speed / 1e6:,.0f} MB/s, clocks "
                f"{abs(lead_secs):.3f} s apart")
    if abs(lead_secs) > _MAX_CLOCK_DIFFERENCE_SECS:
        return Finding(WARN, str(task), f"{measured}: set them with NTP; else times in logs and curves mislead")
    return Finding(OK, str(task), measured)


def _ping(connection: socket.socket) -> tuple[list[float], float]:
    """Returns the seconds of each round trip, and the lead of the other clock, from the shortest one."""
    trips = []
    for _ in range(_PINGS):
        start_secs, here = time.monotonic(), time.time()
        connection.sendall(_WORD.pack(b"p", 0.0))
        _, there = _WORD.unpack(_receive(connection, _WORD.size))
        secs = time.monotonic() - start_secs
        trips.append((secs, there - here - secs / 2))
    return [secs for secs, _ in trips], min(trips)[1]


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)
