"""The two ends of a connection to a host, through pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from ps_train.parts.ssh import connection
from tests.processes import DEADLINE_SECS

WATCHED = ("printf 'Welcome! '; exec {python} -m ps_train.parts.ssh.connection watch task 5 0 "
           "-c 'print(1); print(); print(2)'")


@pytest.fixture
def ends(monkeypatch):
    """Pipes as stdin and stdout of a watcher; returns the relay's ends of them."""
    stdin, to_watcher = os.pipe()
    from_watcher, stdout = os.pipe()
    monkeypatch.setattr(connection, "_STDIN", stdin)
    monkeypatch.setattr(connection, "_STDOUT", stdout)
    yield to_watcher, from_watcher
    for end in (stdin, to_watcher, from_watcher, stdout):
        os.close(end)


def test_much_output_is_written_as_fast_as_it_is_read(ends):
    """Each wait ends as soon as the pipe has room, not at its time-out."""
    streams = connection.RelayStreams()
    streams.put(bytes(20 << 16))  # several times what a pipe holds

    def write():
        while not streams.has_room:
            streams.exchange(DEADLINE_SECS)

    def read(left=20 << 16):
        while left:
            left -= len(os.read(ends[1], left))

    threads = [threading.Thread(target=work, daemon=True) for work in (write, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECS / 2)
        assert not thread.is_alive()


def test_a_greeting_without_a_line_break_hides_no_frame():
    """The shell of a host prints it before the watcher begins; an empty line of the task stays."""
    command = [sys.executable, "-m", "ps_train.parts.ssh.connection", "relay", "host", "sh", "-c",
               WATCHED.format(python=sys.executable)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECS)
    assert (ended.stdout, ended.returncode) == ("Welcome! \n1\n\n2\n", 0), ended.stderr
