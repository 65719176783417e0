"""How long training stands still, and what is lost, when a task is killed and started again at once.

    python -m benchmarks.recovery [--mode=async|sync] [--passes=3]

A cluster of 2 ps and 2 workers trains the MLP on the drawn digits, with a checkpoint every second. In each pass a
worker, the chief, one ps and then all tasks are ended as `kill -9` does, in the midst of a step, and started again
without a pause. Workers print every step; the moments are those at which their lines arrive.

    cluster  the longest time without a step of any worker
    role     from the kill to the first step of the worker that was killed, or of any worker where a ps was
    start    of that, until the new process serves: Python, TensorFlow's import, and the graph
    lost     global steps that were taken and are taken again
"""

from __future__ import annotations

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from tests.processes import ProcessGroup, TaskCluster

MODES = {"async": [], "sync": ["--sync_replicas"]}
VICTIMS = {"a worker": ["worker-1"], "the chief": ["worker-0"], "one ps of two": ["ps-1"],
           "all tasks": ["ps-0", "ps-1", "worker-0", "worker-1"]}
_STEADY_SECS = 3.0  # of training before the kill and after the recovery; a checkpoint falls into it
_DEADLINE_SECS = 120.0
_POLL_SECS = 0.005
_STEP = re.compile(r"step (\d+) of \d+  loss ")  # a progress line
_RESTORED = re.compile(r"(?:continuing|restoring all ps) from \S+model\.ckpt-(\d+)")


class Recovery(NamedTuple):
    """What one kill cost; seconds and global steps."""

    cluster_secs: float
    role_secs: float
    start_secs: float
    lost_steps: int


class Watched:
    """A cluster in training, and when which of its tasks took a step.

    Attributes:
      steps: by task, (seconds, global step) of each step of its present process.
      serves_secs: by task, when its present process began to serve.
      restored: the global step of the checkpoint that was restored last, or None.
    """

    def __init__(self, group: ProcessGroup, folder: str, flags: list[str]) -> None:
        """Starts it."""
        self._group = group
        self._cluster = TaskCluster(2, 2)
        self._flags = ["--model=models.mlp", "--dataset=data.digits", "--learning_rate=0.003", "--log_steps=1",
                       "--train_steps=100000000", "--save_model_secs=1", f"--train_dir={folder}/train", *flags]
        self._tasks = {f"{job}-{index}": (job, index) for job, index in self._cluster.tasks()}
        self._lives = dict.fromkeys(self._tasks, 0)
        self._read_bytes: dict[str, int] = {}
        self.steps: dict[str, list[tuple[float, int]]] = {}
        self.serves_secs: dict[str, float] = {}
        self.restored: int | None = None
        for task in self._tasks:
            self.start(task)

    def start(self, task: str) -> None:
        """Starts a task, again where it ran before."""
        self._lives[task] += 1
        self.steps[task] = []
        self.serves_secs.pop(task, None)
        self._group.start(self._life(task), [*self._cluster.flags(*self._tasks[task]), *self._flags],
                          is_exec=True)

    def kill(self, task: str) -> None:
        """Ends a task."""
        self._group.kill(self._life(task))

    def _life(self, task: str) -> str:
        return f"{task}.{self._lives[task]}"

    def look(self) -> None:
        """Reads what the tasks have printed since the last time."""
        time.sleep(_POLL_SECS)
        for task in self._tasks:
            name = self._life(task)
            text, self._read_bytes[name] = self._group.log_from(name, self._read_bytes.get(name, 0))
            now_secs = time.monotonic()
            for line in text.splitlines():
                if match := _STEP.search(line):
                    self.steps[task].append((now_secs, int(match[1])))
                elif "serves at" in line:
                    self.serves_secs[task] = now_secs
                elif match := _RESTORED.search(line):
                    self.restored = int(match[1])

    def train_until(self, condition) -> None:
        """Looks until the condition holds; ends the program with all logs where it does not come about."""
        end_secs = time.monotonic() + _DEADLINE_SECS
        while not condition():
            self.look()
            if time.monotonic() > end_secs:
                sys.exit(f"no recovery within {_DEADLINE_SECS:g} s\n{self._group.logs()}")

    def trains_since(self, secs: float) -> bool:
        """Tells whether every worker has taken steps for a while after a moment."""
        return all(steps and steps[-1][0] - max(secs, steps[0][0]) > _STEADY_SECS
                   for task, steps in self.steps.items() if task.startswith("worker"))


def measure(watched: Watched, victims: list[str]) -> Recovery:
    """Kills these tasks, starts them again, and returns what that cost."""
    watched.train_until(lambda: watched.trains_since(0.0))
    before = [step for steps in watched.steps.values() for step in steps]
    for steps in watched.steps.values():
        del steps[:-1]
    watched.restored = None
    kill_secs = time.monotonic()
    for task in victims:
        watched.kill(task)
    watched.look()
    before += [step for steps in watched.steps.values() for step in steps]
    for task in victims:
        watched.start(task)
    watched.train_until(lambda: watched.trains_since(kill_secs))
    roles = [task for task in victims if task.startswith("worker")] or [
        task for task in watched.steps if task.startswith("worker")]
    moments = sorted({secs for steps in watched.steps.values() for secs, _ in steps if secs > kill_secs} | {kill_secs})
    begun_secs = max(watched.serves_secs[task] for task in victims)
    role_secs = min(secs for task in roles for secs, _ in watched.steps[task]
                    if secs > (begun_secs if roles[0] not in victims else kill_secs))
    reached = max(step for _, step in before)
    return Recovery(max(after - at for at, after in zip(moments, moments[1:])), role_secs - kill_secs,
                    begun_secs - kill_secs, reached - watched.restored if watched.restored is not None else 0)


def table(mode: str, found: dict[str, list[Recovery]]) -> str:
    """Returns the medians, and in brackets the largest, as rows of a table."""
    rows = []
    for victim, recoveries in found.items():
        cells = []
        for values, form in zip(zip(*recoveries), ("{:.1f}", "{:.1f}", "{:.1f}", "{:.0f}")):
            cells.append(f"{form.format(statistics.median(values))} ({form.format(max(values))})")
        rows.append(f"| {mode} | {victim} | " + " | ".join(cells) + " |")
    return "\n".join(["| mode | killed | cluster | role | start | lost |", "|---|---|---|---|---|---|", *rows])


def import_secs() -> float:
    """Returns how long a Python that imports TensorFlow, and nothing else, takes on this machine as it is now."""
    start_secs = time.monotonic()
    subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, capture_output=True)
    return time.monotonic() - start_secs


def main(argv: list[str]) -> None:
    """Runs the command line; further flags go to every task."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__.partition("\n")[0])
    parser.add_argument("--mode", choices=MODES, default="async")
    parser.add_argument("--passes", type=int, default=3)
    options, flags = parser.parse_known_args(argv)
    found: dict[str, list[Recovery]] = {victim: [] for victim in VICTIMS}
    with tempfile.TemporaryDirectory() as folder, ProcessGroup(pathlib.Path(folder) / "logs") as group:
        watched = Watched(group, folder, [*MODES[options.mode], *flags])
        for _ in range(options.passes):
            for victim, tasks in VICTIMS.items():
                found[victim].append(measure(watched, tasks))
                print(f"{victim}: {found[victim][-1]}", file=sys.stderr, flush=True)
    print(table(options.mode, found))
    print(f"`import tensorflow` alone: {statistics.median(import_secs() for _ in range(3)):.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
