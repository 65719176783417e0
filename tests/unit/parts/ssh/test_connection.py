"""The two ends of a connection to a host, through pipes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

from ps_train.launch import process
from ps_train.parts.ssh import connection, preflight
from ps_train.parts.ssh.hosts import Host, RemoteShell
from tests.errors import raises
from tests.processes import DEADLINE_SECS, REPO

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


class SavingTask:
    """Stands for a task that saves for a while after SIGTERM."""

    exit_code = None
    _polls_left = None

    def poll(self):
        if self._polls_left is not None:
            self._polls_left -= 1
        if self._polls_left == 0:
            self.exit_code = 143
        return self.exit_code

    def terminate(self):
        self._polls_left = self._polls_left or 5

    def kill(self):
        self.exit_code = 137

    def new_output(self):
        return []


@pytest.mark.parametrize(("words", "signals", "exit_code"), [
    (b"", [], 143), (b"", [signal.SIGTERM], 143), (b"beat\n", [signal.SIGHUP, signal.SIGINT], 143),
    (b"stop\n", [], 137), (b"stop\n", [signal.SIGTERM], 137)])
def test_a_task_whose_connection_ends_may_save_unless_the_launcher_had_asked_it_to_stop(
        ends, monkeypatch, words, signals, exit_code):
    """A signal on the host, as when it shuts down, is no reason to kill it: the launcher knows nothing of it."""
    monkeypatch.setattr(connection, "POLL_SECS", 0.001)
    streams = connection.RelayStreams()
    os.write(ends[0], words)
    while streams.num_stops < words.count(b"stop"):
        streams.exchange(DEADLINE_SECS)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), ends[0])  # closes the watcher's stdin
    assert connection._run_under_watch(SavingTask(), streams, signals, DEADLINE_SECS) == exit_code


def test_a_host_without_room_for_a_task_is_one_line_of_its_log(ends, monkeypatch):
    """With the exit code of a task that was lost, and not that of a broken connection."""
    def fail(*_, **__):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(process.subprocess, "Popen", fail)
    assert connection.run_watcher("worker:1", ["-c", "0"], [], grace_secs=5, port=0) == 138
    line, end = map(connection.unpack_frame, os.read(ends[1], 1 << 16).splitlines()[1:])
    assert line.line.startswith("ps_train: cannot start worker:1: ") and line.line.endswith(" [process_not_started]")
    assert end.exit_code == 138


def test_a_greeting_without_a_line_break_hides_no_frame():
    """The shell of a host prints it before the watcher begins; an empty line of the task stays."""
    command = [sys.executable, "-m", "ps_train.parts.ssh.connection", "relay", "host", "1", "sh", "-c",
               WATCHED.format(python=sys.executable)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECS)
    assert (ended.stdout, ended.returncode) == ("Welcome! \n1\n\n2\n", 0), ended.stderr


_RELAY = """
import sys
from ps_train.launch import process
from ps_train.parts.ssh import connection
connection._FIRST_PAUSE_SECS = 0.01
sys.exit(connection.main(["relay", "host", *sys.argv[1:]]))
"""
_DROPPING_SSH = """#!/bin/sh
echo try >> {folder}/tries
if [ $(wc -l < {folder}/tries) -le {drops} ]; then
  {output}
  echo "kex_exchange_identification: Connection closed by remote host" >&2
  exit 255
fi
exec sh -c "$1"
"""


@pytest.mark.parametrize(("drops", "output", "tries", "num_started", "code"), [
    (2, ":", 3, 3, 0), (3, ":", 3, 3, 138), (1, ":", 1, 1, 138), (1, "echo Welcome", 3, 1, 138)],
    ids=["made in the end", "never made", "of a probe", "broken after it was made"])
def test_a_connection_that_sshd_drops_at_once_is_made_again(tmp_path, drops, output, tries, num_started, code):
    """It drops some of many that are made at once; nothing has begun on the host then."""
    ssh = tmp_path / "ssh"
    ssh.write_text(_DROPPING_SSH.format(folder=tmp_path, drops=drops, output=output))
    ssh.chmod(0o755)
    ended = subprocess.run([sys.executable, "-c", _RELAY, str(tries), ssh, WATCHED.format(python=sys.executable)],
                           capture_output=True, text=True, timeout=DEADLINE_SECS)
    assert ended.returncode == code, ended.stderr
    assert len((tmp_path / "tries").read_text().splitlines()) == num_started
    assert ended.stdout.count("no connection to host; trying again") == num_started - 1
    assert ended.stdout.endswith("Welcome! \n1\n\n2\n" if code == 0 else "[ssh_connection_lost]\n")


_SSH_OF_PROBES = """#!/bin/sh
echo try >> {folder}/tries
if [ $(wc -l < {folder}/tries) -le {drops} ]; then
  echo "{reason}" >&2
  echo "kex_exchange_identification: Connection closed by remote host" >&2
  echo "Connection closed by UNKNOWN port 65535" >&2
  exit 255
fi
for command; do :; done
exec sh -c "$command"
"""


@pytest.mark.parametrize(("drops", "reason", "num_started", "code"), [
    (2, "", 3, ""), (9, "", 5, "ssh_failed"), (9, "me@jump: Permission denied (publickey).", 1, "ssh_refused")])
def test_a_host_is_asked_again_whose_connection_was_dropped(tmp_path, monkeypatch, drops, reason, num_started, code):
    """All are asked at once, perhaps through one other host; a reason that asking again does not change ends that."""
    monkeypatch.setattr(preflight.random, "uniform", lambda low, high: 0.001)
    ssh = tmp_path / "ssh"
    ssh.write_text(_SSH_OF_PROBES.format(folder=tmp_path, drops=drops, reason=reason))
    ssh.chmod(0o755)
    host, shell = Host("node1", None, "node1"), RemoteShell([str(ssh)], str(REPO), sys.executable, {})
    with contextlib.ExitStack() as stack:
        if code:
            stack.enter_context(raises(code))
        with preflight.reserved_hosts(shell, {host: 1}, 20000, []) as ports:
            assert len(ports[host]) == 1
    assert len((tmp_path / "tries").read_text().splitlines()) == num_started
