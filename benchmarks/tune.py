"""How near `ps_train tune` comes to the best of a full grid, on six models.

    python -m benchmarks.tune [--models=mlp,cnn,...] [--tune_flags="--max_period=64"] [--work_dir=runs/tune]

For each model, `ps_train tune` is run as a user would. Then every combination of the values that it may choose from is
tried once, in a random order, by the same measure. The fastest ones of this grid, the choice of `tune` and its first
trial are then tried again, in turns, as the best of many single trials is the luckiest one. What is compared are the
medians of these last trials only. A trial that is in the --work_dir is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from ps_train.errors import PsTrainError
from ps_train.parts.tune.flags import parse_tune
from ps_train.parts.tune.search import Choice
from ps_train.parts.tune.trial import Runner
from ps_train.parts.tune.tuning import ladders_of

_MODELS = {
    "mlp": ["--model=mlp", "--dataset=digits"],
    "cnn": ["--model=cnn", "--dataset=digits"],
    "logistic_regression": ["--model=logistic_regression", "--dataset=clicks"],
    "wide_deep": ["--model=wide_deep", "--dataset=clicks"],
    "deepfm": ["--model=deepfm", "--dataset=clicks"],
    "large_dense": ["--model=benchmarks.large_dense", "--dataset=digits"],
}
_FINALISTS, _FINAL_TRIALS = 3, 3


class Comparison:
    """The trials of a model, kept in a file as they end."""

    def __init__(self, file: pathlib.Path, flags: Sequence[str], trial_secs: float, folder: str) -> None:
        """Takes the flags of `ps_train tune`; trainings are below the folder."""
        self._file, self._flags, self._trial_secs = file, flags, trial_secs
        self._kept = json.loads(file.read_text(encoding="ascii")) if file.exists() else {"grid": [], "final": []}
        config = parse_tune(flags)
        self._first, self._ladders = ladders_of(config, len(os.sched_getaffinity(0)))
        self._runner = Runner(config.task, config.launch, [], folder)

    def run(self) -> str:
        """Runs what is missing, and returns a row of the table."""
        if "tuned" not in self._kept:
            begun_secs = time.monotonic()
            done = subprocess.run([sys.executable, "-m", "ps_train", "tune", *self._flags, "--json"], check=True,
                                  stdout=subprocess.PIPE, text=True)
            self._keep("tuned", json.loads(done.stdout.strip().splitlines()[-1]) | {
                "secs": time.monotonic() - begun_secs})
        chosen = Choice(**self._kept["tuned"]["chosen"])
        self._runner.adapt(self._runner.rate(self._first, 1.0), self._first.num_workers)
        self._run_grid()
        fastest = sorted(self._grid(), key=lambda pair: -pair[1])[:_FINALISTS]
        finalists = list(dict.fromkeys([chosen, self._first, *(choice for choice, _ in fastest)]))
        for number, choice in itertools.product(range(_FINAL_TRIALS), finalists):
            if len(self._final(choice)) <= number:
                self._keep("final", [*self._kept["final"], [choice, self._rate(choice)]])
        medians = {choice: statistics.median(self._final(choice)) for choice in finalists}
        best = max(medians, key=lambda choice: medians[choice])
        rate, tuned = medians[chosen], self._kept["tuned"]
        return _row(self._file.stem, f"{len(tuned['trials'])} in {tuned['secs']:.0f} s", len(self._grid()),
                    f"{_text(chosen)}: {rate:,.0f}", f"{_text(best)}: {medians[best]:,.0f}",
                    f"{rate / medians[best]:.2f}", f"{rate / medians[self._first]:.2f}")

    def _run_grid(self) -> None:
        tried = dict(self._grid())
        choices = [choice for values in itertools.product(*(self._ladders[name] for name in Choice._fields))
                   if (choice := Choice(*values)).is_possible and choice not in tried]
        random.Random(0).shuffle(choices)
        for choice in choices:
            self._keep("grid", [*self._kept["grid"], [choice, self._rate(choice)]])

    def _rate(self, choice: Choice) -> float:
        """Returns mini-batches per second; 0 for a choice with which the model cannot be trained."""
        try:
            rate = self._runner.rate(choice, self._trial_secs)
        except PsTrainError as error:
            print(f"{_text(choice)}: {error.lines()[0]}", flush=True)
            return 0.0
        print(f"{_text(choice)}: {rate:,.1f}", flush=True)
        return rate

    def _grid(self) -> list[tuple[Choice, float]]:
        return [(Choice(*values), rate) for values, rate in self._kept["grid"]]

    def _final(self, choice: Choice) -> list[float]:
        return [rate for values, rate in self._kept["final"] if Choice(*values) == choice]

    def _keep(self, name: str, value: object) -> None:
        self._kept[name] = value
        self._file.write_text(json.dumps(self._kept), encoding="ascii")


def _text(choice: Choice) -> str:
    """Returns "2 ps, 4 workers, 16 at once"."""
    more = {f"{choice.steps_per_execution} at once": choice.steps_per_execution > 1,
            f"K={choice.communication_period}": choice.communication_period > 1,
            choice.wire_dtype: choice.wire_dtype != "as_is"}
    return ", ".join([f"{choice.num_ps} ps", f"{choice.num_workers} workers", *(word for word in more if more[word])])


def _row(*values: object) -> str:
    return f"| {' | '.join(map(str, values))} |"


def main(argv: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tune", description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(_MODELS), help="names, separated by ','")
    parser.add_argument("--tune_flags", default="", help="more flags of `ps_train tune`, separated by spaces")
    parser.add_argument("--trial_secs", type=float, default=3.0, help="how long a trial of the grid is measured")
    parser.add_argument("--work_dir", type=pathlib.Path, default=pathlib.Path("runs/tune"))
    options = parser.parse_args(argv)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    columns = ("model", "trials of `tune`", "grid", "`tune`: mini-batches/s", "best: mini-batches/s", "`tune` / best",
               "`tune` / first")
    rows = [_row(*columns), "|---" * len(columns) + "|"]
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder  # so that no trial becomes the newest run of this folder
            flags = [*_MODELS[name], *options.tune_flags.split()]
            rows.append(Comparison(options.work_dir / f"{name}.json", flags, options.trial_secs, folder).run())
    print("\n".join(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
