"""Processes of this machine: how they are started, watched and ended.

    Process  a child with a log file
    watch    until all have ended for good, or until there is a reason to end them
    end      workers first, so that the chief can still save on the ps; then the ps

No TensorFlow here, and no threads: a child writes straight into its log file, which the launcher reads. A terminal
that is stopped, or a launcher that is gone, therefore never blocks a task.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Callable, NamedTuple

from ps_train.cluster import ports

GRACE_SECS = 10.0  # between the end of the workers and that of the ps; and, unless told otherwise, SIGTERM and SIGKILL
_CAUSE_SECS = 2.0  # a task that ends because of another one's failure may end before it
_POLL_SECS = 0.05
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
            time.sleep(_POLL_SECS)

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


class Tasks(NamedTuple):
    """The processes of a cluster."""

    ps: list[Process]
    workers: list[Process]

    @property
    def everyone(self) -> list[Process]:
        """All of them, the ps first."""
        return [*self.ps, *self.workers]


def worst(codes: Sequence[int]) -> int:
    """Returns the exit code of a whole whose parts ended with these; of equals, the first.

    The order, from bad to good: 1 to 127 permanent, running it again does not help; 128 and above, but 143: lost or
    killed by a signal, may be run again; 143 stopped when told to; 0 done.
    """
    return max(codes, key=lambda code: (0 if code == 0 else 1 if code == 143 else 2 if code >= 128 else 3), default=0)


@contextlib.contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Yields a list to which SIGINT, SIGTERM and SIGHUP are added as they arrive, instead of ending the process."""
    noted: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup asks for that
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, lambda number, frame: noted.append(number)) for number in numbers}
    try:
        yield noted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _never(tasks: Tasks) -> Collection[Process]:
    return ()


def watch(
    tasks: Tasks, show: Callable[[], None], signals: Sequence[int],
    revive: Callable[[Tasks], Collection[Process]] = _never,
) -> Sequence[Process]:
    """Returns when all have ended, a signal came, one failed, or a ps does not end after the workers.

    Args:
      show: called again and again; shows what the tasks print.
      signals: see `noted_signals`.
      revive: called again and again; starts tasks again, and returns those that have ended and wait for that, which
        count as running. It must not block.

    Returns:
      The processes that failed, those only that failed for good where there is one, or those that are overdue.
    """
    overdue_secs = told_secs = float("inf")
    first_failed: list[Process] = []
    while not signals:
        for process in tasks.everyone:
            process.poll()
        show()
        waiting = revive(tasks)
        failed = [process for process in tasks.everyone if process.exit_code and process not in waiting]
        running = [process for process in tasks.everyone if process.exit_code is None or process in waiting]
        if failed and not first_failed:
            first_failed, told_secs = failed, time.monotonic() + _CAUSE_SECS
        causes = [process for process in failed if (process.exit_code or 0) < 128]
        if causes or not running or time.monotonic() > told_secs:
            return causes or first_failed
        if not any(process in running for process in tasks.workers):
            overdue_secs = min(overdue_secs, time.monotonic() + GRACE_SECS)
            if time.monotonic() > overdue_secs:
                return running
        time.sleep(_POLL_SECS)
    return []


def end(
    tasks: Tasks, show: Callable[[], None], signals: Sequence[int], grace_secs: float | None = None
) -> None:
    """Ends what still runs: SIGTERM, and SIGKILL after the grace period or, at once, when a (further) signal comes.

    Args:
      signals: see `noted_signals`.
      grace_secs: of the workers, and then of the ps; None for GRACE_SECS.
    """
    grace_secs = GRACE_SECS if grace_secs is None else grace_secs
    patience = 1 if signals else 0  # the signal that asked for the end is no reason to hurry
    for group in (tasks.workers, tasks.ps):
        for process in group:
            process.terminate()
        deadline_secs = time.monotonic() + grace_secs
        while (any(process.poll() is None for process in group) and len(signals) <= patience
               and time.monotonic() < deadline_secs):
            show()
            time.sleep(_POLL_SECS)
        for process in group:
            process.kill()
    show()
