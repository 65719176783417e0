"""Small child processes, and what else tests of ports, processes and folders share."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import socket
import sys
import textwrap
import time

from ps_train.launch.process import Process

REPO = str(pathlib.Path(__file__).parent.parent)
FIRST_PORT = 4300
DEADLINE_SECS = 60


def python(tmp_path, name, code, port=None):
    """Starts a child that runs Python code."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return Process(name, command, str(tmp_path / f"{name.replace(':', '-')}.log"),
                   {**os.environ, "PYTHONPATH": REPO}, port)


def stopped_on_request(tmp_path, name):
    """Starts a child that ends as a task does after `ps_train stop`."""
    return python(tmp_path, name, """
        from ps_train.runtime import reports
        reports.connect()
        failure = reports.Failure(["told to stop"], is_requested=True)
        reports.send(failure, failure.lines())
        print(*failure.lines(), flush=True)
        raise SystemExit(143)
    """)


def wait_until(condition, what):
    deadline_secs = time.monotonic() + DEADLINE_SECS
    while not condition():
        assert time.monotonic() < deadline_secs, f"within {DEADLINE_SECS} s: {what}"
        time.sleep(0.02)


def run_to_end(*started):
    wait_until(lambda: all(process.poll() is not None for process in started), "every child ends")


def is_free(port):
    """Whether a server, which sets SO_REUSEADDR, could bind the port."""
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            assert error.errno == errno.EADDRINUSE
            return False
        return True


def ports_of(held):
    return [holder.getsockname()[1] for holder in held]


def fill(folder):
    """Writes a file until the file system is full; returns it."""
    with open(folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1024))
    return folder / "filler"
