"""What one task of the graph road, and its launcher, were told: the flags become a frozen Config here."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from ps_train.config import fields, groups
from ps_train.errors import refuse

_LAUNCH = "Launching a whole cluster on this machine"
_field = fields.field


@dataclasses.dataclass(frozen=True)
class Config(
    groups.ClusterFlags, groups.ServerFlags, groups.ModelFlags, groups.OptimizerFlags, groups.TrainingFlags,
    groups.UpdateFlags, groups.TransferFlags, groups.WaitFlags, groups.GraphReportFlags,
):
    """What one task was told to do; every field that is a flag keeps the meaning it had in dist_mnist.

    Raises:
      ConfigError: a value is out of its bounds; the text names each one.
    """

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), Config)
        problems += [] if problems else self._problem_of_profile()
        problems += self._aggregation_problems() + self._problems_of_engine()
        if self.staleness_bound is not None and self.sync_replicas:
            problems.append("--staleness_bound: got it with --sync_replicas, where nobody is ahead of another; leave "
                            "one of them out")
        for name in ("communication_period", "steps_per_execution"):
            if self.staleness_bound is not None and self.staleness_bound < getattr(self, name):
                problems.append(f"--staleness_bound: got {self.staleness_bound!r}; allowed: at least the "
                                f"{getattr(self, name)} steps of --{name}, taken at once")
        problems += self._problems_of_execution()
        if self.communication_warmup_steps and self.communication_period == 1:
            problems.append(f"--communication_warmup_steps: got {self.communication_warmup_steps!r}, which means "
                            "something with --communication_period only; add that flag")
        refuse(problems)
        if not self.train_dir:
            object.__setattr__(self, "train_dir", groups.default_train_dir(self.model))

    def _aggregation_problems(self) -> list[str]:
        most, least = self.replicas_to_aggregate, self.min_replicas_to_aggregate
        flags = (("sync_engine", self.sync_engine), ("replicas_to_aggregate", most),
                 ("min_replicas_to_aggregate", least))
        problems = [f"--{name}: got {value!r}, which means something with --sync_replicas only; add that flag"
                    for name, value in flags if value is not None and not self.sync_replicas]
        if isinstance(most, int) and isinstance(least, int) and least > most:
            problems.append(f"--min_replicas_to_aggregate: got {least}; allowed: at most --replicas_to_aggregate, "
                            f"{most}")
        return problems

    def _problems_of_engine(self) -> list[str]:
        cannot = {"communication_period": (self.communication_period > 1, "makes no rounds of several steps"),
                  "min_replicas_to_aggregate": (self.min_replicas_to_aggregate is not None,
                                                "always waits for --replicas_to_aggregate gradients")}
        return [f"--sync_engine: got 'tensorflow' with --{name}, but TensorFlow's SyncReplicasOptimizer {why}; leave "
                "one of them out" for name, (is_given, why) in cannot.items()
                if is_given and self.sync_engine == "tensorflow"]

    def _problems_of_execution(self) -> list[str]:
        others = {"sync_replicas": (self.sync_replicas, "whose workers wait for each other after every step"),
                  "communication_period": (self.communication_period > 1, "which makes its steps in one session run"),
                  "profile_steps": (self.profile_steps, "which tells where the time of a single step goes")}
        return [f"--steps_per_execution: got {self.steps_per_execution!r} with --{name}, {why}; leave one of them out"
                for name, (is_given, why) in others.items() if is_given and self.steps_per_execution > 1]

    @property
    def steps_to_profile(self) -> range:
        """The global steps at which a step begins that is to be traced."""
        return groups.parse_steps("--profile_steps", self.profile_steps)

    def _problem_of_profile(self) -> list[str]:
        if self.steps_to_profile.start < self.train_steps:
            return []
        return [f"--profile_steps: got {self.profile_steps!r}, but training ends at --train_steps={self.train_steps}; "
                "let it begin earlier"]


@dataclasses.dataclass(frozen=True)
class LaunchConfig:
    """What `ps_train launch` adds to the flags of a task."""

    num_ps: int = _field(2, _LAUNCH, "Parameter servers to start.", minimum=1)
    num_workers: int = _field(2, _LAUNCH, "Workers to start, the chief among them.", minimum=1)
    tmux: bool = _field(False, _LAUNCH, "Open a tmux pane for each task instead of one merged output.")
    max_restarts: int = _field(
        0, _LAUNCH, "Start a task again that was lost or killed, up to so many times per task, after a growing pause.",
        unit="restarts", minimum=0)
    log_dir: str = _field("", _LAUNCH, "Folder of the tasks' log files.", unit="path", unset="logs in train_dir")

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), LaunchConfig))


PLACED_BY_LAUNCH = frozenset({"job_name", "task_index", "ps_hosts", "worker_hosts", "existing_servers"})


def parse_task(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Config:
    """Returns the Config of one task from its command line (without the program's name) and environment.

    Raises:
      ConfigError: the command line is wrong; the text says how.
    """
    values, given = fields.parse(argv, Config)
    return Config(**values, given=given, tf_config=environ.get("TF_CONFIG", ""))


def parse_serve(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Config:
    """Returns the Config of a server, as `parse_task` does.

    Raises:
      ConfigError: the command line is wrong, or it says what only a task that trains can do.
    """
    config = parse_task(argv, environ)
    refuse([f"--{name}: serve only serves; leave it out, or give it to the workers"
            for name in ("existing_servers", "download_only") if getattr(config, name)])
    return config


def parse_launch(argv: Sequence[str]) -> tuple[Config, LaunchConfig]:
    """Returns what each task is told, with `given`, and what the launcher itself is told.

    Raises:
      ConfigError: the command line is wrong, or it places the tasks, which is the launcher's work.
    """
    values, given = fields.parse(argv, LaunchConfig, Config)
    refuse([f"--{name}: launch places the tasks itself; leave it out, and give --num_ps and --num_workers"
            for name in sorted(given & PLACED_BY_LAUNCH)])
    own = {name: values.pop(name) for name in fields.rules(LaunchConfig)}
    return Config(**values, given=given - set(own)), LaunchConfig(**own)
