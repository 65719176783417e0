"""Starts `python -m ps_train` by a fork of a process that has imported TensorFlow, which saves 3 s of CPU time.

    test process                      fork server (one per test process; with run_groups.py a fork, too)
    ForkServer.start --- request ---> fork --> the child becomes `python -m ps_train ARGUMENTS`
    ForkedProcess  <--- pid, exit code ---

The server has imported TensorFlow and ps_train and made nothing with them: no session, no server, no device. So a child
differs from a process that was started by exec only in what an import does. The tasks of a forked launcher are forks,
too (launched_forks.py). If the environment names a folder in PS_TRAIN_TEST_FORKS, each fork leaves a file there, as
nothing in /proc tells its arguments and environment.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pathlib
import random
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Collection, Iterator, Mapping

from ps_train.runtime import installed
from tests import launched_forks

_REPO = pathlib.Path(__file__).resolve().parent.parent
_START_SECS = 120.0
_END_SECS = 60.0
_MESSAGE_BYTES = 1 << 20
FORKS_VARIABLE = "PS_TRAIN_TEST_FORKS"
PLAIN_GRAPHS_VARIABLE = "PS_TRAIN_TEST_PLAIN_GRAPHS"  # if it is there, the graphs of a fork run as they were built
_ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_SLAVE = 0x20000, 0x1000, 0x4000, 0x80000  # linux/sched.h, linux/mount.h
_ALLOCATIONS_PER_COLLECTION = 20_000  # of 700 by default, which is a twentieth of the CPU time of making graphs


class ForkedProcess:
    """A child of the fork server, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, status: socket.socket, arguments: list[str]) -> None:
        """Takes the socket on which the server tells the child's pid now and its exit code at its end."""
        self.args = arguments
        self.returncode: int | None = None
        self._status = status
        status.settimeout(_START_SECS)
        self.pid = int(status.recv(64))

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs."""
        return self._receive(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code.

        Raises:
          subprocess.TimeoutExpired: the process still runs after `timeout` seconds.
        """
        code = self._receive(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _receive(self, timeout_secs: float | None) -> int | None:
        if self.returncode is None:
            self._status.settimeout(timeout_secs)
            with contextlib.suppress(BlockingIOError, TimeoutError, socket.timeout):
                answer = self._status.recv(64)
                if not answer:
                    raise RuntimeError(f"the fork server has ended before {self.args}")
                self.returncode = int(answer)
                self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, if the process still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and its exit code is on its way here
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends the process."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The server, as the test process sees it; it ends with the test process."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Starts it: as a fork of this process if it is prepared; else it imports TensorFlow while the test goes on.

        Args:
          environ: variables that TensorFlow reads when it is imported; such a server is never a fork.
        """
        self._pid = 0
        self._process: subprocess.Popen | None = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._control, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
        with theirs:
            if environ is None and prepare.cache_info().currsize:
                self._fork(theirs)
            else:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())], cwd=_REPO,
                    pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env={**os.environ, **(environ or {})})

    def _fork(self, theirs: socket.socket) -> None:
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._control.close()
                _serve(theirs)
            finally:
                os._exit(0)

    def cpu_secs(self) -> float:
        """Returns the CPU time of the server and of those of its children that have ended, from Linux' /proc."""
        pid = self._pid or self._process.pid
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Ends the server and what it has started, and waits for it."""
        self._control.shutdown(socket.SHUT_RDWR)  # a process that has a copy of it would keep it open
        self._control.close()
        end_secs = time.monotonic() + _END_SECS
        while self._pid and os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < end_secs, "the fork server does not end"
            time.sleep(0.01)
        if self._process is not None:
            self._process.wait(_END_SECS)

    def start(self, arguments: list[str], cwd: str, environ: dict[str, str], log: int, module: str = "ps_train",
              script: str = "", namespace: str = "") -> ForkedProcess:
        """Starts `python -m MODULE`, or `python SCRIPT`, with the arguments.

        Args:
          log: the file descriptor to which its output goes.
          script: what it has registered with `atexit` does not run.
          namespace: the file of a network namespace in which it runs.
        """
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            request = {"module": module, "script": script, "arguments": arguments, "cwd": str(cwd), "environ": environ,
                       "namespace": namespace}
            descriptors = array.array("i", [log, theirs.fileno()])
            self._control.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        return ForkedProcess(status, arguments)


@functools.cache
def of_this_process() -> ForkServer:
    """Returns the fork server of this test process, which starts with the first call."""
    return ForkServer()


def cpu_secs() -> float:
    """Returns the CPU time of the fork server of this test process and its children; 0 if there is none."""
    return of_this_process().cpu_secs() if of_this_process.cache_info().currsize else 0.0


def end() -> None:
    """Ends the fork server of this test process, if there is one: its CPU time counts as that of this process."""
    if of_this_process.cache_info().currsize:
        of_this_process().end()


def _serve(control: socket.socket) -> None:
    """Answers requests until the test process has ended; then ends the children that still run."""
    children: dict[int, socket.socket] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                os.read(woken, 512)
                _report_ended(children)
            if control in ready and not _fork_one(control, children):
                break
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _report_ended(children: dict[int, socket.socket]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with children.pop(pid) as told, contextlib.suppress(OSError):  # the test does not listen any more
                told.send(str(os.waitstatus_to_exitcode(status)).encode())


def _fork_one(control: socket.socket, children: dict[int, socket.socket]) -> bool:
    """Forks a child for one request; returns false where there is none, as the test process has ended."""
    message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 2)
    if not message:
        return False
    log, status = descriptors
    pid = os.fork()
    if pid == 0:
        os.setsid()
        _become_task(json.loads(message), log)
    os.close(log)
    children[pid] = socket.socket(fileno=status)
    children[pid].send(str(pid).encode())
    return True


def _become_task(request: dict, log: int, kept: Collection[int] = ()) -> None:
    """Does what `python -m MODULE ARGUMENTS`, or `python SCRIPT`, does, with `kept` open; never returns."""
    code = 1
    try:
        _forget_parent(log, kept)
        if request.get("namespace"):
            _enter_network(request["namespace"])
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environ"])
        time.tzset()
        if FORKS_VARIABLE in os.environ:
            told = {"arguments": request["arguments"], "start": start_of(os.getpid())}
            pathlib.Path(os.environ[FORKS_VARIABLE], str(os.getpid())).write_text(json.dumps(told))
        script = request.get("script")
        first = os.path.dirname(os.path.abspath(script)) if script else request["cwd"]
        sys.argv = [script or request["module"], *request["arguments"]]
        sys.path[:1] = [first, *request["environ"].get("PYTHONPATH", "").split(os.pathsep)]
        sys.modules["tests.plain_graphs"].are_wanted = PLAIN_GRAPHS_VARIABLE in os.environ
        if script or request["arguments"][:1] == ["launch"]:  # a script may launch a training, too
            launched_forks.install(_become_task)
        if script:
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 (the child of a test: its log shows what happened)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _enter_network(namespace: str) -> None:
    """Moves this process, which has one thread, into a network namespace, as `ip netns exec` does.

    The files in /etc/netns/NAME, such as hosts, take the place of those in /etc.
    """
    library = ctypes.CDLL(None, use_errno=True)

    def call(code: int) -> None:
        if code:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")

    with open(namespace, "rb") as file:
        call(library.setns(file.fileno(), 0))
    replacements = sorted(pathlib.Path("/etc/netns", os.path.basename(namespace)).glob("*"))
    if replacements:
        call(library.unshare(_CLONE_NEWNS))
        call(library.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None))
    for path in replacements:
        call(library.mount(bytes(path), f"/etc/{path.name}".encode(), None, _MS_BIND, None))


def _forget_parent(log: int, kept: Collection[int]) -> None:
    """Gives up what an exec gives up: signal handlers, open files, random numbers, the folder for temporary files."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for descriptor in set(range(3, 256)).difference(kept):
        with contextlib.suppress(OSError):  # it is not open
            os.close(descriptor)
    tempfile.tempdir = None  # so that TMPDIR is looked at again
    random.seed()  # else all children would draw the same numbers
    sys.modules["numpy"].random.seed()


def start_of(pid: int) -> str:
    """Returns when a process has started, in the kernel's ticks, from Linux' /proc; "" if it has ended."""
    try:
        state, *others = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else others[18]


@functools.cache
def prepare() -> None:
    """Imports what tasks use, before this process forks the first of them."""
    with _environment_of_import():
        installed.import_tensorflow_quietly()
    # A test process that has a fork server imports this module too, and needs none of the following.
    import numpy.random  # noqa: F401, PLC0415 (numpy imports it when it is first used)

    from ps_train.launch import launcher  # noqa: F401, PLC0415
    from ps_train.parts import table  # noqa: PLC0415
    from ps_train.runtime import signals, tracebacks  # noqa: F401, PLC0415
    from ps_train.tasks import run, without_training  # noqa: F401, PLC0415
    from ps_train.verbs import launch as launch_verb  # noqa: F401, PLC0415
    from ps_train.verbs import table as verb_table  # noqa: F401, PLC0415
    from ps_train.verbs import train as train_verb  # noqa: F401, PLC0415
    from tests import plain_graphs  # noqa: PLC0415

    for row in table.TABLE:  # a task imports these of all parts
        for place in ("part" if row.part else "", row.words, row.located, row.cluster, row.for_plugins):
            if place:
                importlib.import_module(f"ps_train.parts.{row.name}.{place.partition(':')[0]}")
    plain_graphs.install()
    gc.collect()
    gc.freeze()  # a child's collections would visit, and by that copy, each page of what is imported: 0.3 s per child
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)


@contextlib.contextmanager
def _environment_of_import() -> Iterator[None]:
    """Sets what TensorFlow reads when it is imported; a process that is started by exec decides for itself."""
    before = {name: os.environ.get(name) for name in (_ONEDNN_VARIABLE, installed.KERAS_VARIABLE)}
    # With oneDNN, TensorFlow looks through all of its kernels for each op of each graph that a session runs: a tenth of
    # the CPU time of a small training. Which kernels compute is nothing that tests of processes are about.
    os.environ.setdefault(_ONEDNN_VARIABLE, "0")
    installed.prefer_tf_keras()  # as a task does: TensorFlow imports one of both
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _main() -> None:
    prepare()
    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    _main()
