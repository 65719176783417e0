"""On a host, for one task: starts it, passes its output back, and ends it when the connection breaks.

    python -m ps_train.parts.ssh.watcher NAME GRACE_SECS PORT WORDS_OF_PYTHON...

    stdin    "beat" every second; "stop" asks the task to stop
    stdout   an empty line, then frames, see `relay.py`

The end of stdin, or `SILENCE_SECS` without a beat, is a broken connection: SIGTERM, and SIGKILL after GRACE_SECS.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence

from ps_train.launch.process import POLL_SECS, Process
from ps_train.parts.ssh.hosts import SILENCE_SECS
from ps_train.parts.ssh.relay import OutputFrame, pack_frame

_READ_BYTES = 1 << 16
_STDIN, _STDOUT = 0, 1


class RelayStreams:
    """The two streams to the relay. Neither reading nor writing ever blocks."""

    def __init__(self, silence_secs: float = SILENCE_SECS) -> None:
        """Takes over stdin and stdout; without a byte for `silence_secs` the connection counts as broken."""
        self.stops = 0  # the number of stop requests from the relay
        self.is_closed = False  # the other end has closed it
        self._is_writable = True
        self._silence_secs = silence_secs
        self._received_secs = time.monotonic()
        self._unfinished = b""
        self._pending = bytearray()
        os.set_blocking(_STDIN, False)
        os.set_blocking(_STDOUT, False)

    @property
    def is_broken(self) -> bool:
        """Whether the relay has closed the connection or is silent."""
        return self.is_closed or time.monotonic() > self._received_secs + self._silence_secs

    @property
    def has_room(self) -> bool:
        """Whether all bytes given to `put` are on their way; if not, the task's output waits in its file."""
        return not self._pending

    def put(self, data: bytes) -> None:
        """Takes bytes for the relay."""
        if self._is_writable:
            self._pending += data

    def exchange(self, secs: float) -> None:
        """Waits at most this long for input, or for room for pending output; reads the input, and writes."""
        readable, _, _ = select.select([] if self.is_closed else [_STDIN], [_STDOUT] if self._pending else [], [], secs)
        if readable:
            self._read()
        try:
            if self._pending:
                del self._pending[:os.write(_STDOUT, self._pending)]
        except BlockingIOError:
            pass  # the network is slow, or down
        except OSError:
            self._is_writable, self._pending = False, bytearray()

    def _read(self) -> None:
        try:
            chunk = os.read(_STDIN, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self.is_closed = not chunk
        self._received_secs = time.monotonic() if chunk else self._received_secs
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        self.stops += lines.count(b"stop")


def run_under_watch(process: Process, connection: RelayStreams, grace_secs: float) -> int:
    """Passes the output of a process on until it has ended; ends it if the connection breaks; returns its exit code."""
    num_sent, deadline_secs = 0, float("inf")
    while process.poll() is None or not connection.has_room:
        if connection.has_room:
            connection.put(b"".join(pack_frame(OutputFrame(*output)) for output in process.new_output()))
        connection.exchange(POLL_SECS)
        if process.exit_code is not None and connection.is_broken:
            break
        while num_sent < connection.stops:
            process.terminate()
            num_sent += 1
        if connection.is_broken and deadline_secs == float("inf"):
            # After a stop, the launcher closes the connection only to end the task at once.
            deadline_secs = time.monotonic() + (0 if num_sent and connection.is_closed else grace_secs)
            if not num_sent:
                process.terminate()
        if time.monotonic() >= deadline_secs:
            process.kill()
    connection.put(b"".join(pack_frame(OutputFrame(*output)) for output in process.new_output()))
    return process.exit_code or 0


def _wait_for_port(port: int, connection: RelayStreams, secs: float) -> None:
    """Returns when the port is free, or `secs` have passed: then the task reports the process that holds it.

    A task that is restarted after a broken connection may find its predecessor, which still saves.
    """
    end_secs = time.monotonic() + secs
    while port and not _is_free(port) and time.monotonic() < end_secs and not connection.is_broken:
        connection.exchange(POLL_SECS)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the task's server does
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def main(argv: Sequence[str]) -> int:
    """Runs a task until it has ended; returns its exit code."""
    name, grace, port, *words = argv
    connection = RelayStreams()
    connection.put(b"\n")  # the host's shell may have begun a line, such as a greeting, that would hide the first frame
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(connection, "stops", connection.stops + 1))
    _wait_for_port(int(port), connection, float(grace) + SILENCE_SECS)
    if connection.is_broken:
        return 128 + signal.SIGHUP
    with tempfile.TemporaryDirectory(prefix="ps_train-") as folder:
        process = Process(name, [sys.executable, *words], os.path.join(folder, "log"), os.environ)
    # The log has no name any longer, so nothing is left of it when this process ends.
    code = run_under_watch(process, connection, float(grace))
    connection.put(pack_frame(OutputFrame("", exit_code=code)))
    while not connection.has_room and not connection.is_broken:
        connection.exchange(POLL_SECS)
    return code


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
