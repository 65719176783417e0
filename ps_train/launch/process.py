"""A child process with a log file.

No TensorFlow here, and no threads: a child writes straight into its log file, which the launcher reads. A terminal
that is stopped, or a launcher that is gone, therefore never blocks a task.
"""

from __future__ import annotations

import collections
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable

from ps_train.cluster import ports

POLL_SECS = 0.05
_LAST_LINES = 10
_READ_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


class Process:
    """A child process with its output in a file; it is killed when the launcher dies."""

    def __init__(
        self, name: str, command: Sequence[str], log_path: str, environ: Mapping[str, str],
        held_port: socket.socket | None = None,
    ) -> None:
        """Starts it.

        Args:
          name: what it is called in messages, such as `worker:1`.
          log_path: where its stdout and stderr are appended to.
          held_port: keeps its port free for it, and for it only; closed here where the system needs that.
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
        self._held_port = held_port
        self._log = open(log_path, "ab")  # noqa: SIM115 (open for as long as the process may be started again)
        self._reader = open(log_path, "rb")  # noqa: SIM115 (the same)
        self._reader.seek(0, os.SEEK_END)
        self._start()

    @property
    def pid(self) -> int:
        """Its process id, which after a restart is another one."""
        return self._popen.pid

    def restart(self) -> None:
        """Starts it again after it has ended: the same command, the same port, and its log goes on."""
        self.restarts += 1
        self.exit_code = None
        self._start()

    def _start(self) -> None:
        environ, descriptors = self._environ, []
        if self._held_port is not None and self._held_port.fileno() >= 0:
            descriptors = [self._held_port.fileno()]
            environ = {**environ, ports.HELD_PORT_VARIABLE: str(descriptors[0])}
        # A session of its own: Ctrl-C in the terminal reaches the launcher only, which then decides.
        self._popen = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=environ,
            pass_fds=descriptors, start_new_session=True, preexec_fn=_killed_with_launcher())
        if self._held_port is not None and not ports.CAN_BIND_BESIDE:
            self._held_port.close()

    def poll(self) -> int | None:
        """Returns the exit code, 128 + n for signal n, or None while it runs."""
        if self.exit_code is None and (code := self._poll()) is not None:
            self.exit_code = code if code >= 0 else 128 - code
            self.secs = time.monotonic() - self._start_secs
        return self.exit_code

    def _poll(self) -> int | None:
        return self._popen.poll()

    def new_lines(self) -> Iterator[str]:
        """Yields the lines that it has written since the last call, and at its end also one without a line break."""
        has_ended = self.poll() is not None  # asked first: what it wrote before that is in the file now
        while chunk := self._reader.read(_READ_BYTES):
            *lines, self._unfinished_line = (self._unfinished_line + chunk).split(b"\n")
            yield from map(self._note, lines)
        if has_ended and self._unfinished_line:
            yield self._note(self._unfinished_line)
            self._unfinished_line = b""

    def _note(self, raw: bytes) -> str:
        line = raw.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]  # of a redrawn line, its last state
        self.last_lines.append(line)
        return line

    def terminate(self) -> None:
        """Asks it to stop."""
        if self.poll() is None:
            self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once, with what it has started itself."""
        if self.poll() is None:
            self._send(signal.SIGKILL)
        while self.poll() is None:
            time.sleep(POLL_SECS)

    def _send(self, number: int) -> None:
        os.killpg(self._popen.pid, number)


def _killed_with_launcher() -> Callable[[], None] | None:
    """Returns what makes a child die with this process, for the time between fork and exec.

    The kernel does it (prctl(2), PR_SET_PDEATHSIG), also when this process is killed, and needs no help from the
    task. SIGKILL and not SIGTERM: a task that is stuck in native code would outlive SIGTERM. There is no such call on
    macOS: there, only a launcher that can still act ends its tasks. It is safe after fork since there are no threads.
    """
    if sys.platform != "linux":
        return None
    prctl, launcher = ctypes.CDLL(None).prctl, os.getpid()

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != launcher:  # it died before the kernel was asked
            os._exit(128 + signal.SIGKILL)

    return ask_kernel


