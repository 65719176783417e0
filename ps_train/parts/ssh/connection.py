"""Both ends of the connection to a task on a host.

    python -m ps_train.parts.ssh.connection relay HOST TRIES SSH...              here: starts ssh
    python -m ps_train.parts.ssh.connection watch NAME GRACE_SECS PORT WORDS...  on the host: starts `python WORDS...`

    relay --"beat" each second, "stop"--> watch
          <--an empty line, then frames--

A relay passes the output, reports and exit code of the task to the launcher, and signals to the task. The end of stdin,
or `SILENCE_SECS` without a beat, is a broken connection: the watcher then sends the task SIGTERM, and SIGKILL after
GRACE_SECS. A frame is a JSON object on a line:

    {"line": "..."}                        a line of the log
    {"lines": ["..."], "progress": {...}}  the same with the report of which it is part, as `runtime/reports.py` has it
    {"exit_code": 0}                       the task has ended
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ps_train.errors import ClusterLostError, PsTrainError
from ps_train.launch.process import POLL_SECS, Process, killed_with_parent
from ps_train.launch.supervision import noted_signals
from ps_train.runtime import reports
from ps_train.runtime.reports import Report

LOST_CONNECTION = "ps_train: the connection to"  # the start of the line about a lost connection
_FIRST_PAUSE_SECS = 1.0  # between two tries to connect; each is about twice as long as the one before
_SSH_FAILED = 255  # the exit code of ssh for an error of its own
SILENCE_SECS = 15.0
_BEAT_SECS = 1.0
_READ_BYTES = 1 << 16
_STDIN, _STDOUT = 0, 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class OutputFrame(NamedTuple):
    """A line of output with its report, if any; or, in the last frame, the exit code."""

    line: str
    report: Report | None = None
    exit_code: int | None = None


def pack_frame(frame: OutputFrame) -> bytes:
    """Returns the bytes of a frame, with its line break."""
    if frame.exit_code is not None:
        encoded = json.dumps({"exit_code": frame.exit_code})
    elif frame.report is not None:
        encoded = reports.encode(frame.report, [frame.line])
    else:
        encoded = json.dumps({"line": frame.line})
    return f"{encoded}\n".encode()


def unpack_frame(raw: bytes) -> OutputFrame:
    """Returns the frame in a line; a line that is no frame is output of the host's shell, and passed on unchanged."""
    encoded = raw.decode("utf-8", "replace").rstrip("\r\n")
    decoded = reports.decode(encoded)
    if decoded is not None:
        report, lines = decoded
        return OutputFrame(lines[0] if lines else "", report)
    try:
        record = json.loads(encoded)
        if "exit_code" in record:
            return OutputFrame("", exit_code=int(record["exit_code"]))
        return OutputFrame(str(record["line"]))
    except (ValueError, TypeError, KeyError):
        return OutputFrame(encoded)


def run_relay(host: str, command: Sequence[str], num_tries: int = 1) -> int:
    """Runs a command of ssh until it ends; returns the exit code of the process on the host, 138 if it is unknown.

    Args:
      num_tries: how often ssh is started where no connection is made.
    """
    reports.connect()
    stops: list[int] = []
    for number in _SIGNALS:
        signal.signal(number, lambda number, frame: stops.append(number))
    for attempt in range(num_tries):
        try:
            exit_code, ssh_code, is_silent = _relay(command, stops)
        except OSError as error:
            _print(f"ps_train: cannot start {command[0]!r}: {error.strerror}; install OpenSSH's client, or correct "
                   "--ssh_command")
            return 2
        if exit_code is not None:
            return exit_code
        if not is_silent or ssh_code != _SSH_FAILED or stops or attempt == num_tries - 1:
            break
        pause_secs = _FIRST_PAUSE_SECS * 2**attempt * random.uniform(0.5, 1.5)
        _print(f"ps_train: no connection to {host}; trying again in {pause_secs:.1f} s")
        end_secs = time.monotonic() + pause_secs
        while not stops and time.monotonic() < end_secs:
            time.sleep(POLL_SECS)
    _print(f"{LOST_CONNECTION} {host} ended (exit code {ssh_code} of ssh) [ssh_connection_lost]")
    return ClusterLostError.exit_code


def _relay(command: Sequence[str], stops: Sequence[int]) -> tuple[int | None, int | None, bool]:
    """Runs ssh once; returns the exit codes of the process on the host and of ssh, and whether nothing came from there.

    One of the codes is None: the process may have ended before ssh, or its end is unknown.
    """
    # In its own session: the launcher's SIGTERM to this process's group must not end the connection.
    ssh = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None,
                           start_new_session=True, preexec_fn=killed_with_parent())
    assert ssh.stdin is not None and ssh.stdout is not None  # both are pipes
    exit_code: int | None = None
    is_silent = True
    for frame in _frames(ssh.stdin.fileno(), ssh.stdout.fileno(), stops):
        is_silent = False
        if frame.exit_code is not None:
            exit_code = frame.exit_code
            break
        if frame.report is not None:
            reports.send(frame.report, [frame.line])
        _print(frame.line)
    with contextlib.suppress(OSError):
        ssh.stdin.close()  # ends the watcher, and so ssh
    return exit_code, ssh.wait() if exit_code is None else None, is_silent


def _frames(ssh_stdin: int, ssh_stdout: int, stops: Sequence[int]) -> Iterator[OutputFrame]:
    """Yields the frames from the host until ssh ends; sends beats, and a stop for each signal."""
    num_sent, next_beat_secs, unfinished = 0, 0.0, b""
    while True:
        words = b"stop\n" * (len(stops) - num_sent)
        num_sent = len(stops)
        if time.monotonic() >= next_beat_secs:
            words += b"beat\n"
            next_beat_secs = time.monotonic() + _BEAT_SECS
        if words:
            with contextlib.suppress(OSError):  # the connection has ended; its output ends, too
                os.write(ssh_stdin, words)
        # A signal interrupts the wait only if its handler raises, so a stop may wait a tenth of a second.
        if not select.select([ssh_stdout], [], [], 0.1)[0]:
            continue
        chunk = os.read(ssh_stdout, _READ_BYTES)
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        yield from map(unpack_frame, filter(None, lines))  # a task's empty line is in a frame
        if not chunk:
            if unfinished:
                yield unpack_frame(unfinished)
            return


def _print(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk here is no reason to end a training there
        os.write(_STDOUT, f"{line}\n".encode("utf-8", "replace"))


class RelayStreams:
    """A watcher's two streams to its relay. Neither reading nor writing ever blocks.

    Attributes:
      num_stops: the number of the relay's requests to stop.
      is_closed: whether the relay has closed the connection.
    """

    def __init__(self) -> None:
        """Takes over stdin and stdout."""
        self.num_stops = 0
        self.is_closed = False
        self._is_writable = True
        self._received_secs = time.monotonic()
        self._unfinished = b""
        self._pending = bytearray()
        os.set_blocking(_STDIN, False)
        os.set_blocking(_STDOUT, False)

    @property
    def is_broken(self) -> bool:
        """Whether the relay has closed the connection or is silent."""
        return self.is_closed or time.monotonic() > self._received_secs + SILENCE_SECS

    @property
    def has_room(self) -> bool:
        """Whether no bytes are pending; if some are, the task's output waits in its file."""
        return not self._pending

    def put(self, data: bytes) -> None:
        """Takes bytes for the relay."""
        if self._is_writable:
            self._pending += data

    def put_output(self, process: Process) -> None:
        """Takes the new output of a process."""
        self.put(b"".join(pack_frame(OutputFrame(*output)) for output in process.new_output()))

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
        self.num_stops += lines.count(b"stop")


def run_watcher(name: str, words: Sequence[str], signals: Sequence[int], *, grace_secs: float, port: int) -> int:
    """Runs `python WORDS` as a task until it has ended; returns its exit code. `signals` are those to this process."""
    connection = RelayStreams()
    connection.put(b"\n")  # ends a line that the host's shell may have begun, such as a greeting
    # After a broken connection, the predecessor of a restarted task may still save. If the port stays busy, the task
    # reports the process that holds it.
    end_secs = time.monotonic() + grace_secs + SILENCE_SECS
    while port and not _is_free(port) and time.monotonic() < end_secs and not connection.is_broken:
        connection.exchange(POLL_SECS)
    if connection.is_broken:
        return 128 + signal.SIGHUP
    try:
        with tempfile.TemporaryDirectory(prefix="ps_train-") as folder:
            process = Process(name, [sys.executable, *words], os.path.join(folder, "log"), os.environ)
        # The log has no name any longer, so nothing is left of it when this process ends.
        exit_code = _run_under_watch(process, connection, signals, grace_secs)
    except PsTrainError as error:  # it cannot be started
        exit_code = error.exit_code
        for line in error.lines():
            connection.put(pack_frame(OutputFrame(f"{reports.MESSAGE_PREFIX}{line}")))
    connection.put(pack_frame(OutputFrame("", exit_code=exit_code)))
    while not connection.has_room and not connection.is_broken:
        connection.exchange(POLL_SECS)
    return exit_code


def _run_under_watch(
    process: Process, connection: RelayStreams, signals: Sequence[int], grace_secs: float
) -> int:
    """Passes the output of a process on until it has ended; ends it if the connection breaks; returns its exit code.

    Args:
      signals: those to this process, which are passed on, too; see `noted_signals`.
      grace_secs: for the process to end, once the connection has broken.
    """
    num_sent, deadline_secs = 0, float("inf")
    while process.poll() is None or not connection.has_room:
        if connection.has_room:
            connection.put_output(process)
        connection.exchange(POLL_SECS)
        if process.exit_code is not None and connection.is_broken:
            break
        while num_sent < connection.num_stops + len(signals):
            process.terminate()
            num_sent += 1
        if connection.is_broken and deadline_secs == float("inf"):
            # After its stop, the launcher closes the connection only to end the task at once.
            deadline_secs = time.monotonic() + (0 if connection.num_stops and connection.is_closed else grace_secs)
            if not num_sent:
                process.terminate()
        if time.monotonic() >= deadline_secs:
            process.kill()
    connection.put_output(process)
    return process.exit_code or 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the task's server does
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def main(argv: Sequence[str]) -> int:
    """Runs one end of a connection; returns its exit code."""
    end, name, *words = argv
    if end == "relay":
        num_tries, *command = words
        return run_relay(name, command, int(num_tries))
    grace_secs, port, *command = words
    with noted_signals() as signals:
        return run_watcher(name, command, signals, grace_secs=float(grace_secs), port=int(port))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
