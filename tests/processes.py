"""Real tasks as processes, for tests: each wait has a deadline, and nothing is left behind."""

from __future__ import annotations

import fcntl
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from ps_train.cluster.ports import CAN_SHARE_PORT
from tests import fork_server
from tests.fork_server import ForkedProcess

REPO = pathlib.Path(__file__).resolve().parent.parent
DEADLINE_SECS = 90.0
# Of a process that ends by itself: a guard against a hang. Beside eight busy processes, Python with TensorFlow may take
# a minute to start.
GUARD_SECS = 300.0
_FIRST_PORT, _NUM_PORTS = 10000, 20000
_PORT_STRIDE = 7919  # a prime, so that every port has its turn; large, as some tests use the ports behind the drawn one


def free_ports(count: int) -> list[int]:
    """Returns ports that were free just now, below the range from which outgoing connections take theirs."""
    found: list[int] = []
    while len(found) < count:
        port = _next_port()
        if not is_open(port) and _can_bind(port):
            found.append(port)
    return found


def _next_port() -> int:
    """Returns each port in turn, to all processes of this user: what one has drawn no other one draws meanwhile."""
    with open(pathlib.Path(tempfile.gettempdir(), f"ps_train_test_port.{os.getuid()}"), "a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        last = int(file.read() or random.randrange(_NUM_PORTS))
        turn = (last + _PORT_STRIDE) % _NUM_PORTS
        file.truncate(0)
        file.write(str(turn))
    return _FIRST_PORT + turn


def hold_port(port: int) -> socket.socket:
    """Keeps a port for a server of this machine: until the socket is closed, `free_ports` finds it taken everywhere.

    A server that sets SO_REUSEADDR, as gRPC's does, may bind beside it on Linux; see `ps_train.ports`.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", port))
    return holder


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def is_open(port: int) -> bool:
    """Tells whether somebody accepts connections on the port."""
    try:
        with socket.create_connection(("localhost", port), timeout=1):
            return True
    except OSError:
        return False


def _namespace(before: Sequence[str]) -> str | None:
    """Returns the file of the network namespace that these words enter, "" for no words, None if they do else."""
    if list(before[:3]) == ["ip", "netns", "exec"]:
        return f"/run/netns/{before[3]}"
    if len(before) == 2 and before[0] == "nsenter" and before[1].startswith("--net="):
        return before[1].removeprefix("--net=")
    return None if before else ""


class ProcessGroup:
    """The processes of one test."""

    def __init__(self, log_dir: pathlib.Path) -> None:
        self._log_dir = log_dir
        self._log_dir.mkdir(parents=True)
        self._processes: dict[str, subprocess.Popen | ForkedProcess] = {}

    def start(self, name: str, arguments: list[str], cwd=REPO, env: dict[str, str] | None = None,
              log_path: str | None = None, before: Sequence[str] = (),
              is_exec: bool = False, script: str = "") -> subprocess.Popen | ForkedProcess:
        """Starts `python -m ps_train`, or `python SCRIPT`, with the arguments.

        Args:
          name: of the process and its log.
          log_path: where its log is instead.
          before: what the command begins with; such a process is a fork only if that enters a network namespace.
          is_exec: start a new Python, as a user does, in place of a fork of one that has imported TensorFlow.
        """
        environ = {**os.environ, "PYTHONPATH": str(REPO), "PYTHONUNBUFFERED": "1", **(env or {})}
        environ.pop("TF_CONFIG", None) if "TF_CONFIG" not in (env or {}) else None
        (self._log_dir / name).touch()
        with open(log_path or self._log_dir / name, "wb") as log:
            namespace = _namespace(before)
            if is_exec or namespace is None:
                program = [script] if script else ["-m", "ps_train"]
                process = subprocess.Popen([*before, sys.executable, *program, *arguments], cwd=cwd,
                                           env=environ, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            else:
                process = fork_server.of_this_process().start(arguments, cwd, environ, log.fileno(), script=script,
                                                              namespace=namespace)
        self._processes[name] = process
        return process

    def pause(self, name: str) -> None:
        """Freezes a process; when this returns, it stands still."""
        self._send(name, signal.SIGSTOP)
        end_secs = time.monotonic() + DEADLINE_SECS
        while self._processes[name].poll() is None and not self._is_stopped(name):
            assert time.monotonic() < end_secs, f"{name} does not stop"
            time.sleep(0.01)

    def _is_stopped(self, name: str) -> bool:
        """Tells whether Linux' /proc shows every thread of the process as stopped."""
        threads = pathlib.Path(f"/proc/{self._processes[name].pid}/task")
        try:
            found = [path.read_text() for path in threads.glob("*/status")]
        except (FileNotFoundError, ProcessLookupError):  # one has just ended
            return False
        return bool(found) and all(re.search(r"^State:\s+T", status, re.MULTILINE) for status in found)

    def resume(self, name: str) -> None:
        """Lets a process that was paused go on."""
        self._send(name, signal.SIGCONT)

    def kill(self, name: str) -> None:
        """Ends a process as `kill -9` does; when this returns, it is gone."""
        self._send(name, signal.SIGKILL)
        self._processes[name].wait(DEADLINE_SECS)

    def _send(self, name: str, number: int) -> None:
        assert self._processes[name].poll() is None, f"{name} has ended already"
        self._processes[name].send_signal(number)

    def wait(self, deadline_secs: float = DEADLINE_SECS) -> dict[str, int]:
        """Returns name -> exit code of all processes, which must end before the deadline."""
        end_secs = time.monotonic() + deadline_secs
        for name, process in self._processes.items():
            try:
                process.wait(max(0.0, end_secs - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} still runs after {deadline_secs} s") from None
        return {name: process.returncode for name, process in self._processes.items()}

    def wait_for_line(self, name: str, text: str, deadline_secs: float = DEADLINE_SECS, number: int = 1) -> str:
        """Returns the first line, or that of the number, with the text in a log; it must come in time, and whole."""
        end_secs = time.monotonic() + deadline_secs
        while time.monotonic() < end_secs:
            is_over = self._processes[name].poll() is not None
            log = self.log(name)
            whole = log if is_over else log[:log.rfind("\n") + 1]  # the last line may be written just now
            lines = [line for line in whole.splitlines() if text in line]
            if len(lines) >= number:
                return lines[number - 1]
            if is_over:
                raise AssertionError(f"{name} ended without {text!r} in its log")
            time.sleep(0.02)
        raise AssertionError(f"{name} has no {text!r} in its log after {deadline_secs} s")

    def wait_until_heard(self, name: str) -> None:
        """Returns when a process has heard a signal: it says so within 0.2 s, unless it has ended before."""
        end_secs = time.monotonic() + DEADLINE_SECS
        while self.poll(name) is None and "stopping: the current work" not in self.log(name):
            assert time.monotonic() < end_secs, f"{name} has not heard the signal after {DEADLINE_SECS} s"
            time.sleep(0.02)

    def signal(self, name: str, number: int) -> None:
        """Sends a signal to a process."""
        self._processes[name].send_signal(number)

    def exit_code(self, name: str, deadline_secs: float = DEADLINE_SECS) -> int:
        """Returns the exit code of a process, which must end before the deadline."""
        try:
            return self._processes[name].wait(deadline_secs)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{name} still runs after {deadline_secs} s") from None

    def poll(self, name: str) -> int | None:
        """Returns the exit code of a process, or None while it runs."""
        return self._processes[name].poll()

    @property
    def names(self) -> list[str]:
        """The names of all processes."""
        return list(self._processes)

    def status(self, name: str, field: str) -> int:
        """Returns a number of a running process from Linux' /proc: "Threads", or "VmRSS" in KiB."""
        status = pathlib.Path(f"/proc/{self._processes[name].pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+)", status, re.MULTILINE)[1])

    def log(self, name: str) -> str:
        """Returns what a process has printed so far."""
        return (self._log_dir / name).read_text(errors="replace")

    def log_from(self, name: str, start_bytes: int) -> tuple[str, int]:
        """Returns the whole lines that a process has printed from a byte on, and the byte behind them."""
        with open(self._log_dir / name, "rb") as log:
            log.seek(start_bytes)
            lines, line_break, _ = log.read().rpartition(b"\n")
        return lines.decode(errors="replace"), start_bytes + len(lines) + len(line_break)

    def logs(self) -> str:
        """Returns all logs."""
        return "\n".join(f"--- {name} ({process.poll()})\n{self.log(name)}"
                         for name, process in self._processes.items())

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *exc_info) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


class TaskCluster:
    """The command lines of a cluster on this machine, whose ports are its own as long as it is there."""

    def __init__(self, num_ps: int, num_workers: int) -> None:
        ports = free_ports(num_ps + num_workers)
        self.ports = ports
        self._held = [hold_port(port) for port in ports] if CAN_SHARE_PORT else []
        self.ps = [f"localhost:{port}" for port in ports[:num_ps]]
        self.workers = [f"localhost:{port}" for port in ports[num_ps:]]

    def flags(self, job: str, index: int, told: Mapping[str, str] | None = None) -> list[str]:
        """Returns the classic flags of one task; `told` has what it is told in place of an address, a proxy's say."""
        hosts = [",".join((told or {}).get(address, address) for address in addresses)
                 for addresses in (self.ps, self.workers)]
        return [f"--ps_hosts={hosts[0]}", f"--worker_hosts={hosts[1]}", f"--job_name={job}", f"--task_index={index}"]

    def tasks(self) -> list[tuple[str, int]]:
        """Returns (job, index) of every task."""
        return [("ps", index) for index in range(len(self.ps))] + [
            ("worker", index) for index in range(len(self.workers))]

    def start(self, group: ProcessGroup, flags: list[str], **options) -> None:
        """Starts all tasks with the same further flags."""
        for job, index in self.tasks():
            group.start(f"{job}-{index}", [*self.flags(job, index), *flags], **options)
