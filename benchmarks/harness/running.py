"""One run: starts the tasks of a peer, counts their bytes and their memory, and ends them in all cases.

A run leaves a folder with `run.json`, the recording and the logs. It ends when the task that records has ended; then
the others are killed, since servers of TensorFlow's own do not end by themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.harness import proc, tcp_bytes
from benchmarks.harness.options import CANNOT_RUN
from benchmarks.harness.trial import Cast, Peer, Setting, Task
from ps_train.launch.process import Process

REPO = pathlib.Path(__file__).resolve().parents[2]
_SAMPLE_SECS = 0.25
_START_SECS = 90.0  # for the first step to be taken, beside the time of the run itself
_LOG_LINES = 15


class SkippedError(Exception):
    """A peer cannot run here: the text is its own word on why."""


class RunError(Exception):
    """A task failed, or did not end: the text has the last lines of its log."""


def run(peer: Peer, setting: Setting, folder: str) -> None:
    """Runs a peer once and leaves its folder, with `run.json` written last.

    Raises:
      SkippedError: it cannot run here.
      RunError: it failed.
    """
    os.makedirs(folder)
    folder = os.path.abspath(folder)
    cast = peer.cast(setting, folder)
    start_secs = time.time()
    with contextlib.closing(cast.wires), started(cast, folder) as processes:
        counted = _watch(cast, processes, time.monotonic() + _START_SECS + setting.max_secs)
    found = {"name": peer.name, "setting": dataclasses.asdict(setting), "start_time": start_secs, **counted}
    pathlib.Path(folder, "run.json").write_text(json.dumps(found), encoding="utf-8")


@contextlib.contextmanager
def started(cast: Cast, folder: str) -> Iterator[dict[str, Process]]:
    """Yields name -> process, the observer's among them; none is left at the end, in whatever way that comes."""
    processes: dict[str, Process] = {}
    try:
        for task in [*cast.tasks, *([cast.observer] if cast.observer else [])]:
            processes[task.name] = _start(task, folder)
        yield processes
    finally:
        for process in processes.values():
            process.kill()


def _start(task: Task, folder: str) -> Process:
    environ = {**os.environ, "PYTHONPATH": str(REPO), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    environ.pop("TF_CONFIG", None)
    environ.update(task.environ)
    return Process(task.name, [sys.executable, *task.command], os.path.join(folder, f"{task.name}.log"), environ)


def _watch(cast: Cast, processes: dict[str, Process], deadline_secs: float) -> dict[str, object]:
    """Returns, when the recording is complete, what was counted: samples by time, and the most memory of each task.

    Raises:
      SkippedError, RunError: see `run`.
    """
    tasks = [processes[task.name] for task in cast.tasks]
    samples = []
    memory_mb = dict.fromkeys([task.name for task in cast.tasks], 0.0)
    while processes[cast.recorder].poll() is None:
        samples.append(_sample(cast, tasks, processes))
        for process in tasks:
            memory_mb[process.name] = max(memory_mb[process.name], proc.peak_memory_mb(process.pid))
        check([process for process in processes.values() if process.name != cast.recorder])
        if time.monotonic() > deadline_secs:
            raise RunError("no recording in time:\n" + "\n".join(map(_last_lines, processes.values())))
        time.sleep(_SAMPLE_SECS)
    check([processes[cast.recorder]])
    return {"samples": samples, "peak_memory_mb": memory_mb}


def _sample(cast: Cast, tasks: Sequence[Process], processes: dict[str, Process]) -> dict[str, object]:
    """Returns what was sent between the tasks, and what each task and all others took of the CPU, all since some time
    in the past."""
    sent = cast.wires.num_bytes()
    if sent is None:
        sent = tcp_bytes.between([process.pid for process in tasks])
    others_secs = proc.others_cpu_secs([process.pid for process in processes.values()])
    own_secs = {process.name: proc.cpu_secs(process.pid) for process in tasks}
    return {"time": time.time(), "bytes": sent, "others_cpu_secs": others_secs, "cpu_secs": own_secs}


def check(processes: Sequence[Process]) -> None:
    """Raises SkippedError or RunError, see `run`, if one of the processes has ended with an error."""
    for process in processes:
        code = process.poll()
        if code == CANNOT_RUN:
            raise SkippedError(_last_lines(process, 1).rpartition("\n")[2])
        if code:
            raise RunError(f"{process.name} ended with exit code {code}:\n{_last_lines(process)}")


def _last_lines(process: Process, count: int = _LOG_LINES) -> str:
    lines = pathlib.Path(process.log_path).read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
    return "\n".join([f"--- {process.name}", *lines])
