"""Kills and freezes the tasks of a training at random, starts them again, and looks whether it ends as if undisturbed.

    python -m tests.soak --minutes=10 --seed=1 --kills=100 [--mode=async|sync|backup|local|bounded] [--data_dir=FOLDER]

A round is one training of 2 ps and 3 workers with some faults, each at a global step and to a task that the seed
chooses. Whatever ends with a retryable code is started again after a second, as Kubeflow's `ExitCode` would. At the end
every task must have ended with 0, the accuracy be that of an undisturbed training less one point at most, no process
run and no port be open. What was done is printed; when a round fails, every log too, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import re
import sys
import tempfile
import time
from typing import NamedTuple

from tests import processes
from tests.processes import ProcessGroup, TaskCluster

MODES = {"async": [], "sync": ["--sync_replicas"], "backup": ["--sync_replicas", "--replicas_to_aggregate=2"],
         "local": ["--communication_period=10"], "bounded": ["--staleness_bound=20"],
         "at_once": ["--steps_per_execution=4"]}
FIRST_RETRYABLE_CODE = 128  # see ps_train/errors.py; a negative one is a signal's
RESTART_PAUSE_SECS = 1.0
MOST_LOST = 0.01  # of the accuracy
_POLL_SECS = 0.05
_STEP = re.compile(r"step (\d+) of \d+  loss ")  # a progress line
_CHIEF = "worker-0"


class Options(NamedTuple):
    """What a soak does.

    Attributes:
      minutes: rounds begin for so long.
      kills: or until there were so many; 0 for no limit.
      seed: of the faults.
      mode: a key of MODES.
      data_dir: folder of MNIST, or "" for the drawn digits.
      train_steps: of a round.
      learning_rate: at 0.003 the noise of the last updates on MNIST is a point already, where two of three workers were
        away in a synchronous round.
      faults: in a round.
      round_secs: longest time of a round; then it hangs.
    """

    minutes: float = 10.0
    kills: int = 0
    seed: int = 1
    mode: str = "async"
    data_dir: str = ""
    train_steps: int = 2000
    learning_rate: float = 0.001
    faults: int = 8
    round_secs: float = 600.0


class Fault(NamedTuple):
    """What is done to a task when the cluster has reached a global step; kills where `frozen_secs` is 0."""

    step: int
    task: str
    frozen_secs: float


class Round:
    """One training, with the tasks' supervisor."""

    def __init__(self, options: Options, folder: pathlib.Path, say=print) -> None:
        """Starts its tasks."""
        self._options, self._say = options, say
        self._cluster = TaskCluster(2, 3)
        self._group = ProcessGroup(folder / "logs")
        self._flags = [
            "--model=models.mlp", "--dataset=tests.plugins.slow",
            *([f"--data_dir={options.data_dir}", "--params=source=mnist"] if options.data_dir else []),
            f"--train_dir={folder}/train", f"--train_steps={options.train_steps}",
            f"--learning_rate={options.learning_rate}",
            "--log_steps=10", "--save_model_steps=100", "--save_summaries_steps=50", "--beat_timeout_secs=4",
            "--step_timeout_secs=5", "--end_timeout_secs=20", *MODES[options.mode]]
        self._tasks = {f"{job}-{index}": (job, index) for job, index in self._cluster.tasks()}
        self._lives = dict.fromkeys(self._tasks, 0)
        self._due_secs: dict[str, float] = {}  # when a task that has ended is started again
        self._wakes_secs: dict[str, float] = {}  # when a task that is frozen may go on
        self._read_bytes: dict[str, int] = {}
        self._step = 0
        self.num_kills = self.num_freezes = 0
        for task in self._tasks:
            self._start(task)

    def __enter__(self) -> Round:
        return self

    def __exit__(self, *exc_info) -> None:
        self._group.__exit__(*exc_info)

    def run(self, faults: list[Fault]) -> float:
        """Returns the accuracy at the end.

        Raises:
          AssertionError: it did not end well; the text says how, with all logs.
        """
        try:
            self._see_through(sorted(faults))
            self._assert_nothing_is_left()
            return float(re.search(r"accuracy = (\S+)", self._group.log(self._life(_CHIEF)))[1])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._group.logs()}") from None

    def _see_through(self, faults: list[Fault]) -> None:
        end_secs = time.monotonic() + self._options.round_secs
        while self._code(_CHIEF) != 0:
            assert time.monotonic() < end_secs, f"no end after {self._options.round_secs:g} s, at step {self._step}"
            self._wake()
            self._restart()
            self._read_progress()
            if faults and self._step >= faults[0].step and self._is_up(faults[0].task):
                self._do(faults.pop(0))
            time.sleep(_POLL_SECS)
        self._end_the_others()

    def _start(self, task: str) -> None:
        self._lives[task] += 1
        self._group.start(self._life(task), [*self._cluster.flags(*self._tasks[task]), *self._flags])

    def _life(self, task: str) -> str:
        """Returns the name of a task's process and log, of which it has one for each start."""
        return f"{task}.{self._lives[task]}"

    def _code(self, task: str) -> int | None:
        return self._group.poll(self._life(task))

    def _is_up(self, task: str) -> bool:
        return self._code(task) is None and task not in self._wakes_secs

    def _do(self, fault: Fault) -> None:
        if fault.frozen_secs:
            self._say(f"  step {self._step}: {fault.task} is frozen for {fault.frozen_secs:.1f} s")
            self.num_freezes += 1
            self._group.pause(self._life(fault.task))
            self._wakes_secs[fault.task] = time.monotonic() + fault.frozen_secs
        else:
            self._say(f"  step {self._step}: {fault.task} is killed")
            self.num_kills += 1
            self._group.kill(self._life(fault.task))

    def _wake(self, everyone: bool = False) -> None:
        for task, wakes_secs in list(self._wakes_secs.items()):
            if everyone or time.monotonic() >= wakes_secs:
                del self._wakes_secs[task]
                self._group.resume(self._life(task))

    def _restart(self) -> None:
        for task in self._tasks:
            code = self._code(task)
            if task in self._due_secs:
                if time.monotonic() >= self._due_secs[task]:
                    del self._due_secs[task]
                    self._start(task)
            elif code:
                assert code < 0 or code >= FIRST_RETRYABLE_CODE, f"{self._life(task)} ended with {code}"
                self._due_secs[task] = time.monotonic() + RESTART_PAUSE_SECS
                self._say(f"  step {self._step}: {self._life(task)} has ended with {code} and is started again")

    def _read_progress(self) -> None:
        """Notes the highest global step that any worker has told: after the loss of a ps it goes back."""
        for task in self._tasks:
            name = self._life(task)
            text, self._read_bytes[name] = self._group.log_from(name, self._read_bytes.get(name, 0))
            self._step = max([self._step, *map(int, _STEP.findall(text))])

    def _end_the_others(self) -> None:
        """Lets all end after the chief; training is over for what has been started anew and found nobody any more."""
        self._wake(everyone=True)
        for task in self._tasks:
            if task in self._due_secs:
                continue
            with contextlib.suppress(TimeoutError):
                code = self._group.exit_code(self._life(task), 30)
                assert code == 0 or self._came_too_late(task), f"{self._life(task)} ended with {code}"
                continue
            assert self._came_too_late(task), f"{self._life(task)} does not end, 30 s after the chief"
            self._say(f"  {self._life(task)} came too late, and is ended")
            self._group.kill(self._life(task))

    def _came_too_late(self, task: str) -> bool:
        """Tells whether this life of a task began after training, when it was started again after its last one."""
        return self._lives[task] > 1 and not _STEP.search(self._group.log(self._life(task)))

    def _assert_nothing_is_left(self) -> None:
        running = [name for name in self._group.names if self._group.poll(name) is None]
        assert not running, f"still running: {running}"
        held = [port for port in self._cluster.ports if processes.is_open(port)]
        assert not held, f"ports still open: {held}"


def draw(options: Options, rng: random.Random) -> list[Fault]:
    """Returns the faults of a round: two of three kill, each from the first step to the last, at any task."""
    tasks = [f"ps-{index}" for index in range(2)] + [f"worker-{index}" for index in range(3)]
    return [Fault(rng.randrange(options.train_steps), rng.choice(tasks),
                  0.0 if rng.random() < 2 / 3 else rng.uniform(1.0, 8.0)) for _ in range(options.faults)]


def run(options: Options, folder: pathlib.Path, say=print) -> tuple[int, int]:
    """Runs rounds until the time is over; returns how many tasks were killed and frozen.

    Raises:
      AssertionError: one did not end well.
    """
    rng = random.Random(options.seed)
    start_secs = time.monotonic()
    with Round(options, folder / "undisturbed", say) as first:
        undisturbed = first.run([])
    say(f"undisturbed: accuracy {undisturbed:.4f} in {time.monotonic() - start_secs:.0f} s")
    number = num_kills = num_freezes = 0
    while (number == 0 or time.monotonic() - start_secs < 60 * options.minutes) and (
            not options.kills or num_kills < options.kills):
        number, round_secs = number + 1, time.monotonic()
        say(f"round {number}:")
        with Round(options, folder / f"round-{number}", say) as disturbed:
            accuracy = disturbed.run(draw(options, rng))
        num_kills, num_freezes = num_kills + disturbed.num_kills, num_freezes + disturbed.num_freezes
        say(f"round {number}: accuracy {accuracy:.4f} in {time.monotonic() - round_secs:.0f} s; so far {num_kills} "
            f"kills and {num_freezes} freezes in {time.monotonic() - start_secs:.0f} s")
        assert accuracy >= undisturbed - MOST_LOST, f"accuracy {accuracy:.4f}, undisturbed {undisturbed:.4f}"
    return num_kills, num_freezes


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    for name, default in Options()._asdict().items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = Options(**vars(parser.parse_args(argv)))
    with tempfile.TemporaryDirectory() as folder:
        try:
            num_kills, num_freezes = run(options, pathlib.Path(folder), lambda line: print(line, flush=True))
        except AssertionError as error:
            print(error)
            return 1
    print(f"all ended well: {num_kills} kills, {num_freezes} freezes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
