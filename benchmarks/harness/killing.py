"""One run of a cluster whose tasks are killed now and then: its steps, by the lines that its workers print.

    undisturbed | kill --> disturbed, for the period | until all workers train again | undisturbed | kill ...
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple

from benchmarks.harness import proc
from benchmarks.harness.running import RunError, check, started
from benchmarks.harness.trial import Peer, Setting
from ps_train.launch.process import Process

_POLL_SECS = 0.02
_STEADY_SECS = 3.0  # of steps of every worker
_BREAK_SECS = 1.0  # without a step: a worker does not train
_DEADLINE_SECS = 180.0
_STEP = re.compile(rb"step:? (\d+)(?:\)$| of )", re.MULTILINE)  # of the whole cluster
_WORKER = re.compile(r"(\d+)(?:/stdout)?\.log$")


class Sample(NamedTuple):
    """A line of a worker: when it arrived, and the step of the whole cluster that it has."""

    secs: float
    step: int


class Kill(NamedTuple):
    """What one kill cost.

    Attributes:
      victim: the job of the task that was killed.
      goodput: the steps of the period behind the kill, without those that are repeated, over the possible ones.
      still_secs: the longest time without a step of any worker.
      repeated_secs: how long the repeated steps had taken.
      others_cores: the cores that other processes took, in the undisturbed time before.
    """

    victim: str
    goodput: float
    still_secs: float
    repeated_secs: float
    others_cores: float


def step_at(samples: Sequence[Sample], secs: float) -> int:
    """Returns the step of the last line up to a moment, 0 before the first."""
    return next((sample.step for sample in reversed(samples) if sample.secs <= secs), 0)


def rate(samples: Sequence[Sample], span: tuple[float, float]) -> float:
    """Returns the steps per second in a time, given as start and end."""
    return (step_at(samples, span[1]) - step_at(samples, span[0])) / (span[1] - span[0])


def cost(
    samples: Sequence[Sample], victim: str, kill_secs: float, period_secs: float,
    around: Sequence[tuple[float, float]], others_cores: float,
) -> Kill:
    """Returns what a kill cost.

    Args:
      samples: the lines of all workers in the order of their arrival.
      period_secs: from this kill to the next one, were there one.
      around: the undisturbed times before and behind, each as start and end.
    """
    possible_rate = sum(rate(samples, span) for span in around) / len(around)
    end_secs = kill_secs + period_secs
    start_step = step_at(samples, kill_secs)
    inside = [sample for sample in samples if kill_secs < sample.secs <= end_secs]
    moments = [kill_secs, *(sample.secs for sample in inside), end_secs]
    still_secs = max(after - before for before, after in zip(moments, moments[1:]))
    first = min((sample.step for sample in inside), default=start_step)
    return Kill(victim, (step_at(samples, end_secs) - start_step) / (possible_rate * period_secs), still_secs,
                max(0, start_step - first) / possible_rate, others_cores)


class KilledCluster:
    """The tasks of a peer, started again when they end, and their steps."""

    def __init__(self, processes: dict[str, Process], folder: pathlib.Path, num_workers: int) -> None:
        """Takes the processes: the tasks, or the launcher that starts them."""
        self._processes, self._folder, self._num_workers = processes, folder, num_workers
        self._read_bytes: dict[pathlib.Path, int] = {}
        self._last_secs: dict[str, float] = {}  # of each worker
        self.samples: list[Sample] = []

    def look_until(self, is_over: Callable[[], bool], awaited: str) -> None:
        """Reads the logs and starts tasks again until the condition holds; raises RunError if it takes too long."""
        end_secs = time.monotonic() + _DEADLINE_SECS
        while not is_over():
            for process in self._processes.values():
                if process.poll() is not None:
                    if len(self._processes) == 1:  # a launcher
                        check([process])
                        raise RunError(f"{process.name} has ended")
                    process.restart()
            for path in self._worker_logs():
                self._read(path)
            if time.monotonic() > end_secs:
                raise RunError(f"waited {_DEADLINE_SECS:g} s for {awaited}; see the logs in {self._folder}")
            time.sleep(_POLL_SECS)

    def _worker_logs(self) -> list[pathlib.Path]:
        return [*self._folder.glob("worker-*.log"), *(self._folder / "tasks").rglob("*.log")]

    def _read(self, path: pathlib.Path) -> None:
        with open(path, "rb") as log:
            log.seek(self._read_bytes.get(path, 0))
            lines, line_break, _ = log.read().rpartition(b"\n")
        self._read_bytes[path] = self._read_bytes.get(path, 0) + len(lines) + len(line_break)
        now_secs = time.monotonic()
        found = [Sample(now_secs, int(step)) for step in _STEP.findall(lines)]
        if found and (match := _WORKER.search(str(path))):
            self.samples += found
            self._last_secs[match[1]] = now_secs

    def train_for(self, secs: float) -> tuple[float, float]:
        """Returns the start and the end of a time of this length, in which the cluster goes on."""
        start_secs = time.monotonic()
        self.look_until(lambda: time.monotonic() >= start_secs + secs, "")
        return start_secs, time.monotonic()

    def wait_until_steady(self) -> None:
        """Returns when every worker has trained for a while without a break."""
        since_secs = time.monotonic()

        def is_steady() -> bool:
            nonlocal since_secs
            now_secs = time.monotonic()
            training = [secs for secs in self._last_secs.values() if now_secs - secs < _BREAK_SECS]
            if len(training) < self._num_workers:
                since_secs = now_secs
            return now_secs - since_secs > _STEADY_SECS

        self.look_until(is_steady, "steps of every worker")

    def pids(self) -> dict[str, int]:
        """Returns the log file, relative to the folder of the run -> the process that writes to it."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                target = os.readlink(entry / "fd" / "1")
                if entry.name.isdigit() and target.startswith(f"{self._folder}/"):
                    found[os.path.relpath(target, self._folder)] = int(entry.name)
        return found

    def kill(self, job: str, index: int) -> float:
        """Ends a task as `kill -9` does, and returns when."""
        names = (f"{job}-{index}.log", f"/{index}/stdout.log")
        (pid,) = {pid for log, pid in self.pids().items() if log.endswith(names)}
        kill_secs = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return kill_secs

    def end(self) -> None:
        """Ends all processes: torchrun's workers outlive it."""
        for process in self._processes.values():
            process.kill()
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def run(peer: Peer, setting: Setting, folder: str, victims: Sequence[str], period_secs: float) -> None:
    """Runs a peer once, kills a task of each of these jobs in turn, and leaves its folder, with `run.json` last.

    Raises:
      SkippedError, RunError: it cannot run here, or failed.
    """
    os.makedirs(folder)
    path = pathlib.Path(folder).resolve()
    cast = peer.cast(setting, str(path))
    rng = random.Random(setting.seed)
    with contextlib.closing(cast.wires), started(cast, str(path)) as processes:
        cluster = KilledCluster(processes, path, setting.num_workers)
        try:
            kills = list(_kills(cluster, setting, victims, period_secs, rng))
        finally:
            cluster.end()
    found = {"name": peer.name, "kills": [kill._asdict() for kill in kills]}
    (path / "run.json").write_text(json.dumps(found), encoding="utf-8")


def _kills(
    cluster: KilledCluster, setting: Setting, victims: Sequence[str], period_secs: float, rng: random.Random
) -> Iterator[Kill]:
    counts = {"ps": setting.num_ps, "worker": setting.num_workers}
    cluster.wait_until_steady()
    before, others_cores = _undisturbed(cluster, setting)
    for number, victim in enumerate(victims):
        cluster.train_for(rng.uniform(0.0, 2.0))  # the kill is at any moment between two saves
        kill_secs = cluster.kill(victim, (number + 1) % counts[victim])
        cluster.train_for(period_secs)
        cluster.wait_until_steady()
        behind, others_cores_behind = _undisturbed(cluster, setting)
        yield cost(cluster.samples, victim, kill_secs, period_secs, [before, behind], others_cores)
        before, others_cores = behind, others_cores_behind


def _undisturbed(cluster: KilledCluster, setting: Setting) -> tuple[tuple[float, float], float]:
    """Returns start and end of an undisturbed time, and the cores that other processes took in it."""
    pids = [*cluster.pids().values()]
    start_cpu_secs = proc.others_cpu_secs(pids)
    span = cluster.train_for(setting.min_secs)
    return span, (proc.others_cpu_secs(pids) - start_cpu_secs) / (span[1] - span[0])
