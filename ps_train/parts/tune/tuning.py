"""Runs the trials of `ps_train tune`, prints them, and recommends a command."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ps_train.errors import ConfigError, PsTrainError
from ps_train.launch import command_lines
from ps_train.parts.tune.flags import MAX_PERIOD, TuneConfig, parse_metric_bound
from ps_train.parts.tune.search import Choice, Ladders, Trials, search
from ps_train.parts.tune.trial import Runner
from ps_train.runtime import logs, threads

_PERIODS, _EXECUTIONS = (1, 4, 16, MAX_PERIOD), (1, 4, 16)
_NUMBERS = (1, 2, 4, 8, 16, 32)  # of tasks
_MOST_PS = 4
_PILOT_SECS = 1.0
_MOST_CHECKS = 4  # choices whose metric is looked at
_SEED = 1  # of the trainings that are compared by a metric
_RATE = "mini-batches/s"


def ladders_of(config: TuneConfig, num_cores: int) -> tuple[Choice, Ladders]:
    """Returns the first choice, and the values that each setting may take, in order; what the user gave is fixed."""
    task, launch = config.task, config.launch
    most_steps = min(config.tune.max_period, task.staleness_bound or MAX_PERIOD)
    is_sync = task.sync_replicas  # more workers are another batch size there
    ladders: dict[str, Sequence[Any]] = {
        "communication_period": _up_to(_PERIODS, most_steps),
        "steps_per_execution": [1] if is_sync else _up_to(_EXECUTIONS, task.staleness_bound or _EXECUTIONS[-1]),
        "num_workers": [launch.num_workers] if is_sync else _up_to(_NUMBERS, 2 * num_cores),
        "num_ps": _up_to(_NUMBERS, _MOST_PS),
        "wire_dtype": ["as_is", "bfloat16"] if config.tune.metric_bound else ["as_is"]}
    fixed = {name: getattr(launch if hasattr(launch, name) else task, name) for name in ladders}
    ladders.update({name: [fixed[name]] for name in config.given & ladders.keys()})
    workers = [number for number in ladders["num_workers"] if number <= num_cores]
    first = Choice(**{**{name: ladder[0] for name, ladder in ladders.items()},
                      "num_workers": workers[-1] if workers else ladders["num_workers"][0]})
    return first, ladders


def _up_to(values: Sequence[int], most: int) -> list[int]:
    return [value for value in values if value <= most]


class Tuning:
    """Tries choices, and recommends the fastest one that is within the bounds."""

    def __init__(self, config: TuneConfig, signals: Sequence[int], folder: str) -> None:
        """Takes the flags, a list in which a signal ends the trials, and the folder in which they train."""
        self._config, self._flags, self._signals = config, config.tune, signals
        self._bound = parse_metric_bound("--metric_bound", self._flags.metric_bound)
        self._runner = Runner(config.task, config.launch, signals, folder)
        self._first, self._ladders = ladders_of(config, threads.num_cores())
        self._trials = Trials(self._first, self._measure, self._has_time)
        self._end_secs, self._longest_secs = time.monotonic() + self._flags.tune_secs, 0.0

    def run(self) -> None:
        """Tries, chooses, and prints the table and the command.

        Raises:
          ConfigError: the model does not have the metric of the bound.
          PsTrainError: the first choice cannot be trained with, or a signal has come.
        """
        pilot_rate = self._runner.rate(self._first, _PILOT_SECS)
        self._runner.adapt(pilot_rate, self._first.num_workers)
        self._print(f"{self._config.task.model} on {self._runner.dataset}: trials for up to {self._flags.tune_secs:g} "
                    f"s, each measured for {self._flags.trial_secs:g} s")
        self._print(_row([*Choice._fields, _RATE]))
        reference = self._reference() if self._bound else 0.0
        search(self._ladders, self._trials)
        self._recommend(self._choose(reference) if self._bound else self._trials.fastest()[0][0])

    def _has_time(self) -> bool:
        return time.monotonic() + self._longest_secs < self._end_secs

    def _measure(self, choice: Choice) -> float:
        begun_secs = time.monotonic()
        try:
            rate = self._runner.rate(choice, self._flags.trial_secs)
            self._print(_row([*choice, f"{rate:,.1f}"]))
        except PsTrainError as error:
            if choice == self._first and not self._trials.has_rate(choice):
                raise
            rate = 0.0
            self._refuse(choice, error)
        self._longest_secs = max(self._longest_secs, time.monotonic() - begun_secs)
        return rate

    def _reference(self) -> float:
        """Returns the metric of the first choice. Its time is not that of the trials."""
        begun_secs = time.monotonic()
        name, metrics = self._bound.target.metric, self._metrics(self._first)
        if name not in metrics:
            raise ConfigError("metric_unknown", f"--metric_bound: the model has no metric {name!r} on held-out "
                              f"examples; it has {', '.join(sorted(metrics)) or 'none'}")
        self._end_secs += time.monotonic() - begun_secs
        return metrics[name]

    def _choose(self, reference: float) -> Choice:
        """Returns the fastest choice that leaves the metric within the bound; the first one always does."""
        fastest = [choice for choice, _ in self._trials.fastest()]
        faster = fastest[:fastest.index(self._first)][:_MOST_CHECKS]
        return next((choice for choice in faster if self._is_permitted(choice, reference)), self._first)

    def _is_permitted(self, choice: Choice, reference: float) -> bool:
        """Returns whether the metric of a choice is within the bound; if its training fails, it is not."""
        try:
            return self._bound.permits(self._metrics(choice)[self._bound.target.metric], reference)
        except PsTrainError as error:
            self._refuse(choice, error)
            return False

    def _metrics(self, choice: Choice) -> Mapping[str, float]:
        name, num_batches = self._bound.target.metric, self._flags.metric_batches
        metrics = self._runner.metrics(choice, num_batches, _SEED)
        if name in metrics:
            self._print(f"{_row(list(choice))}  {name} {metrics[name]:.5g} after {num_batches} mini-batches")
        return metrics

    def _refuse(self, choice: Choice, error: PsTrainError) -> None:
        """Prints why a choice cannot be used; raises the error if a signal has ended the trial."""
        if self._signals:
            raise error
        self._print(f"{_row(list(choice))}  cannot be used: {error.lines()[0]}")

    def _recommend(self, chosen: Choice) -> None:
        rates, line = dict(self._trials.fastest()), ["launch", *self._runner.words(chosen, {})]
        rate, ratio = rates[chosen], rates[chosen] / rates[self._first]
        if self._flags.json:
            logs.show(json.dumps({
                "trials": [{**choice._asdict(), "mini_batches_per_sec": rates.get(choice)} for choice in rates],
                "chosen": chosen._asdict(), "mini_batches_per_sec": rate, "ratio_to_first": ratio, "command": line}))
            return
        self._print(f"Fastest: {', '.join(f'{name}={value}' for name, value in chosen._asdict().items())}: "
                    f"{rate:,.1f} {_RATE}, {ratio:.2f} times the first trial's\n  {command_lines.typed(line)}")

    def _print(self, line: str) -> None:
        if not self._flags.json:
            logs.show(line)


def _row(values: Sequence[object]) -> str:
    names = [*Choice._fields, _RATE]
    return "  ".join(str(value).rjust(len(name)) for name, value in zip(names, values))
