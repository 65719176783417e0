"""A fork server has imported all that a task needs: the preparation and the tasks are forks of it, seconds sooner.

    launcher                                     fork server                      task
    begin() -------- python -m ... ------------> imports TensorFlow and the
                                                 modules of a task, is ready
    start() -------- arguments, open files ----> forks -------------------------> goes on as
            <------- process id ------------------------------------------------- `python -m ps_train ARGUMENTS`

The import is most of the time until a small model trains, and takes 3 s of CPU time: once for all tasks, not once for
each. The tasks of a script (`launch run`) are new processes, as their environments differ.

A task is a child of the launcher, as one that is started without a fork server. So the fork server forks a process that
forks the task and ends, whereupon the kernel gives the task to the launcher, which has asked for that
(PR_SET_CHILD_SUBREAPER in prctl(2)). Where that is not possible, as on macOS, a task is started anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable

from ps_train.launch.process import POLL_SECS, TASK_COMMAND, killed_with, killed_with_parent
from ps_train.runtime import installed

_MODULE = "ps_train.launch.fork_server"
_UNBUFFERED = {"PYTHONUNBUFFERED": "1"}  # as `Process` starts each task
# Without a GPU: forks were not tried with one.
_IS_POSSIBLE = sys.platform == "linux" and not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))
_REQUEST_BYTES = 1 << 15  # arrives whole, which 36 KB no more did, and fits into the buffer: sending never waits
_MOST_FILES = 8
_QUIET_SECS = 10.0  # without a restart, before it is started: its import takes a core from tasks that start
_IMPORT_SECS = 120.0  # then the tasks are started without it
_END_SECS = 10.0  # after SIGKILL
_FORK_SECS = 10.0  # 0.03 s on an idle machine; then the task is started without it
_CANNOT_FORK = 3  # exit code
_COMMAND_LINE_BYTES = 2048  # of which `ps` shows that of a fork
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # <sys/prctl.h>
_adoption = threading.Lock()  # of the process, in which any number of threads may launch


class ForkedTask:
    """A task that a fork server has forked, with the part of `subprocess.Popen` that `Process` uses.

    Attributes:
      pid: its process id.
    """

    def __init__(self, pid: int) -> None:
        """Takes over a child of this process."""
        self.pid = pid
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code, -n for signal n, or None while it runs."""
        if self._exit_code is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # this program ignores SIGCHLD; the code is that of Popen then
                self._exit_code = 0
            else:
                self._exit_code = os.waitstatus_to_exitcode(status) if ended else None
        return self._exit_code


class ForkServer:
    """The fork server of a launcher; it ends with this process."""

    def __init__(
        self, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic, *, folder: str = ""
    ) -> None:
        """Starts nothing yet.

        Args:
          environ: the environment of the tasks.
          clock: returns seconds.
          folder: their working directory, "" for that of this process.
        """
        self._environ, self._clock = {**environ, **_UNBUFFERED}, clock
        self._folder = folder or os.getcwd()  # a program may change to another one before it is started
        self._popen: subprocess.Popen | None = None
        self._socket: socket.socket | None = None
        self._used_secs = clock()

    @property
    def pid(self) -> int | None:
        """Its process id, or None if it was not started."""
        return self._popen.pid if self._popen else None

    def begin(self, command: Sequence[str], environ: Mapping[str, str], signals: Sequence[int] = ()) -> None:
        """Starts it, if that task may be a fork, and waits until it is ready or has ended.

        It does not wait after a signal is noted, or longer than an import may take.
        """
        if signals or not self._fits(command, environ):
            return
        self._launch()
        while (self._socket is not None and not _is_ready(self._socket) and self._popen is not None
               and self._popen.poll() is None and not signals and self._clock() < self._used_secs + _IMPORT_SECS):
            time.sleep(POLL_SECS)

    def _fits(self, command: Sequence[str], environ: Mapping[str, str]) -> bool:
        return list(command[:3]) == TASK_COMMAND and {**environ, **_UNBUFFERED} == self._environ

    def keep_ready(self) -> None:
        """Starts it once the tasks have had the time to start; call it while all tasks run. Waits for no import."""
        if self._clock() - self._used_secs > _QUIET_SECS:
            self._launch()

    def _launch(self) -> None:
        if self._popen is not None or not _IS_POSSIBLE:
            return
        self._used_secs = self._clock()
        with contextlib.suppress(OSError):  # no process, memory or open file is left for it; the tasks do without
            self._socket, theirs = socket.socketpair()
            with theirs:
                self._popen = subprocess.Popen(
                    [sys.executable, "-m", _MODULE, str(theirs.fileno()), " " * _COMMAND_LINE_BYTES],
                    env=self._environ, pass_fds=[theirs.fileno()], cwd=self._folder, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                    preexec_fn=killed_with_parent())

    def start(
        self, command: Sequence[str], environ: Mapping[str, str], log: int, files: Mapping[str, int]
    ) -> ForkedTask | None:
        """Returns a fork that is that task, or None if it cannot be one.

        Args:
          environ: of the task, without the variables of the files.
          log: the open file that becomes its stdout and stderr.
          files: the open files that it inherits: environment variable that has the number -> number.
        """
        self._used_secs = self._clock()
        request = json.dumps({"arguments": command[3:], "names": list(files)}).encode()
        if not self._fits(command, environ) or len(request) > _REQUEST_BYTES:
            return None
        if self._popen is not None and self._popen.poll() not in (None, _CANNOT_FORK):  # as without memory
            self.close()
        if self._socket is None or not _is_ready(self._socket):
            return None
        answers, theirs = socket.socketpair()
        answers.settimeout(_FORK_SECS)
        with answers, _adopting():
            try:
                with theirs:
                    socket.send_fds(self._socket, [request], [theirs.fileno(), log, *files.values()])
                pid = int(answers.recv(32) or 0)
                answers.sendall(b"!")
            except OSError:  # it was killed just now, hangs, or there is no process left for a fork
                self.close()
                return None
        return ForkedTask(pid) if pid else None

    def close(self) -> None:
        """Ends it; its tasks go on. It may be started again."""
        if self._socket is not None:
            self._socket.close()
        if self._popen is not None:
            self._popen.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # its file system hangs
                self._popen.wait(_END_SECS)
        self._popen = self._socket = None


def _is_ready(connection: socket.socket) -> bool:
    """Returns whether the fork server has imported all and goes on."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Makes this process the parent of the descendants whose parent ends."""
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    with _adoption:
        prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def main(descriptor: int) -> int:
    """Imports what a task needs and serves; in a fork, returns when the task has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a program may ignore it, and then waitpid fails
    end_with_launcher = killed_with(os.getppid())
    _show_command_line([sys.executable, "-m", _MODULE])  # without the room
    installed.import_tensorflow(needs_gpu=True, tf_log=False)
    for name in ("ps_train.verbs.train", "ps_train.tasks.run", "ps_train.tasks.without_training"):  # not above: they
        importlib.import_module(name)  # import TensorFlow, and the launcher imports this module
    gc.collect()
    gc.freeze()  # a collection of a fork would visit each page of what is imported, and so copy it
    if _has_threads():
        return _CANNOT_FORK
    with socket.socket(fileno=descriptor) as connection:
        connection.sendall(b"!")  # the launcher only looks whether it is there
        while True:
            request, descriptors, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _MOST_FILES)
            if not request:
                return 0
            if _fork_orphan():
                break
            for file in descriptors:
                os.close(file)
    answers, log, *files = descriptors
    end_with_launcher()
    task = json.loads(request)
    with socket.socket(fileno=answers) as launcher:
        launcher.sendall(str(os.getpid()).encode())
        if not launcher.recv(1):  # it has not waited so long, and has started the task anew
            return 0
    sys.modules["numpy"].random.seed()  # or each fork would draw the same numbers
    _become_task(task, log, files)
    return 0


def _has_threads() -> bool:
    """Returns whether there are threads, as of a plug-in of TensorFlow, that a fork would lack."""
    child = os.fork()  # before it the BLAS of NumPy ends its own, and starts them when they are needed
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    for _ in range(100):
        if len(os.listdir("/proc/self/task")) == 1:
            return False
        time.sleep(0.01)  # the kernel lists a thread for a moment after its end
    return True


def _fork_orphan() -> bool:
    """Forks a process whose parent has ended; returns true in it, and false in this one."""
    waiting, held = os.pipe()
    middle = os.fork()
    if not middle:
        os.close(held)
        if os.fork():
            os._exit(0)
        os.setsid()
        os.read(waiting, 1)  # until the process in the middle has ended
    else:
        os.waitpid(middle, 0)
        os.close(held)
    os.close(waiting)
    return not middle


def _become_task(request: Mapping[str, Sequence[str]], log: int, files: Sequence[int]) -> None:
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    _show_command_line([*TASK_COMMAND, *request["arguments"]])
    for name, file in zip(request["names"], files):
        os.environ[name] = str(file)
    importlib.invalidate_caches()  # a folder in PYTHONPATH may be new
    sys.argv = ["ps_train", *request["arguments"]]
    runpy.run_module("ps_train", run_name="__main__", alter_sys=True)


def _show_command_line(words: Sequence[str]) -> None:
    """Makes `ps` show these words, as far as there is room, and not the command line of the fork server."""
    with contextlib.suppress(OSError, ValueError):  # a sandbox may not tell, and nothing else depends on it
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        start, end = map(int, fields[45:47])  # arg_start and arg_end of proc(5), whose fields 1 and 2 are not here
        text = os.fsencode("\0".join(words))[:max(end - start - 1, 0)]
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
