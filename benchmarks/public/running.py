"""Runs a job once: starts every task as a process, waits for their ends, kills what is left."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

from benchmarks.public import commands
from benchmarks.public.catalogue import Job
from benchmarks.public.commands import Task
from benchmarks.public.sandbox import Sandbox, sandbox

_POLL_SECS = 0.2
_TERMINATED = 128 + signal.SIGTERM


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a task ended.

    Attributes:
      name: such as `worker:0`.
      exit_code: None if it did not end; negative for a signal.
      is_well: whether it ended as it should.
      secs: from its start to its end.
      last_line: of its log.
    """

    name: str
    exit_code: int | None
    is_well: bool
    secs: float
    last_line: str


@dataclasses.dataclass(frozen=True)
class Result:
    """How a job ended: `is_well` if every task did, `workers_are_well` if all but the ps did."""

    name: str
    how: str
    secs: float
    tasks: Sequence[Ended]

    @property
    def is_well(self) -> bool:
        return all(task.is_well for task in self.tasks)

    @property
    def workers_are_well(self) -> bool:
        return all(task.is_well for task in self.tasks if not task.name.startswith("ps"))


def run(job: Job, how: str, corpus: str, work: str, grace_secs: float) -> Result:
    """Returns how the tasks of a job ended.

    Args:
      job: what to run.
      how: see `commands.tasks`.
      corpus: the folder of the repositories and the data.
      work: a folder for this run; what is there is removed first, and the logs are left in it.
      grace_secs: for the ps, and for an evaluator, once all others have ended.

    Raises:
      FileNotFoundError: the job's repository or its data is not in the corpus.
    """
    with sandbox(job, corpus, work) as place, _started(commands.tasks(job, how, place), job, place) as processes:
        start_secs = time.monotonic()
        ends = _watch(processes, job, start_secs, grace_secs)
        ended = [_ended(name, process.poll(), ends.get(name), job, place) for name, process in processes.items()]
        return Result(job.name, how, round(time.monotonic() - start_secs, 1), ended)


@contextlib.contextmanager
def _started(tasks: Sequence[Task], job: Job, place: Sandbox) -> Iterator[dict[str, subprocess.Popen]]:
    """Yields task -> process; none is left at the end, nor any process that one of them started."""
    processes: dict[str, subprocess.Popen] = {}
    try:
        for task in tasks:
            with open(_log(place, task.name), "wb") as log:
                processes[task.name] = subprocess.Popen(
                    [*place.prefix, *task.command], cwd=os.path.join(place.code, job.cwd), env=dict(task.environment),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        yield processes
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _watch(
    processes: dict[str, subprocess.Popen], job: Job, start_secs: float, grace_secs: float
) -> dict[str, float]:
    """Returns task -> seconds until its end, for those that ended in time."""
    ends: dict[str, float] = {}
    deadline_secs, are_told = start_secs + job.deadline_secs, False
    while len(ends) < len(processes) and time.monotonic() < deadline_secs:
        time.sleep(_POLL_SECS)
        secs = time.monotonic() - start_secs
        ends.update({name: secs for name, process in processes.items()
                     if name not in ends and process.poll() is not None})
        if job.terminate_after_secs and secs > job.terminate_after_secs and not are_told:
            are_told = True
            for process in processes.values():
                process.terminate()
        if all(name in ends for name in _workers(processes)):
            deadline_secs = min(deadline_secs, start_secs + max(ends[name] for name in _workers(processes))
                                + grace_secs)
    return ends


def _workers(names: dict[str, subprocess.Popen]) -> list[str]:
    return [name for name in names if name.partition(":")[0] not in ("ps", "evaluator")]


def _ended(name: str, code: int | None, secs: float | None, job: Job, place: Sandbox) -> Ended:
    well = {0, _TERMINATED} if job.terminate_after_secs else {0}
    return Ended(name, code, secs is not None and code in well, round(secs or 0.0, 1), _last_line(_log(place, name)))


def _log(place: Sandbox, task: str) -> str:
    return os.path.join(place.work, f"{task.replace(':', '-')}.log")


def _last_line(path: str) -> str:
    """Returns the last line that is not blank, at most 300 characters."""
    with open(path, "rb") as log:
        log.seek(max(0, os.path.getsize(path) - 20000))
        lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")[:300]
