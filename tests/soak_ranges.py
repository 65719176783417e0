"""Kills workers, chief and ps at random while ps 0 hands out ranges of the input, and checks what was trained on.

    python -m tests.soak_ranges --kills=20 --seed=1 [--mode=sync] [--without_ps] [--rows_per_line=1000]
        [--train_dir=s3://bucket/run]

Each killed task is started again after up to 5 s; the heartbeat time-out is 3 s. At the end all tasks
must have ended with 0, and each line must count once an epoch, and beside that at most as often as its range was
reassigned. The counts are those of the parameters, which go back to a checkpoint when a ps is killed. With
--rows_per_line, rows of a table on two ps count as well, beside a table that takes a while to save, and there are
deltas. With the URL of a new folder in a store, a chief that is killed may lose its folder on this machine, too.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import shutil
import sys
import tempfile
import time

from ps_train.config.folders import local_folder
from tests.processes import ProcessGroup
from tests.sharded import NUM_EPOCHS, NUM_LINES, Sharded

_MODES = {"async": [], "sync": ["--sync_replicas"], "at_once": ["--steps_per_execution=4"]}
_RETRYABLE = 128


def run(folder: pathlib.Path, kills: int, seed: int, mode: str, *, has_ps: bool, rows_per_line: int = 0,
        url: str = "", say=print) -> None:
    """Trains once with so many kills; raises AssertionError if it does not end well."""
    rng = random.Random(seed)
    with ProcessGroup(folder / "logs") as group:
        # The more kills, the longer an epoch has to be.
        own = ["--save_model_secs=15", "--save_delta_secs=2"] if rows_per_line else ["--save_model_steps=20"]
        training = Sharded(folder, group, [*_MODES[mode], *own, "--start_timeout_secs=60"],
                           batch_secs=0.05 + 0.02 * kills, num_ps=2 if rows_per_line else 1,
                           params=f",rows_per_line={rows_per_line}", url=url)
        ps = [f"ps-{index}" for index in range(2 if rows_per_line else 1)] if has_ps else []
        for number in range(kills):
            task = rng.choice(["worker-0", "worker-1", *ps])
            wait_for_progress(training, rng.randrange(1, 100))
            if not _is_up(training, task):
                continue
            training.kill(task)
            pause_secs = rng.uniform(0.0, 5.0)
            say(f"kill {number + 1}: {task}, at {training.seen().total()} examples, for {pause_secs:.1f} s")
            if url and task == "worker-0" and rng.random() < 0.5:
                shutil.rmtree(local_folder(url), ignore_errors=True)
                say("    its folder is lost, too")
            time.sleep(pause_secs)
            training.start(task)
        see_through(training)
        counts = training.saved_counts()
        num_restores = sum(group.log(name).count("continuing in epoch") for name in group.names)
        training.assert_counts_fit(counts)
        if rows_per_line:
            training.assert_counts_fit(training.saved_rows())
        say(f"all ended with 0, {num_restores} restores; {NUM_LINES} lines, {NUM_EPOCHS} epochs, counted "
            f"{counts.total():g} by the parameters and {training.seen().total()} by the processes, reassigned "
            f"{training.reassigned().total()}")


def wait_for_progress(training: Sharded, count: int) -> None:
    """Returns when so many more examples were trained on; starts again what asks for it."""
    begun = training.seen().total()
    end_secs = time.monotonic() + 120
    while training.seen().total() < begun + count and _is_up(training, "worker-0"):
        assert time.monotonic() < end_secs, f"no progress\n{training.group.logs()}"
        _restart(training)
        time.sleep(0.1)


def _is_up(training: Sharded, task: str) -> bool:
    return training.group.poll(training.life(task)) is None


def _restart(training: Sharded) -> None:
    """Starts again what has ended with a code that asks for it."""
    for task in training.lives:
        code = training.group.poll(training.life(task))
        if code and code >= _RETRYABLE:
            training.start(task)


def see_through(training: Sharded) -> None:
    """Returns when all have ended well; starts again what asks for it."""
    end_secs = time.monotonic() + 300
    while any(_is_up(training, task) for task in training.lives):
        assert time.monotonic() < end_secs, f"no end\n{training.group.logs()}"
        _restart(training)
        time.sleep(0.1)
    training.assert_ends_well()


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_ranges", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=sorted(_MODES), default="async")
    parser.add_argument("--without_ps", action="store_true")
    parser.add_argument("--rows_per_line", type=int, default=0)
    parser.add_argument("--train_dir", default="", help="URL of a new folder in a store")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(pathlib.Path(folder), options.kills, options.seed, options.mode, has_ps=not options.without_ps,
                rows_per_line=options.rows_per_line, url=options.train_dir, say=lambda line: print(line, flush=True))
        except AssertionError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
