"""Asks all hosts at once, before any task starts, whether they can run tasks, and reserves the ports there.

    python -m ps_train.parts.ssh.preflight COUNT FIRST_PORT  -->  one line of JSON

is the probe that runs on each host. It reports the packages installed there, and holds free ports until SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps_train import __version__
from ps_train.cluster import ports
from ps_train.errors import ConfigError, Problem, refuse
from ps_train.launch.machines import hold_ports
from ps_train.launch.preparation import stopped
from ps_train.launch.process import POLL_SECS, Process
from ps_train.parts.ssh.connection import LOST_CONNECTION
from ps_train.parts.ssh.hosts import CONNECT_SECS, Host, RemoteShell
from ps_train.runtime.installed import tensorflow_problem, tensorflow_version

_ANSWER_SECS = 60.0  # for all hosts together: to connect, and to start a Python
_GRACE_SECS = 5.0
# How often a host is asked whose connection was dropped. Asking all at once makes more connections to a host on the way
# (`ssh -J`) than its sshd takes (MaxStartups).
_TRIES = 5
_DROPPED = re.compile("(kex|ssh)_exchange_identification")
# Pattern of a message of ssh, the shell or Python on a host --> code, the fault, and what to do.
_FAULTS = (
    ("Permission denied", "ssh_refused", "ssh is refused: give a key that the host knows (`ssh -i KEY` in "
     "--ssh_command), or start ssh-agent"),
    ("Host key verification failed", "host_key_unknown", "its host key is not known here: connect once by hand, `ssh "
     "{host}`, and check it"),
    ("Could not resolve hostname", "host_name_unknown", "its name does not resolve here: is it spelt right?"),
    ("Connection refused", "ssh_server_missing", "no ssh server answers there: start sshd, or give its port (`ssh -p "
     "PORT` in --ssh_command)"),
    ("timed out|No route to host|unreachable", "host_unreachable", "it cannot be reached: is it up, and is a firewall "
     "between?"),
    (r"No module named '?ps_train\.", "other_ps_train", "another version of ps_train there than {version}: install "
     "that one"),
    ("No module named '?ps_train", "ps_train_missing", "no ps_train for {python} there: install it, or give "
     "--remote_python, --remote_dir or PYTHONPATH"),
    ("not found|No such file or directory", "remote_path_missing", "no {python} or no folder {folder} there: give "
     "--remote_python and --remote_dir"),
    (r"can't cd to|cd: ", "remote_path_missing", "no folder {folder} there: make it, or give --remote_dir"),
)


@contextlib.contextmanager
def reserved_hosts(
    shell: RemoteShell, counts: Mapping[Host, int], first_port: int, signals: Sequence[int], *, working_dir: str = ""
) -> Iterator[dict[Host, list[int]]]:
    """Yields the reserved ports of each host; they stay reserved until the block ends.

    Args:
      counts: host -> the number of its tasks.
      first_port: the first one to try.
      signals: see `noted_signals`.
      working_dir: where ssh runs; "" for the folder of this process.

    Raises:
      ConfigError: hosts cannot be reached or cannot run tasks; has a problem for each.
      LaunchError: this process was asked to stop.
    """
    probes: dict[Host, Process] = {}
    with tempfile.TemporaryDirectory(prefix="ps_train-hosts-") as folder:
        try:
            for number, (host, count) in enumerate(counts.items()):
                words = ["-m", "ps_train.parts.ssh.preflight", str(count), str(first_port)]
                command = shell.relay_command(host, f"probe of {host}", words, _GRACE_SECS)
                probes[host] = Process(
                    f"{host}", command, os.path.join(folder, str(number)), os.environ, folder=working_dir)
            yield _ports(_answers(probes, shell, signals), shell)
        finally:
            _end(list(probes.values()))


def _answers(
    probes: Mapping[Host, Process], shell: RemoteShell, signals: Sequence[int]
) -> dict[Host, dict[str, Any] | list[str]]:
    """Returns the answer of each probe; without one, the lines that the probe has printed."""
    asked = [_AskedHost(host, probe, shell) for host, probe in probes.items()]
    end_secs = time.monotonic() + _ANSWER_SECS
    while any(one.answer is None for one in asked) and time.monotonic() < end_secs:
        if signals:
            raise stopped(signals[0])
        for one in asked:
            one.look()
        time.sleep(POLL_SECS)
    timed_out = [f"ps_train: no answer within {_ANSWER_SECS:g} s, of which ssh has {CONNECT_SECS} s to connect"]
    return {one.host: one.lines + timed_out if one.answer is None else one.answer for one in asked}


class _AskedHost:
    """A host with its probe, which is started again if its connection is dropped before ssh has logged in.

    Attributes:
      host: the host.
      lines: what the probe has printed.
      answer: what `_answer` returns of a line; the lines if the probe has ended without one; None before.
    """

    def __init__(self, host: Host, probe: Process, shell: RemoteShell) -> None:
        self.host, self._probe, self._shell = host, probe, shell
        self.lines: list[str] = []
        self.answer: dict[str, Any] | list[str] | None = None
        self._next_try_secs: float | None = None

    def look(self) -> None:
        """Reads what the probe has printed, and starts it again if that is due."""
        if self.answer is not None or (self._next_try_secs and time.monotonic() < self._next_try_secs):
            return
        if self._next_try_secs is not None:
            self._next_try_secs = None
            self.lines.clear()
            try:
                self._probe.restart()
            except OSError as error:  # no process or no memory is left for it
                self.lines.append(f"ps_train: cannot start ssh again: {error.strerror}")
                self.answer = self.lines
                return
        has_ended = self._probe.poll() is not None
        for line in self._probe.new_lines():
            self.answer = self.answer or _answer(line)
            self.lines.append(line)
        if has_ended and self.answer is None:
            if self._is_dropped() and self._probe.restarts + 1 < _TRIES:
                self._next_try_secs = time.monotonic() + 2**self._probe.restarts * random.uniform(0.5, 1.5)
            else:
                self.answer = self.lines

    def _is_dropped(self) -> bool:
        """Returns whether ssh has no other reason than that the other side has ended the connection at its begin."""
        fault = explain_host_fault(self.lines, self.host, self._shell)
        return fault.code == "ssh_failed" and any(map(_DROPPED.search, self.lines))


def _answer(line: str) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        record = json.loads(line)
        if isinstance(record, dict) and "ps_train" in record:
            return record
    return None


def _ports(answers: Mapping[Host, dict[str, Any] | list[str]], shell: RemoteShell) -> dict[Host, list[int]]:
    """Returns the ports of each host; raises a ConfigError with a problem for each host that cannot run tasks."""
    problems, ports_of_hosts, versions = [], {}, {}
    fault: Problem | None
    for host, answer in answers.items():
        if isinstance(answer, list):
            fault = explain_host_fault(answer, host, shell)
        elif answer["ps_train"] != __version__:
            fault = Problem("other_ps_train", f"ps_train {answer['ps_train']} there, and {__version__} here: install "
                                              "the same one")
        else:
            code = answer.get("code")
            fault = Problem(code, answer["fault"]) if code else None
            ports_of_hosts[host], versions[host] = answer.get("ports", []), answer["tensorflow"]
        problems += [Problem(fault.code, f"{host}: {fault}")] if fault else []
    refuse(problems)
    if len(set(versions.values())) > 1:
        shown = ", ".join(f"{host} has {version}" for host, version in versions.items())
        raise ConfigError("tensorflow_differs", f"the hosts have different TensorFlows: {shown}; install the same one "
                          "on all")
    return ports_of_hosts


def explain_host_fault(lines: Sequence[str], host: Host, shell: RemoteShell) -> Problem:
    """Returns the fault of a host, from the output of ssh, its shell and its Python."""
    printed = [line.strip() for line in lines if line.strip() and not line.startswith(LOST_CONNECTION)]
    for line in reversed(printed):  # the reason comes last, after greetings and warnings
        if line.startswith("ps_train: "):  # such a line says what to do, and may have its code
            text, _, code = line.removeprefix("ps_train: ").rstrip("]").rpartition(" [")
            return Problem(code, text) if text and code.isidentifier() else Problem(
                "ssh_failed", line.removeprefix("ps_train: "))
        for pattern, code, advice in _FAULTS:
            if re.search(pattern, line):
                advice = advice.format(host=host, python=shell.python, folder=shell.folder, version=__version__)
                return Problem(code, f"{advice} ({line})")
    return Problem("ssh_failed", printed[-1] if printed else "ssh printed nothing; try `ssh` to it by hand")


def _end(probes: Sequence[Process]) -> None:
    for probe in probes:
        probe.terminate()
    end_secs = time.monotonic() + _GRACE_SECS
    while any(probe.poll() is None for probe in probes) and time.monotonic() < end_secs:
        time.sleep(POLL_SECS)
    for probe in probes:
        probe.kill()


def main(argv: Sequence[str]) -> int:
    """Prints the packages and ports of this host, and waits for SIGTERM; then the ports are free again."""
    count, first_port = map(int, argv)
    version = tensorflow_version()
    problem = tensorflow_problem(version)
    answer: dict[str, Any] = {"ps_train": __version__, "python": platform.python_version(), "tensorflow": version}
    try:
        held = hold_ports(count, first_port)
        answer["ports"] = [holder.getsockname()[1] for holder in held]
        for holder in held:
            ports.let_server_bind(holder)
    except ConfigError as error:
        problem = problem or error.problems[0]
    if problem:
        answer.update(fault=problem, code=problem.code)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print(json.dumps(answer), flush=True)
    signal.sigwait({signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
