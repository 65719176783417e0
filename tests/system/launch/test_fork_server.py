"""The fork server of a launcher: its tasks are forks of it, each with its own log, reports and exit code."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

from ps_train import __version__
from ps_train.launch import fork_server
from ps_train.launch.fork_server import ForkedTask, ForkServer
from ps_train.launch.process import TASK_COMMAND, Process
from tests.children import REPO, run_to_end, wait_until

_ENVIRON = dict(os.environ)  # pytest changes its own
_OF_TASK = {**_ENVIRON, "PYTHONUNBUFFERED": "1"}
_VERSION = [sys.executable, "-m", "ps_train", "--version"]
_LATER_SECS = 11.0
pytestmark = pytest.mark.skipif(not fork_server._IS_POSSIBLE, reason="no forks with a GPU, or on this system")


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


def ended(tmp_path, server=None, command=_VERSION, environ=_ENVIRON):
    """Runs a task to its end: as a fork if there is a server that is ready."""
    process = Process("worker:1", command, str(tmp_path / "worker-1.log"), environ, start=server and server.start)
    run_to_end(process)
    return process


def is_fork(process):
    return isinstance(process._child, ForkedTask)


def test_a_task_is_a_fork_also_after_a_restart(tmp_path, server):
    """With its command, in its log, each time; its exit code is that of the task, and it is a child of this process."""
    task = ended(tmp_path, server)
    assert is_fork(task) and task.exit_code == 0
    pids = [task.pid]
    for _ in range(2):
        task.restart()
        assert is_fork(task)
        assert os.path.samefile(f"/proc/{task.pid}/cwd", ".")
        pids.append(task.pid)
        run_to_end(task)
        assert task.exit_code == 0
    assert list(task.new_lines()) == [__version__] * 3
    assert len({*pids, server.pid}) == 4


def test_begin_waits_for_the_import_or_a_signal(tmp_path):
    """So that the preparation is a fork, too, and SIGTERM is heard meanwhile."""
    with contextlib.closing(ForkServer(_ENVIRON)) as server:
        server.begin(_VERSION, _ENVIRON, [signal.SIGTERM])
        assert not is_fork(ended(tmp_path, server))
        for command, environ in (([sys.executable, "-c", ""], _ENVIRON), (_VERSION, {**_ENVIRON, "TF_CONFIG": ""})):
            server.begin(command, environ)
            assert server.pid is None, "neither can be a fork"
        server.begin(_VERSION, _ENVIRON)
        assert is_fork(ended(tmp_path, server))
    times = iter([0.0, 0.0, 121.0])
    with contextlib.closing(ForkServer(_ENVIRON, lambda: next(times))) as server:
        server.begin(_VERSION, _ENVIRON)  # returns, although it still imports
        assert is_running(server.pid)


def test_begin_returns_where_the_import_fails(tmp_path):
    """The task then fails in the same way, and its log says how."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['tensorflow'] = None", encoding="utf-8")
    environ = {**_ENVIRON, "PYTHONPATH": os.pathsep.join([str(tmp_path), REPO])}
    with contextlib.closing(ForkServer(environ)) as server:
        server.begin(_VERSION, environ)
        assert not is_running(server.pid)
        assert not is_fork(ended(tmp_path, server, environ=environ))


def test_ps_shows_the_command_line_of_a_fork(tmp_path, server):
    """By which an operator, or `pkill -f`, tells the tasks apart; what is too long is cut off."""
    (tmp_path / "waits.py").write_text("import time\nwhile True: time.sleep(1)", encoding="utf-8")
    for last in ("--task_index=1", "x" * 5000):
        command = [*TASK_COMMAND, "run", str(tmp_path / "waits.py"), last]
        task = Process("worker:1", command, str(tmp_path / "log"), _ENVIRON, start=server.start)
        try:
            assert is_fork(task)
            words = "\0".join(command)[:2048]
            wait_until(lambda words=words, pid=task.pid: command_line_of(pid).startswith(words), "the fork is shown")
        finally:
            task.kill()
            task.close()


def test_a_wrong_command_line_has_its_own_exit_code(tmp_path, server):
    for way in (None, server):
        task = ended(tmp_path, way, [*TASK_COMMAND, "--no_such_flag"])
        assert (is_fork(task), task.exit_code) == (way is server, 2)
        task.close()


def test_two_forks_have_servers_that_tensorflow_tells_apart(tmp_path, server):
    """By the incarnations of their devices: with equal ones a session would go on at a ps that has lost its values."""
    (tmp_path / "numbers.py").write_text(textwrap.dedent("""
        import numpy as np
        import tensorflow.compat.v1 as tf
        session = tf.Session(tf.train.Server.create_local_server().target)
        print(*[device.incarnation for device in session.list_devices() if device.device_type == "CPU"],
              np.random.randint(1 << 60))
    """), encoding="utf-8")
    task = ended(tmp_path, server, [*TASK_COMMAND, "run", str(tmp_path / "numbers.py")])
    for _ in range(2):
        task.restart()
        run_to_end(task)
    numbers = [word for line in task.new_lines() for word in line.split() if word.lstrip("-").isdigit()]
    assert len(numbers) == len(set(numbers)) == 6


def test_a_fork_is_a_child_of_the_launcher_and_outlives_the_fork_server(tmp_path):
    """The kernel has given it to this process, whichever process has forked it."""
    ready = Ready()
    server = ready.wait()
    task = ended(tmp_path, server)
    (tmp_path / "waits.py").write_text("import time\nwhile True: time.sleep(1)", encoding="utf-8")
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        fork = server.start([*TASK_COMMAND, "run", str(tmp_path / "waits.py")], _OF_TASK, log.fileno(), {})
    try:
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not is_running(server.pid), "the fork server was killed")
        task.restart()  # without it
        run_to_end(task)
        assert (task.exit_code, server.pid, fork.poll()) == (0, None, None)
        assert fork.pid in children_of(os.getpid())
    finally:
        os.kill(fork.pid, signal.SIGKILL)
    wait_until(lambda: fork.poll() == -signal.SIGKILL, "the fork has ended")


@pytest.mark.parametrize(("command", "variables"), [
    ([sys.executable, "-c", "print('other')"], {}), (_VERSION, {"TF_CONFIG": ""}), ([*_VERSION, "x" * 33_000], {})],
    ids=["no task", "another environment", "a long command line"])
def test_what_is_no_fork_is_started(tmp_path, server, command, variables):
    """It has imported TensorFlow with one environment, and runs ps_train only."""
    task = ended(tmp_path, server, command, {**_ENVIRON, **variables})
    assert not is_fork(task)


def test_it_is_started_when_the_tasks_have_had_time_to_start(tmp_path):
    """Its import would take a core from them. A task that is restarted meanwhile does not wait for it."""
    environ = {**_ENVIRON, "PYTHONPATH": REPO}
    ready = Ready(environ, folder=str(tmp_path))
    server, task = ready.server, ended(tmp_path, ready.server, environ=environ)
    try:
        first = server.pid
        assert os.path.samefile(f"/proc/{first}/cwd", tmp_path)
        task.restart()
        assert not is_fork(task)
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
    ready = Ready(environ)
    task = ended(tmp_path, ready.server, environ=environ)
    first = ready.server.pid
    wait_until(lambda: not is_running(first), "the fork server has seen the thread, and has ended")
    ready.now_secs += _LATER_SECS
    ready.server.keep_ready()
    task.restart()
    run_to_end(task)
    assert (task.exit_code, ready.server.pid) == (0, first)  # without another import
    ready.server.close()


def test_a_cluster_is_made_of_forks_which_end_with_the_launcher(tmp_path):
    """A worker and the ps are killed, and train again, with their ports, logs and reports."""
    log, logs = tmp_path / "launcher.log", tmp_path / "train/logs"
    with open(log, "w", encoding="utf-8") as output:
        launcher = subprocess.Popen([
            *TASK_COMMAND, "launch", "--num_ps=1", "--num_workers=2", "--max_restarts=50", "--model=models.softmax",
            "--dataset=data.digits", "--train_steps=100000000", f"--train_dir={tmp_path / 'train'}",
            "--save_model_secs=1"], cwd=REPO, stdout=output, stderr=output)
    try:
        wait_until(lambda: num_lines(log, "saved "), "it trains")
        children = children_of(launcher.pid)
        assert (sum(map(is_fork_server, children)), sum(map(is_forked, children))) == (1, 3), children
        for task in ("worker-1", "ps-0"):
            kill_and_await_its_successor(logs / f"{task}.log")
        num_saves = num_lines(log, "saved ")
        wait_until(lambda: num_lines(log, "saved ") > num_saves + 1, "it trains and saves")
        children = children_of(launcher.pid)
        assert (sum(map(is_fork_server, children)), sum(map(is_forked, children))) == (1, 3), children
    except AssertionError:
        print(log.read_text(encoding="utf-8"))
        raise
    finally:
        launcher.kill()
        launcher.wait()
    wait_until(lambda: not any(map(is_running, children)), "the tasks and the fork server end with the launcher")


def kill_and_await_its_successor(log):
    """Kills the process that writes a log, and waits until another one has started its server."""
    (killed,) = writers_of(log)
    num_servers = num_lines(log, "serves at")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: num_lines(log, "serves at") > num_servers, f"a process writes {log.name} again")


def writers_of(log):
    """Returns the processes whose stdout is a file."""
    return [pid for pid in pids() if stdout_of(pid) == str(log)]


def stdout_of(pid):
    with contextlib.suppress(OSError):  # it has ended
        return os.readlink(f"/proc/{pid}/fd/1")


def children_of(parent):
    return [pid for pid in pids() if f"PPid:\t{parent}\n" in status_of(pid)]


def pids():
    return [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]


def status_of(pid):
    with contextlib.suppress(OSError):  # it has ended
        return pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return ""


def is_running(pid):
    return status_of(pid) != "" and "(zombie)" not in status_of(pid)


def command_line_of(pid):
    with contextlib.suppress(OSError):  # it has ended
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    return ""


def is_fork_server(pid):
    return "ps_train.launch.fork_server" in command_line_of(pid)


def is_forked(pid):
    """Returns whether a process is a fork of a fork server, which has more room for a command line than is needed."""
    return not is_fork_server(pid) and len(command_line_of(pid)) > 2048


def num_lines(log, text):
    return log.read_text(encoding="utf-8").count(text)
