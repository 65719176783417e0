"""Here, for one process on a host: starts ssh, passes output, reports and signals on, and ends with the exit code.

    python -m ps_train.parts.ssh.relay HOST SSH...

It beats every second, so the watcher at the other end notices a broken connection. A watcher writes frames, each a
JSON object on a line, for a line of the output of the task or for its end:

    {"line": "..."}                        a line of the log
    {"lines": ["..."], "progress": {...}}  the same with the report of which it is part, as `runtime/reports.py` has it
    {"exit_code": 0}                       the task has ended
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ps_train.errors import ClusterLostError
from ps_train.launch.process import killed_with_parent
from ps_train.runtime import reports
from ps_train.runtime.reports import Report

LOST_CONNECTION = "ps_train: the connection to"  # begins the line about it
_BEAT_SECS = 1.0
_READ_BYTES = 1 << 16


class OutputFrame(NamedTuple):
    """A line of output with its report, if any; or, in the last one, the exit code."""

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
    """Returns the frame in a line; a line of another form is output of the host's shell, and passed on as it is."""
    encoded = raw.decode("utf-8", "replace").rstrip("\r\n")
    known = reports.decode(encoded)
    if known is not None:
        report, lines = known
        return OutputFrame(lines[0] if lines else "", report)
    try:
        record = json.loads(encoded)
        if "exit_code" in record:
            return OutputFrame("", exit_code=int(record["exit_code"]))
        return OutputFrame(str(record["line"]))
    except (ValueError, TypeError, KeyError):
        return OutputFrame(encoded)


def main(argv: Sequence[str]) -> int:
    """Runs a command of ssh until it ends; returns the exit code of the process on the host, 138 if it is unknown."""
    host, *command = argv
    reports.connect()
    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: stops.append(number))
    try:
        # In its own session: the launcher's SIGTERM to this process's group must not end the connection.
        ssh = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None,
                               start_new_session=True, preexec_fn=killed_with_parent())
    except OSError as error:
        _say(f"ps_train: cannot start {command[0]!r}: {error.strerror}; install OpenSSH's client, or correct "
             "--ssh_command")
        return 2
    code = None
    for frame in _frames(ssh, stops):
        if frame.exit_code is not None:
            code = frame.exit_code
            break
        if frame.report is not None:
            reports.send(frame.report, [frame.line])
        _say(frame.line)
    with contextlib.suppress(OSError):
        _pipe(ssh.stdin).close()  # the watcher's end ends, and with it ssh
    if code is not None:
        return code
    _say(f"{LOST_CONNECTION} {host} ended (exit code {ssh.wait()} of ssh)")
    return ClusterLostError.exit_code


def _frames(ssh: subprocess.Popen, stops: list[int]) -> Iterator[OutputFrame]:
    """Yields the bytes from the host until ssh ends; sends beats, and a stop for each signal."""
    source, num_sent, next_beat_secs, unfinished = _pipe(ssh.stdout), 0, 0.0, b""
    while True:
        words = b"stop\n" * (len(stops) - num_sent)
        num_sent = len(stops)
        if time.monotonic() >= next_beat_secs:
            words += b"beat\n"
            next_beat_secs = time.monotonic() + _BEAT_SECS
        if words:
            with contextlib.suppress(OSError):  # the connection has ended: its output ends, too
                os.write(_pipe(ssh.stdin).fileno(), words)
        # A signal ends the wait only if it raises: so a stop may wait a tenth of a second.
        if not select.select([source], [], [], 0.1)[0]:
            continue
        chunk = os.read(source.fileno(), _READ_BYTES)
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        yield from map(unpack_frame, filter(None, lines))  # a task's empty line is in a frame
        if not chunk:
            if unfinished:
                yield unpack_frame(unfinished)
            return


def _pipe(stream):
    assert stream is not None  # Popen was called with a pipe
    return stream


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk here is no reason to end a training there
        os.write(sys.stdout.fileno(), f"{line}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
