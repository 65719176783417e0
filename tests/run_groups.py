"""Runs groups of test files, each in a fork of this process, which has imported TensorFlow once for all of them.

    python -m scripts.plan_tests FOLDER... | python -m tests.run_groups JOBS [FILE]

    this process --- fork ---> the pytest of a group --- fork ---> its fork server (fork_server.py)
         |  <--- exit code ------------|

Each line of the input is a group. JOBS of them run at a time. When one has passed, its files, pytest's last line and
its CPU time, with that of its processes, are printed; when it has failed, all of its output. The exit code is 1 if any
has failed, or has ended without pytest's last line. FILE gets the seconds, the 10^6 bytes and the seconds of CPU time
that each test file took, for `scripts.plan_tests --record`.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time
from typing import IO, Any

from tests import fork_server

_monotonic = time.monotonic  # a test may have replaced it when a file is measured
_LAST_LINE = re.compile(r"^=+ \d+ (?:passed|skipped)\b.* in [\d.]+s.* =+$", re.MULTILINE)


class Measuring:
    """A plug-in of pytest that notes what each test file takes.

    That is a line of JSON: the file, seconds, 10^6 bytes, seconds of CPU time. The bytes are those that this process
    keeps afterwards, such as servers, which TensorFlow cannot stop. The CPU time is also that of the processes that the
    tests have started, as far as they have ended.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Takes the file of the lines."""
        self._path = path
        self._before = _usage()

    def pytest_collection_finish(self) -> None:
        """Begins with the first test."""
        self._before = _usage()

    def pytest_runtest_teardown(self, item: Any, nextitem: Any) -> None:
        """Notes a file after its last test."""
        if nextitem is not None and nextitem.path == item.path:
            return
        now = _usage()
        taken = [max(0.0, round(after - before, 1)) for after, before in zip(now, self._before)]
        with self._path.open("a", encoding="utf-8") as file:
            print(json.dumps([item.nodeid.partition("::")[0], *taken]), file=file)
        self._before = now


def _usage() -> tuple[float, float, float]:
    """Returns the seconds of now, and what this process keeps and has used: 10^6 bytes and seconds of CPU time."""
    return _monotonic(), _resident_mbytes(), sum(os.times()[:4]) + fork_server.cpu_secs()


def _resident_mbytes() -> float:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def run(groups: list[list[str]], jobs: int, measured: pathlib.Path | None = None) -> bool:
    """Runs the groups; returns whether all have passed.

    Args:
      measured: the file that `Measuring` writes; None to measure nothing.
    """
    # Pure tests should not have TensorFlow in their process, so they are forked before it is imported.
    waiting = sorted(groups, key=lambda files: not _is_pure(files))
    running: dict[int, tuple[list[str], IO[bytes]]] = {}
    has_passed, total_cpu_secs = True, 0.0
    while waiting or running:
        while waiting and len(running) < jobs:
            files = waiting.pop(0)
            output = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed when the group has ended)
            running[_start(files, output, measured)] = files, output
        pid, status, usage = os.wait4(-1, 0)
        files, output = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        cpu_secs = usage.ru_utime + usage.ru_stime
        total_cpu_secs += cpu_secs
        has_passed = _print_result(files, output, code, cpu_secs) and has_passed
    print(f"{total_cpu_secs:.0f} s of CPU time in all", flush=True)
    return has_passed


def _is_pure(files: list[str]) -> bool:
    return all(name.startswith("tests/unit/") for name in files)


def _start(files: list[str], output: IO[bytes], measured: pathlib.Path | None) -> int:
    """Forks the process of a group; returns its pid."""
    if not _is_pure(files):
        fork_server.prepare()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _become_pytest(files, output.fileno(), [Measuring(measured)] if measured else [])
    return pid


def _become_pytest(files: list[str], output: int, plugins: list[Measuring]) -> None:
    """Does what `python -m pytest FILES` does; never returns."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, copy in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, copy)
        random.seed()  # else all groups would draw the same numbers
        if not _is_pure(files):
            sys.modules["numpy"].random.seed()
            fork_server.of_this_process()  # forked from a process that has not imported pytest
        import pytest  # noqa: PLC0415

        sys.argv = ["pytest", *files]
        code = int(pytest.main(files, plugins=plugins))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _print_result(files: list[str], output: IO[bytes], code: int, cpu_secs: float) -> bool:
    """Prints how a group has ended; returns whether it has passed."""
    with output:
        output.seek(0)
        text = output.read().decode(errors="replace").rstrip("\n")
    # A thread of a test may end the process with 0 before pytest is through: then its last line is missing. What others
    # write when the process ends may stand behind that line.
    last_lines = _LAST_LINE.findall(text)
    has_ended = bool(last_lines)
    shown = f"{' '.join(files)}\n{last_lines[-1]}" if code == 0 and has_ended else text
    if code == 0 and not has_ended:
        shown += f"\n{' '.join(files)}\nthe process ended before pytest did"
    print(f"{shown}; {cpu_secs:.0f} s of CPU time", flush=True)
    return code == 0 and has_ended


def _main(jobs: str, record: str | None = None) -> int:
    groups = [line.split() for line in sys.stdin]
    # Not in a temporary folder: a test's fork that ends in the ordinary way would remove it.
    measured = pathlib.Path(f"{record}.lines") if record else None
    has_passed = run(groups, int(jobs), measured)
    if measured and has_passed:
        files = {name: taken for name, *taken in map(json.loads, measured.read_text().splitlines())}
        pathlib.Path(record).write_text(json.dumps(files))
        measured.unlink()
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
