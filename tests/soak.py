"""Kills and freezes the tasks of a training at random, starts them again, and looks whether it ends as if undisturbed.

    python -m tests.soak --minutes=10 --seed=1 --kills=100 [--mode=MODE] [--data_dir=FOLDER] [--history]

    modes    async, sync, backup, local, bounded, at_once; tables, tables_sync, tables_hybrid (--async_embeddings) and
             tables_local train on clicks, with embedding tables and deltas

A round is one training of 2 ps and 3 workers with some faults, each at a global step and to a task that the seed
chooses. Whatever ends with a retryable code is started again after a second, as Kubeflow's `ExitCode` would. At the end
every task must have ended with 0, the accuracy (of clicks, the AUC) be that of an undisturbed training less one point
at most, no process run and no port be open. With --history, a model that records its updates is trained in each mode,
with tables and deltas, and its history must keep what the docs promise (tests/history.py). What was done is printed;
when a round fails, every log too, and the exit code is 1.
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

from tests import history, processes
from tests.history import Promise
from tests.history_files import Observer
from tests.processes import ProcessGroup, TaskCluster


class Mode(NamedTuple):
    """How the workers train.

    Attributes:
      flags: of each task.
      promise: what must hold of the history.
      has_tables: whether the training is one on clicks.
    """

    flags: list[str]
    promise: Promise = Promise()
    has_tables: bool = False


_SYNC, _LOCAL = Promise(has_shares=True, may_drop=True), Promise(has_shares=True)
MODES = {
    "async": Mode([]),
    "sync": Mode(["--sync_replicas"], _SYNC),
    "backup": Mode(["--sync_replicas", "--replicas_to_aggregate=2"], _SYNC),
    "local": Mode(["--communication_period=10"], _LOCAL),
    "bounded": Mode(["--staleness_bound=20"], Promise(bound=20)),
    "at_once": Mode(["--steps_per_execution=4"]),
    "tables": Mode([], has_tables=True),
    "tables_sync": Mode(["--sync_replicas"], _SYNC, has_tables=True),
    "tables_hybrid": Mode(["--sync_replicas", "--async_embeddings"], _SYNC._replace(has_async_rows=True),
                          has_tables=True),
    "tables_local": Mode(["--communication_period=10"], _LOCAL, has_tables=True),
}
_DELTAS = ["--save_model_steps=200", "--save_delta_secs=1"]
FIRST_RETRYABLE_CODE = 128  # see ps_train/errors.py; a negative one is a signal's
RESTART_PAUSE_SECS = 1.0
MOST_LOST = 0.01  # of the accuracy
_POLL_SECS = 0.05
_STEP = re.compile(r"step (\d+) of \d+  loss ")  # a progress line
_CHIEF = "worker-0"
_MOST_SHOWN = 30  # violations


class Options(NamedTuple):
    """What a soak does.

    Attributes:
      minutes: rounds begin for so long.
      kills: or until there were so many; 0 for no limit.
      seed: of the faults.
      mode: a key of MODES.
      data_dir: folder of MNIST, or "" for the drawn digits.
      history: whether to train a model that records its updates, and to check its history.
      folder: of train_dirs, logs and histories, which stay there; "" for one that is removed at the end.
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
    history: bool = False
    folder: str = ""
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
        self._observer = Observer(folder / "history", num_ps=2) if options.history else None
        self._flags = [
            *_training_flags(options, folder), f"--train_dir={folder}/train", f"--train_steps={options.train_steps}",
            "--log_steps=10", "--beat_timeout_secs=4", "--step_timeout_secs=5", "--end_timeout_secs=20",
            *MODES[options.mode].flags]
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
        is_undisturbed = not faults
        try:
            self._see_through(sorted(faults))
            self._assert_nothing_is_left()
            if self._observer:
                self._check_history(is_undisturbed)
            return float(re.search(r"(?:accuracy|auc) = (\S+)", self._group.log(self._life(_CHIEF)))[1])
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
            if self._observer and task == _CHIEF:
                self._observer.look(text)

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

    def _check_history(self, is_undisturbed: bool) -> None:
        self._read_progress()
        # With a backup worker, a gradient may come late at any time.
        promise = MODES[self._options.mode].promise._replace(
            is_undisturbed=is_undisturbed and self._options.mode != "backup")
        recorded = self._observer.read()
        violations = history.find_violations(recorded, promise)
        assert not violations, f"{len(violations)} violations:\n" + "\n".join(violations[:_MOST_SHOWN])
        self._say(f"  {history.describe(recorded, promise)}")

    def _assert_nothing_is_left(self) -> None:
        running = [name for name in self._group.names if self._group.poll(name) is None]
        assert not running, f"still running: {running}"
        held = [port for port in self._cluster.ports if processes.is_open(port)]
        assert not held, f"ports still open: {held}"


def _training_flags(options: Options, folder: pathlib.Path) -> list[str]:
    """Returns the flags of model, dataset, optimizer and saves."""
    if options.history:
        # A summary would take a mini-batch from local steps.
        return ["--model=tests.plugins.recorded", "--dataset=tests.plugins.recorded",
                f"--params=history={folder}/history", "--optimizer=sgd", "--learning_rate=1",
                "--save_summaries_steps=0", *_DELTAS]
    rate = [f"--learning_rate={options.learning_rate}", "--save_summaries_steps=50"]
    if MODES[options.mode].has_tables:
        # At a constant rate, the noise of the last updates is a point of the AUC already.
        return ["--model=models.deepfm", "--dataset=tests.plugins.slow_clicks", "--params=dim=4,layers=16", *rate,
                "--learning_rate_schedule=cosine", *_DELTAS]
    return ["--model=models.mlp", "--dataset=tests.plugins.slow", "--save_model_steps=100", *rate,
            *([f"--data_dir={options.data_dir}", "--params=source=mnist"] if options.data_dir else [])]


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
        kind = {"action": "store_true"} if isinstance(default, bool) else {"type": type(default), "default": default}
        parser.add_argument(f"--{name}", **kind)
    options = Options(**vars(parser.parse_args(argv)))
    with contextlib.nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory() as folder:
        try:
            num_kills, num_freezes = run(options, pathlib.Path(folder), lambda line: print(line, flush=True))
        except AssertionError as error:
            print(error)
            return 1
    print(f"all ended well: {num_kills} kills, {num_freezes} freezes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
