"""A child process, its log file and its reports.

    child --lines--> its log ----------------------------------> new_output: (line, report)
          --JSON, see runtime/reports.py--> a file without a name --^

A child writes directly to its log file, which the launcher reads. So neither a stopped terminal
nor a launcher that has died ever blocks a task.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, NamedTuple, Protocol

from ps_train.cluster import ports
from ps_train.errors import (
    ClusterLostError,
    ConfigError,
    LaunchError,
    Problem,
    PsTrainError,
    StoppedError,
    UserCodeError,
)
from ps_train.runtime import logs, reports
from ps_train.runtime.reports import Failure, Joined, Report

_REPORT_READ_BYTES = 1 << 20
POLL_SECS = 0.05
_LAST_LINES = 10
_KILL_SECS = 10.0
_READ_BYTES = 1 << 20
_SHOWN_BYTES = 1 << 12
_ERRORS = {kind.exit_code: kind for kind in (UserCodeError, ConfigError, ClusterLostError, StoppedError)}
_PROBLEM = re.compile(rf"{reports.MESSAGE_PREFIX}(.*) \[(\w+)\]")
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # of a machine, which may be over later
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>

class Started(Protocol):
    """What is needed of a child process: `subprocess.Popen`, or a task that a fork server has forked."""

    pid: int

    def poll(self) -> int | None:
        """Returns the exit code, -n for signal n, or None while it runs."""


Start = Callable[[Sequence[str], Mapping[str, str], int, Mapping[str, int]], "Started | None"]


class ChildReports:
    """A file that takes the reports of a child, also after its restarts.

    The file has no name, so nothing is left of it when the launcher ends, however it ends. A file, unlike a pipe, never
    blocks a child while the launcher is stopped.
    """

    def __init__(self, folder: str) -> None:
        """Creates the file in the file system of a folder."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open as long as the child may be restarted)
        self._read_bytes = 0
        self._has_joined = False
        self._unfinished_line = b""
        # Lines that are, or will be, in the log.
        self._expected: collections.deque[tuple[str, Report]] = collections.deque()

    @property
    def descriptor(self) -> int:
        """The open file, for the child."""
        return self._file.fileno()

    def close(self) -> None:
        """Closes the file, after a last look."""
        self._read()
        self._file.close()

    def of_line(self, line: str) -> Report | None:
        """Returns the report of which a line of the log is part, or None. Call it with the lines in their order."""
        self._read()
        message = message_in(line)
        for index, (expected, report) in enumerate(self._expected):
            if message == expected or message.endswith(f" {expected}"):  # after the time of day
                for _ in range(index + 1):  # the skipped ones are not in the log: the disk was full
                    self._expected.popleft()
                return report
        return None

    def has_joined(self) -> bool:
        """Returns whether the child has reported that it has joined, even if the line is missing in its log."""
        if not self._file.closed:
            self._read()
        return self._has_joined

    def _read(self) -> None:
        # The child has the same open file: pread does not move the position at which it writes.
        while chunk := os.pread(self.descriptor, _REPORT_READ_BYTES, self._read_bytes):
            self._read_bytes += len(chunk)
            *lines, self._unfinished_line = (self._unfinished_line + chunk).split(b"\n")
            for report, log_lines in filter(None, (reports.decode(line.decode("utf-8", "replace")) for line in lines)):
                self._has_joined = self._has_joined or isinstance(report, Joined)
                self._expected += ((line, report) for line in log_lines if line)


TASK_COMMAND = [sys.executable, "-m", "ps_train"]  # how the command of a task here begins


class TaskCommand(NamedTuple):
    """How one task is started.

    Attributes:
      name: as in `worker:1`.
      command: its command line.
      environ: its environment.
      folder: its working directory; "" for that of this process.
      start: a faster way to start it, see `ForkServer.start`; None for a new Python.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    folder: str = ""
    start: Start | None = None


class Process:
    """A child process whose output goes to a file; it is killed when the launcher dies."""

    def __init__(
        self, name: str, command: Sequence[str], log_path: str, environ: Mapping[str, str],
        held_port: socket.socket | None = None, *, folder: str = "", start: Start | None = None,
    ) -> None:
        """Starts it.

        Args:
          name: its name in messages, such as `worker:1`.
          log_path: the file to which its stdout and stderr are appended.
          held_port: a socket that reserves its port; closed here on systems where the child could not bind that port.
          folder: its working directory; "" for that of this process.
          start: starts it in a faster way, also again, or returns None; see `ForkServer.start`.

        Raises:
          ConfigError: its log cannot be written.
          ClusterLostError: there is no process, memory or open file left for it.
        """
        self.name = name
        self.log_path = log_path
        self.restarts = 0
        self.exit_code: int | None = None
        self.secs = 0.0  # from its first start to its last end
        self.last_lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._start_secs = time.monotonic()
        self._unfinished_line = b""
        self._command = command
        self._environ = {**environ, "PYTHONUNBUFFERED": "1"}
        self._folder = folder or os.getcwd()  # also of a restart: a program may change to another one meanwhile
        self._held_port, self._start_faster = held_port, start
        self.is_stopped_on_request = False
        self.failure_lines: list[str] = []  # of its last Failure: its traceback, and its message
        try:
            self._open_files()
            self._start()
        except OSError as error:
            if error.errno not in _SHORTAGES:
                raise ConfigError("process_cannot_start", f"cannot start {name} in {self._folder}: {error.strerror}; "
                                  "correct that, then start again") from None
            raise ClusterLostError("process_not_started", f"cannot start {name}: {error.strerror}; start fewer tasks, "
                                   "or raise the limits of processes, memory and open files (`ulimit -a`)") from None

    def _open_files(self) -> None:
        try:
            self._log = open(self.log_path, "ab")  # noqa: SIM115 (open as long as the process may be restarted)
            self._reader = open(self.log_path, "rb")  # noqa: SIM115 (the same)
            self._reports = ChildReports(os.path.dirname(os.path.abspath(self.log_path)))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # another folder would not help
                raise
            raise ConfigError("folder_not_writable", f"cannot write the log {self.log_path!r}: {error.strerror}; give "
                              "another folder with --log_dir") from None
        self._reader.seek(0, os.SEEK_END)

    @property
    def pid(self) -> int:
        """Its process id, which changes with a restart."""
        return self._child.pid

    @property
    def has_joined(self) -> bool:
        """Whether it has reported that it has joined a cluster, as a script does that makes its own server."""
        return self._reports.has_joined()

    @property
    def unfinished_line(self) -> str:
        """What it has written of a line that has no break yet, in its last state if it is redrawn; its begin only."""
        return self._unfinished_line[:_SHOWN_BYTES].decode("utf-8", "replace").rstrip("\r")

    def restart(self) -> None:
        """Starts it again after it has ended, with the same command and port; its output is appended to the log.

        Raises:
          OSError: there is no process or no memory left for it; it counts as a restart.
        """
        self.restarts += 1
        self._start()
        self.exit_code = None
        self.failure_lines.clear()

    def _start(self) -> None:
        inherited = {reports.DESCRIPTOR_VARIABLE: self._reports.descriptor}
        if self._held_port is not None and self._held_port.fileno() >= 0:
            inherited[ports.HELD_PORT_VARIABLE] = self._held_port.fileno()
        fork = self._start_faster and self._start_faster(self._command, self._environ, self._log.fileno(), inherited)
        self._child: Started = fork or self._popen(inherited)
        if self._held_port is not None and not ports.CAN_SHARE_PORT:
            self._held_port.close()

    def _popen(self, inherited: Mapping[str, int]) -> subprocess.Popen:
        environ = {**self._environ, **{name: str(descriptor) for name, descriptor in inherited.items()}}
        # In its own session: Ctrl-C in the terminal reaches only the launcher, which then decides.
        return subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=environ, cwd=self._folder,
            pass_fds=tuple(inherited.values()), start_new_session=True, preexec_fn=killed_with_parent())

    def poll(self) -> int | None:
        """Returns the exit code, 128 + n for signal n, or None while it runs."""
        if self.exit_code is None and (code := self._child.poll()) is not None:
            if code < 0:  # it was killed, and the processes of its dataset keep its port; others may still upload
                self._send(signal.SIGKILL)
            self.exit_code = code if code >= 0 else 128 - code
            self.secs = time.monotonic() - self._start_secs
        return self.exit_code

    def new_output(self) -> Iterator[tuple[str, Report | None]]:
        """Yields each line written since the last call, with the report of which it is part, if any."""
        for line in self.new_lines():
            report = self._reports.of_line(line)
            if isinstance(report, Failure):
                self.failure_lines += plain_lines(line)
                self.is_stopped_on_request |= report.is_requested
            yield line, report

    def new_lines(self) -> Iterator[str]:
        """Yields lines written since the last call, after its end all, also a last one without a line break."""
        has_ended = self.poll() is not None  # before reading: then all that it has written is in the file
        if os.fstat(self._reader.fileno()).st_size < self._reader.tell():  # cut off, as by logrotate's copytruncate
            self._reader.seek(0)
        while chunk := self._reader.read(_READ_BYTES):
            *lines, self._unfinished_line = (self._unfinished_line + chunk).split(b"\n")
            # Of a line that is redrawn, such as a progress bar, only the last state: it may not end for hours.
            drawn = self._unfinished_line.rstrip(b"\r")
            self._unfinished_line = self._unfinished_line[drawn.rfind(b"\r") + 1:]
            yield from map(self._note, lines)
            if not has_ended:  # it may write faster than this reads
                break
        if has_ended and self._unfinished_line:
            yield self._note(self._unfinished_line)
            self._unfinished_line = b""

    def _note(self, raw: bytes) -> str:
        line = raw.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]  # the last state of a redrawn line
        self.last_lines.append(line)
        return line

    def terminate(self) -> None:
        """Asks it to stop. A task needs the processes of its dataset until it has saved, and ends them then."""
        if self.poll() is None:
            is_task = list(self._command[:3]) == TASK_COMMAND and "run" not in self._command[3:4]
            self._send(signal.SIGTERM, os.kill if is_task else os.killpg)

    def kill(self) -> None:
        """Ends it and its own child processes at once; one whose file system hangs may end later, or never."""
        if self.poll() is None:
            self._send(signal.SIGKILL)
        end_secs = time.monotonic() + _KILL_SECS
        while self.poll() is None and time.monotonic() < end_secs:
            time.sleep(POLL_SECS)
        if self.exit_code is None:
            self.exit_code = 128 + signal.SIGKILL

    def close(self) -> None:
        """Closes its files, once it has ended for good and its output was read."""
        for file in (self._log, self._reader):
            file.close()
        self._reports.close()

    def _send(self, number: int, send: Callable[[int, int], None] = os.killpg) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or is another user's
            send(self._child.pid, number)


def message_in(line: str) -> str:
    """Returns the message of a line of JSON, or the line itself if it is none."""
    if not logs.is_json_line(line):
        return line
    try:
        return str(json.loads(line)["message"])
    except (ValueError, KeyError, TypeError):
        return line


def plain_lines(line: str) -> list[str]:
    """Returns a line of a log, or those of text that say what a line of JSON says about an error."""
    if not logs.is_json_line(line):
        return [line]
    record = json.loads(line)
    code = f" [{record['code']}]" if "code" in record else ""
    first, *more = record["message"].split("\n")
    return [*record.get("traceback", "").splitlines(), f"{reports.MESSAGE_PREFIX}{first}{code}", *more]


def error_of(lines: Sequence[str], exit_code: int, task: str = "") -> PsTrainError:
    """Returns the error of a process, from its last lines, or those of its Failure: a traceback, and problems.

    The traceback stands behind the problems in the message. The class follows from the exit code.

    Args:
      task: its name, with which the message begins; "" to leave it out.
    """
    pairs = [(line, _PROBLEM.fullmatch(line)) for line in lines]
    problems = [Problem(code, text) for _, match in pairs if match for text, code in [match.groups()]]
    others = [line for line, match in pairs if not match]
    if not problems:
        colon = "; its last lines:" if others else ""
        problems.append(Problem("task_failed", f"failed with exit code {exit_code}{colon}"))
    message = (f"{task}: " if task else "") + "\n".join([*problems, *others])
    kind = _ERRORS.get(exit_code)
    error = kind("", message) if kind else LaunchError("", message, exit_code)
    error.problems = tuple(problems)
    return error


def killed_with_parent() -> Callable[[], None] | None:
    """Returns a function, for `preexec_fn`, that makes a child die with this process.

    The kernel kills the child (prctl(2), PR_SET_PDEATHSIG), also when this process was killed, without help from the
    task. The signal is SIGKILL because a task that is stuck in native code would survive SIGTERM. macOS has no such
    call: there, a launcher that is killed leaves its tasks running. The kernel takes the thread that started the child
    for its parent: it must live as long.
    """
    return killed_with(os.getpid()) if sys.platform == "linux" else None


def killed_with(parent_pid: int) -> Callable[[], None]:
    """Returns a function that makes the process that calls it, a child of this one, die with it; see above.

    After fork the function takes no lock that another thread may hold.
    """
    prctl = ctypes.CDLL(None).prctl

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent_pid:  # it died before the call
            os._exit(128 + signal.SIGKILL)

    return ask_kernel
