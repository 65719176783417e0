"""Config: the flags of one task of graph training, checked together and frozen."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence

from ps_train.config import fields, groups, optimizer
from ps_train.errors import Problem, refuse
from ps_train.parts import table
from ps_train.runtime.waits import Timeouts

_PART_FLAGS = table.flag_classes()


@dataclasses.dataclass(frozen=True)
class Config(
    groups.ClusterFlags, groups.ServerFlags, groups.ModelFlags, groups.OptimizerFlags, groups.TrainingFlags,
    groups.UpdateFlags, optimizer.RuleFlags, groups.TransferFlags, groups.WaitFlags,
    groups.GraphReportFlags, *_PART_FLAGS,  # type: ignore[misc]
):
    """The configuration of one task; flags that dist_mnist has too keep their meaning.

    Raises:
      ConfigError: values are out of bounds or contradict each other; the error has a line for each problem.
    """

    def __post_init__(self) -> None:
        problems: list[str] = [*fields.problems(vars(self), Config)]
        if not problems:  # comparing values needs values of the right form
            problems += optimizer.rule_problems(self)
            problems += itertools.chain(*(flags.part_problems(self, self) for flags in _PART_FLAGS))
        problems += self._aggregation_problems() + self._problems_of_engine()
        if self.staleness_bound is not None and self.sync_replicas:
            problems.append(Problem("flags_conflict", "--staleness_bound: given with --sync_replicas, where no worker "
                                    "is ahead of another; leave one of them out"))
        for name in ("communication_period", "steps_per_execution"):
            if self.staleness_bound is not None and self.staleness_bound < getattr(self, name):
                problems.append(Problem("flags_conflict", f"--staleness_bound: got {self.staleness_bound!r}; allowed: "
                                        f"at least the {getattr(self, name)} steps of --{name}, which run at once"))
        if self.adam_decays_all_rows and not self.sync_replicas:
            problems.append(Problem("flags_conflict", "--adam_decays_all_rows: given without --sync_replicas; several "
                                    "async workers would undo each other's updates; add that flag, or leave this one "
                                    "out"))
        problems += self._problems_of_execution()
        if self.communication_warmup_steps and self.communication_period == 1:
            problems.append(Problem("flag_without_effect", "--communication_warmup_steps: got "
                                    f"{self.communication_warmup_steps!r}, which has an effect only with "
                                    "--communication_period; add that flag"))
        refuse(problems)
        self._fill_in()

    def _fill_in(self) -> None:
        """Sets the defaults that follow from other flags."""
        if self.learning_rate_schedule == "piecewise":
            object.__setattr__(self, "learning_rate", self.rates[0])
        if not self.train_dir:
            object.__setattr__(self, "train_dir", groups.default_train_dir(self.model))
        for flags in _PART_FLAGS:
            for name, value in getattr(flags, "part_defaults", lambda _: {})(self).items():
                object.__setattr__(self, name, value)

    @property
    def timeouts(self) -> Timeouts:
        """The time limits of the task's waits."""
        return Timeouts(
            start_secs=self.start_timeout_secs, step_secs=self.step_timeout_secs, save_secs=self.save_timeout_secs,
            eval_secs=self.eval_timeout_secs, heartbeat_secs=self.beat_timeout_secs, end_secs=self.end_timeout_secs,
            stop_secs=self.stop_timeout_secs, idle_secs=self.idle_timeout_secs)

    def _aggregation_problems(self) -> list[Problem]:
        most, least = self.replicas_to_aggregate, self.min_replicas_to_aggregate
        flags = (("sync_engine", self.sync_engine), ("replicas_to_aggregate", most),
                 ("min_replicas_to_aggregate", least))
        problems = [Problem("flag_without_effect",
                            f"--{name}: got {value!r}, which has an effect only with --sync_replicas; add that flag")
                    for name, value in flags if value is not None and not self.sync_replicas]
        if isinstance(most, int) and isinstance(least, int) and least > most:
            problems.append(Problem("flags_conflict", f"--min_replicas_to_aggregate: got {least}; allowed: at most "
                                    f"--replicas_to_aggregate, {most}"))
        return problems

    def _problems_of_engine(self) -> list[Problem]:
        cannot = {"communication_period": (self.communication_period > 1, "does not support rounds of several steps"),
                  "min_replicas_to_aggregate": (self.min_replicas_to_aggregate is not None,
                                                "always waits for --replicas_to_aggregate gradients")}
        return [Problem("flags_conflict", f"--sync_engine: got 'tensorflow' with --{name}, but TensorFlow's "
                        f"SyncReplicasOptimizer {why}; leave one of them out")
                for name, (is_given, why) in cannot.items() if is_given and self.sync_engine == "tensorflow"]

    def _problems_of_execution(self) -> list[Problem]:
        others = {"sync_replicas": (self.sync_replicas, "whose workers wait for each other after every step"),
                  "communication_period": (self.communication_period > 1, "whose local steps share a session run")}
        return [Problem("flags_conflict", f"--steps_per_execution: got {self.steps_per_execution!r} with --{name}, "
                        f"{why}; leave one of them out")
                for name, (is_given, why) in others.items() if is_given and self.steps_per_execution > 1]


def parse_task(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Config:
    """Returns the Config of one task from its command line, without the program's name, and its environment.

    Raises:
      ConfigError: the command line is wrong; the error says how.
    """
    values, given = fields.parse_flags(argv, Config)
    return Config(**values, given=given, tf_config=environ.get("TF_CONFIG", ""))


def parse_serve(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Config:
    """Returns the Config of a server, like `parse_task`.

    Raises:
      ConfigError: the command line is wrong, or gives flags that apply only to a task that trains.
    """
    config = parse_task(argv, environ)
    refuse([Problem("flag_of_another_verb",
                    f"--{name}: `serve` does not train; leave it out, or give it to the workers")
            for name in ("existing_servers", "download_only") if getattr(config, name)])
    return config
