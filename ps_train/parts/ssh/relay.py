"""Here, for one process on a host: starts ssh, passes output, reports and signals on, and ends with the exit code.

    python -m ps_train.parts.ssh.relay HOST SSH...

It beats every second, so that the watcher at the other end notices a broken connection.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from ps_train.errors import ClusterLostError
from ps_train.launch.process import killed_with_parent
from ps_train.parts.ssh.frames import OutputFrame, unpack_frame
from ps_train.runtime import reports

LOST_CONNECTION = "ps_train: the connection to"  # begins the line about it
_BEAT_SECS = 1.0
_READ_BYTES = 1 << 16


def main(argv: Sequence[str]) -> int:
    """Runs a command of ssh until it ends; returns the exit code of the process on the host, 138 if it is unknown."""
    host, *command = argv
    reports.connect()
    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: stops.append(number))
    try:
        # A session of its own: the launcher's SIGTERM to this process's group must not end the connection.
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
    """Yields what comes from the host until ssh ends; sends beats, and a stop for each signal."""
    source, told, next_beat_secs, unfinished = _pipe(ssh.stdout), 0, 0.0, b""
    while True:
        words = b"stop\n" * (len(stops) - told)
        told = len(stops)
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
    assert stream is not None  # it was asked for
    return stream


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk here is no reason to end a training there
        os.write(sys.stdout.fileno(), f"{line}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
