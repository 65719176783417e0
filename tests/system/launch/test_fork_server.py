"""The fork server of a launcher: a task that is restarted is a fork of it, with its own log, reports and exit code."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import textwrap

import pytest

from ps_train import __version__
from ps_train.launch.fork_server import ForkServer
from ps_train.launch.process import TASK_COMMAND, Process
from tests.children import REPO, run_to_end, wait_until

_ENVIRON = dict(os.environ)  # pytest changes its own
_OF_TASK = {**_ENVIRON, "PYTHONUNBUFFERED": "1"}
_VERSION = [sys.executable, "-m", "ps_train", "--version"]
_LATER_SECS = 11.0


class Ready:
    """A fork server after its import, or in it."""

    def __init__(self, environ=_ENVIRON, **settings):
        self.now_secs, self._of_task = 0.0, {**environ, "PYTHONUNBUFFERED": "1"}
        self.server = ForkServer(environ, lambda: self.now_secs, **settings)
        self.now_secs = _LATER_SECS
        self.server.keep_ready()

    def wait(self):
        wait_until(lambda: self.starts(["--version"]), "the fork server has imported TensorFlow")
        return self.server

    def starts(self, arguments):
        """Returns the fork, or None."""
        with open(os.devnull, "w", encoding="utf-8") as log:
            task = self.server.start([*TASK_COMMAND, *arguments], self._of_task, log.fileno(), {})
        if task is not None:
            wait_until(lambda: task.poll() is not None, "the fork has ended")
        return task


@pytest.fixture(scope="module")
def server():
    ready = Ready()
    yield ready.wait()
    ready.server.close()


def ended(tmp_path, command=_VERSION, environ=_ENVIRON):
    process = Process("worker:1", command, str(tmp_path / "worker-1.log"), environ)
    run_to_end(process)
    return process


def is_fork(process, server):
    """Returns whether a process, which may have ended, has the command line of the fork server."""
    lines = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (process.pid, server.pid)]
    return lines[0] == lines[1]


def is_running(pid):
    return "(zombie)" not in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")


def test_a_task_that_is_restarted_is_a_fork(tmp_path, server):
    """With its command, in its log, each time; its exit code is that of the task, and it is a child of this process."""
    task, pids = ended(tmp_path), []
    for _ in range(2):
        task.restart(server.start)
        assert os.path.samefile(f"/proc/{task.pid}/cwd", ".")
        pids.append(task.pid)
        run_to_end(task)
        assert task.exit_code == 0
    assert list(task.new_lines()) == [__version__] * 3
    assert len({*pids, server.pid}) == 3


def test_a_wrong_command_line_has_its_own_exit_code(tmp_path, server):
    task = ended(tmp_path, [*TASK_COMMAND, "--no_such_flag"])
    assert task.exit_code == 2
    task.restart(server.start)
    run_to_end(task)
    assert task.exit_code == 2


def test_two_forks_have_servers_that_tensorflow_tells_apart(tmp_path, server):
    """By the incarnations of their devices: with equal ones a session would go on at a ps that has lost its values."""
    (tmp_path / "numbers.py").write_text(textwrap.dedent("""
        import numpy as np
        import tensorflow.compat.v1 as tf
        session = tf.Session(tf.train.Server.create_local_server().target)
        print(*[device.incarnation for device in session.list_devices()], np.random.randint(1 << 60))
    """), encoding="utf-8")
    task = ended(tmp_path, [*TASK_COMMAND, "run", str(tmp_path / "numbers.py")])
    for _ in range(2):
        task.restart(server.start)
        run_to_end(task)
    numbers = [word for line in task.new_lines() for word in line.split() if word.lstrip("-").isdigit()]
    assert len(numbers) == len(set(numbers)) == 6


def test_a_fork_ends_with_the_launcher_and_not_with_the_fork_server(tmp_path):
    """The kernel has made it a child of the launcher, whichever process has forked it."""
    ready = Ready()
    server = ready.wait()
    task = ended(tmp_path)
    (tmp_path / "waits.py").write_text("import time\nwhile True: time.sleep(1)", encoding="utf-8")
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        fork = server.start([*TASK_COMMAND, "run", str(tmp_path / "waits.py")], _OF_TASK, log.fileno(), {})
    try:
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not is_running(server.pid), "the fork server was killed")
        task.restart(server.start)  # without it
        run_to_end(task)
        assert (task.exit_code, server.pid, fork.poll()) == (0, None, None)
        status = pathlib.Path(f"/proc/{fork.pid}/status").read_text(encoding="utf-8")
        assert f"PPid:\t{os.getpid()}\n" in status
    finally:
        os.kill(fork.pid, signal.SIGKILL)
    wait_until(lambda: fork.poll() == -signal.SIGKILL, "the fork has ended")


@pytest.mark.parametrize(("command", "variables"), [
    ([sys.executable, "-c", "print('other')"], {}), (_VERSION, {"TF_CONFIG": ""}), ([*_VERSION, "x" * 70_000], {})],
    ids=["no task", "another environment", "a long command line"])
def test_what_is_no_fork_is_started(tmp_path, server, command, variables):
    """It has imported TensorFlow with one environment, and runs ps_train only."""
    task = ended(tmp_path, command, {**_ENVIRON, **variables})
    task.restart(server.start)
    assert not is_fork(task, server)
    run_to_end(task)


def test_it_is_started_when_the_tasks_have_had_time_to_start(tmp_path):
    """Its import would take a core from them. A task that is restarted meanwhile does not wait for it."""
    environ = {**_ENVIRON, "PYTHONPATH": REPO}
    ready = Ready(environ, folder=str(tmp_path))
    server, task = ready.server, ended(tmp_path, environ=environ)
    try:
        first = server.pid
        assert os.path.samefile(f"/proc/{first}/cwd", tmp_path)
        task.restart(server.start)
        assert not is_fork(task, server)
        run_to_end(task)
        ready.now_secs += _LATER_SECS
        server.keep_ready()
        assert server.pid == first
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: ready.starts(["--version"]) is None and server.pid is None, "it was seen to have ended")
        server.keep_ready()
        assert server.pid is None
        ready.now_secs += _LATER_SECS
        server.keep_ready()
        assert server.pid not in (None, first)
    finally:
        server.close()


def test_there_are_no_forks_where_the_import_starts_threads(tmp_path):
    """As a plug-in of TensorFlow may: a fork would lack them, and might wait for them for ever."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent("""
        import sys, threading
        class Finder:
            def find_spec(self, name, *_):
                if name == "tensorflow":
                    threading.Thread(target=threading.Event().wait, daemon=True).start()
        sys.meta_path.insert(0, Finder())
    """), encoding="utf-8")
    environ = {**_ENVIRON, "PYTHONPATH": os.pathsep.join([str(tmp_path), REPO])}
    ready, task = Ready(environ), ended(tmp_path, environ=environ)
    first = ready.server.pid
    wait_until(lambda: not is_running(first), "the fork server has seen the thread, and has ended")
    ready.now_secs += _LATER_SECS
    ready.server.keep_ready()
    task.restart(ready.server.start)
    run_to_end(task)
    assert (task.exit_code, ready.server.pid) == (0, first)  # without another import
    ready.server.close()
