"""Runs a choice as a training of its own, in processes as `ps_train launch` starts them, and measures it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ps_train.config import fields
from ps_train.config.launch import LaunchConfig, parse_launch
from ps_train.config.task import Config
from ps_train.errors import ClusterLostError
from ps_train.launch import preparation
from ps_train.launch.machines import ThisMachine
from ps_train.launch.training import ParsedTraining
from ps_train.parts.tune.search import Choice
from ps_train.runtime.reports import Progress

_POLL_SECS = 0.02
_WARM_UP_SECS = 1.0  # the first steps of a session are slower than the others
_STEP_SECS = 180.0  # for a step, the start of the tasks included
_REPORTS_PER_SEC = 10.0
_UNBOUNDED_STEPS = 10**12
# Set by each trial, or left out of it: nothing but steps should take time or end it, and no folder of the user, from
# which a server may take models, is touched.
LEFT_OUT = ("train_dir", "train_steps", "save_model_secs", "save_model_steps", "save_summaries_steps", "log_steps",
            "log_dir", "max_restarts", "seed", "export_dir", "exporters", "eval_steps", "eval_secs", "keep_best",
            "early_stopping", "profile_steps", "save_delta_secs", "num_epochs", "callbacks")


class _Sample(NamedTuple):
    """How far the chief was at a moment."""

    secs: float
    step: int


class _Trial(ParsedTraining):
    """A training whose model and data are checked, and whose data is fetched, by the first trial only."""

    def __init__(self, words: Sequence[str], runner: Runner) -> None:
        """Takes the arguments of `ps_train launch`."""
        super().__init__(*parse_launch(words))
        self._runner = runner

    def _prepare(self, config: Config, machines: ThisMachine) -> Config:
        self._runner.dataset = self._runner.dataset or super()._prepare(config, machines).dataset
        return dataclasses.replace(config, dataset=self._runner.dataset, given=config.given | {"dataset"})


class Runner:
    """Runs trainings with the user's flags and a choice.

    Attributes:
      dataset: that of the trials, which is another one if the default cannot be fetched; "" before the first.
      log_steps: a worker's steps between its reports: one, until `adapt` knows how fast the model is.
    """

    dataset = ""

    def __init__(self, config: Config, launch_config: LaunchConfig, signals: Sequence[int], folder: str) -> None:
        """Takes the user's flags; trainings are below the folder, and a signal in the list ends them."""
        self._config, self._launch_config, self._signals, self._folder = config, launch_config, signals, folder
        self.log_steps = 1

    def adapt(self, rate: float, num_workers: int) -> None:
        """Lets workers report some times a second, at this rate of mini-batches per second of all workers."""
        self.log_steps = max(1, round(rate / num_workers / _REPORTS_PER_SEC))

    def words(self, choice: Choice, others: Mapping[str, object], *, without: Collection[str] = ()) -> list[str]:
        """Returns the arguments of `ps_train launch` with the user's flags and these others in place of some of them.

        Args:
          without: flags of the user that are left out.
        """
        chosen = {name: value for name, value in choice._asdict().items() if value != _default(name)}
        left_out = {*Choice._fields, *others, *without}
        defaults = fields.rules(LaunchConfig)
        launch_names = [name for name, (_, _, default) in defaults.items()
                        if getattr(self._launch_config, name) != default]
        return [*fields.as_flags(self._launch_config, {*launch_names} - left_out),
                *fields.as_flags(self._config, self._config.given - left_out),
                *(f"--{name}={value}" for name, value in {**chosen, **others}.items())]

    def rate(self, choice: Choice, secs: float) -> float:
        """Returns the mini-batches per second of all workers, over some seconds.

        Raises:
          PsTrainError: the training cannot be run like this, or was stopped.
        """
        with self._training(choice, train_steps=_UNBOUNDED_STEPS, log_steps=self.log_steps) as training:
            training.launch()
            first = self._sample_after(training, _Sample(0.0, -1), secs=0.0)
            begun = self._sample_after(training, first, secs=_WARM_UP_SECS)
            ended = self._sample_after(training, begun, secs=secs)
        return (ended.step - begun.step) / (ended.secs - begun.secs) * self._batches_per_step(choice)

    def metrics(self, choice: Choice, num_batches: int, seed: int) -> Mapping[str, float]:
        """Returns name -> value of the metrics, loss included, after so many mini-batches.

        Raises:
          PsTrainError: the training failed, or was stopped.
        """
        steps = max(1, num_batches // self._batches_per_step(choice))
        with self._training(choice, train_steps=steps, log_steps=0, seed=seed) as training:
            training.launch()
            while training.is_running:
                self._pause()
            assert training.result is not None
            if training.result.error is not None:
                raise training.result.error
            return training.result.metrics

    def _batches_per_step(self, choice: Choice) -> int:
        if not self._config.sync_replicas:
            return 1
        return self._config.replicas_to_aggregate or choice.num_workers

    @contextlib.contextmanager
    def _training(self, choice: Choice, **others: int) -> Iterator[ParsedTraining]:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            # Those of the model would run in each trial, too; a copy without that part has no such flag.
            no_callbacks = {"callbacks": "none"} if "callbacks" in fields.rules(Config) else {}
            flags = {"train_dir": os.path.join(folder, "train"), "save_model_secs": 0, "save_summaries_steps": 0,
                     **no_callbacks, **others}
            words = self.words(choice, flags, without=LEFT_OUT)
            with _Trial(words, self) as training:
                yield training

    def _sample_after(self, training: ParsedTraining, since: _Sample, *, secs: float) -> _Sample:
        """Returns the chief's first report that comes so long after that of `since`, with the time when it came."""
        end_secs, latest_step = time.monotonic() + _STEP_SECS + secs, since.step
        while True:
            progress, now_secs = training.progress, time.monotonic()
            if isinstance(progress, Progress) and progress.step > latest_step:
                if now_secs >= since.secs + secs:
                    return _Sample(now_secs, progress.step)
                latest_step = progress.step  # an older report would count steps of less time than `secs`
            if not training.is_running:
                assert training.result is not None
                raise training.result.error or ClusterLostError("training_ended_early", "the trial ended at step "
                                                                f"{training.result.step}: {training.result.why}")
            if now_secs > end_secs:
                raise ClusterLostError("timed_out", f"worker:0 took no step within {_STEP_SECS:g} s")
            self._pause()

    def _pause(self) -> None:
        time.sleep(_POLL_SECS)
        if self._signals:
            raise preparation.stopped(self._signals[0])


def _default(name: str) -> object:
    return {**fields.rules(LaunchConfig), **fields.rules(Config)}[name][2]
