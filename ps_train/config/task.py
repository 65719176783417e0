"""Config: the flags of one task of graph training, checked together and frozen."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence

from ps_train.config import fields, groups
from ps_train.errors import Problem, refuse
from ps_train.parts import table
from ps_train.runtime.waits import Timeouts

_PART_FLAGS = table.flag_classes()


@dataclasses.dataclass(frozen=True)
class Config(
    groups.ClusterFlags, groups.ServerFlags, groups.ModelFlags, groups.OptimizerFlags, groups.TrainingFlags,
    groups.UpdateFlags, groups.TransferFlags, groups.WaitFlags, groups.GraphReportFlags, *_PART_FLAGS,  # type: ignore[misc]
):
    """The configuration of one task; flags that dist_mnist has too keep their meaning.

    Raises:
      ConfigError: values are out of bounds or contradict each other; the error has a line for each problem.
    """

    def __post_init__(self) -> None:
        problems: list[Problem] = [*fields.problems(vars(self), Config)]
        if not problems:  # comparing values needs values of the right form
            problems += itertools.chain(*(flags.part_problems(self, self) for flags in _PART_FLAGS))
            problems += self._conflicts()
        refuse(problems)
        self._fill_in()

    def _fill_in(self) -> None:
        """Sets the values that follow from other flags."""
        if not self.train_dir:
            object.__setattr__(self, "train_dir", groups.default_train_dir(self.model))
        for flags in _PART_FLAGS:
            for name, value in getattr(flags, "part_defaults", lambda _: {})(self).items():
                object.__setattr__(self, name, value)
        for name, (rule, _, _) in fields.rules(Config).items() if self.existing_servers else ():
            path = getattr(self, name)
            if path and rule.unit.startswith("path") and "://" not in path:  # a server may run in another folder
                object.__setattr__(self, name, os.path.abspath(path))

    @property
    def timeouts(self) -> Timeouts:
        """The time limits of the task's waits."""
        return Timeouts(
            start_secs=self.start_timeout_secs, step_secs=self.step_timeout_secs, save_secs=self.save_timeout_secs,
            eval_secs=self.eval_timeout_secs, heartbeat_secs=self.beat_timeout_secs, end_secs=self.end_timeout_secs,
            stop_secs=self.stop_timeout_secs, idle_secs=self.idle_timeout_secs)

    def _conflicts(self) -> Iterator[Problem]:
        """Yields a problem for each flag of the updates that does not fit the others."""
        most, least = self.replicas_to_aggregate, self.min_replicas_to_aggregate
        if not self.sync_replicas:
            for name in ("replicas_to_aggregate", "min_replicas_to_aggregate"):
                if (value := getattr(self, name)) is not None:
                    yield Problem("flag_without_effect", f"--{name}: got {value!r}, which has an effect only with "
                                  "--sync_replicas; add that flag")
            if self.adam_decays_all_rows:
                yield Problem("flags_conflict", "--adam_decays_all_rows: given without --sync_replicas; several async "
                              "workers would undo each other's updates; add that flag, or leave this one out")
        if most is not None and least is not None and least > most:
            yield Problem("flags_conflict", f"--min_replicas_to_aggregate: got {least}; allowed: at most "
                          f"--replicas_to_aggregate, {most}")
        if self.communication_warmup_steps and self.communication_period == 1:
            yield Problem("flag_without_effect", "--communication_warmup_steps: got "
                          f"{self.communication_warmup_steps}, which has an effect only with --communication_period; "
                          "add that flag")
        for name in ("communication_period", "steps_per_execution"):
            if self.staleness_bound is not None and self.staleness_bound < getattr(self, name):
                yield Problem("flags_conflict", f"--staleness_bound: got {self.staleness_bound}; allowed: at least the "
                              f"{getattr(self, name)} steps of --{name}, which run at once")
        for flag, other, why in self._incompatible():
            yield Problem("flags_conflict", f"--{flag}: given with --{other}, {why}; leave one of them out")

    def _incompatible(self) -> Iterator[tuple[str, str, str]]:
        """Yields two flags that exclude each other, and why."""
        has_local_steps, has_unrolled_steps = self.communication_period > 1, self.steps_per_execution > 1
        if self.staleness_bound is not None and self.sync_replicas:
            yield "staleness_bound", "sync_replicas", "where no worker is ahead of another"
        if has_unrolled_steps and self.sync_replicas:
            yield "steps_per_execution", "sync_replicas", "whose workers wait for each other after every step"
        if has_unrolled_steps and has_local_steps:
            yield "steps_per_execution", "communication_period", "whose local steps share a session run"


def parse_task(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Config:
    """Returns the Config of one task from its command line, without the program's name, and its environment.

    Raises:
      ConfigError: the command line is wrong; the error says how.
    """
    values, given = fields.parse_flags(argv, Config)
    return Config(**values, given=given, tf_config=environ.get("TF_CONFIG", ""))
