"""The flags, and the frozen Config that they become: the only place that reads a command line or TF_CONFIG."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ps_train.cluster.addresses import parse_hosts
from ps_train.cluster.tf_config import JOBS
from ps_train.config import fields
from ps_train.errors import ConfigError, refuse
from ps_train.plugins import contracts
from ps_train.runtime.timeouts import Timeouts

OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam", "rmsprop", "ftrl")
SYNC_ENGINES = ("ps_train", "tensorflow")
PLACEMENTS = ("bytes", "round_robin")
WIRE_DTYPES = ("as_is", "bfloat16")
LOG_FORMATS = ("ps_train", "dist_mnist")

_CLUSTER = "Cluster and task"
_DATA = "Model and data"
_TRAINING = "Training"
_TRANSFER = "What lies on which ps, and how it travels"
_SAVING = "Saving and reporting"
_WAITING = "How long to wait"

_LONGEST_SECS = 10**9  # about 30 years: Python's own waits end in an OverflowError at 292 years

_MOST_AT_ONCE = 20  # each is in the graph once more: the first session run of 32 took 13 s for a model of 43 variables
_MOST_PROFILED_STEPS = 1000  # each has some hundred events, of a large model some thousand

_field = fields.field


def _secs(default: float, help: str) -> Any:  # noqa: A002 (absl's own word)
    return _field(default, _WAITING, help, unit="seconds", above=0, maximum=_LONGEST_SECS)


def parse_steps(what: str, text: str) -> range:
    """Returns the steps that "A:B" means, from A to B - 1; none for an empty text.

    Raises:
      ConfigError: it is of another form, or means no steps, or too many; the text names `what`.
    """
    match = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", text)
    steps = range(int(match[1]), int(match[2])) if match else range(0)
    if text and not 0 < len(steps) <= _MOST_PROFILED_STEPS:
        raise ConfigError(f"{what}: got {text!r}; allowed: A:B with 0 <= A < B, as in 200:220, and at most "
                          f"{_MOST_PROFILED_STEPS} steps")
    return steps


@dataclasses.dataclass(frozen=True)
class Config:
    """What one task was told to do; every field that is a flag keeps the meaning it had in dist_mnist.

    Attributes:
      tf_config: the text of the TF_CONFIG environment variable, "" where it is not set.
      given: the names of the flags that stood on the command line, to tell a choice from a default.

    Raises:
      ConfigError: a value is out of its bounds; the text names each one.
    """

    job_name: Optional[str] = _field(
        None, _CLUSTER, "Job of this task.", choices=JOBS, unset="from TF_CONFIG")
    task_index: Optional[int] = _field(
        None, _CLUSTER, "Index of this task in its job; worker 0 is the chief.", minimum=0,
        unset="from TF_CONFIG, or 0 where the job has one task")
    ps_hosts: str = _field(
        "localhost:2222", _CLUSTER, "Addresses of the parameter servers.", unit="host:port,...", form=parse_hosts)
    worker_hosts: str = _field(
        "localhost:2223,localhost:2224", _CLUSTER, "Addresses of the workers.", unit="host:port,...", form=parse_hosts)
    existing_servers: bool = _field(
        False, _CLUSTER, "Use servers that `ps_train serve` started, and leave them running.")
    elastic: Optional[bool] = _field(
        None, _CLUSTER, "Let workers that no other task was told of come and go; --worker_hosts is then a worker's own "
        "address.", unset="true where TF_CONFIG tells of no other worker")
    num_gpus: Optional[int] = _field(
        None, _CLUSTER, "GPUs of this machine; a worker takes number task_index % num_gpus of those that are "
        "there, a ps never sees one.", minimum=0, unset="what is there")

    model: str = _field("models.mlp", _DATA, "Module with model_fn, found from the working directory.",
                        unit="dotted name")
    dataset: str = _field("data.mnist", _DATA, "Module with input_fn, found from the working directory.",
                          unit="dotted name")
    params: str = _field("", _DATA, "Parameters of the model's and the dataset's own DEFAULT_PARAMS.",
                         unit="name=value,...", form=contracts.split_params, unset="none")
    data_dir: str = _field("/tmp/mnist-data", _DATA, "Folder of the dataset's files, or Keras' mnist.npz.", unit="path")
    download_only: bool = _field(False, _DATA, "Fetch and check the data; with --job_name=worker, build its graph. "
                                 "Train nothing.")
    hidden_units: int = _field(100, _DATA, "Units of the hidden layer (models.mlp).", minimum=1)
    seed: Optional[int] = _field(None, _DATA, "Seed of the initial values, the shuffling and the dropout.",
                                 minimum=0, unset="a new one each run")

    train_steps: int = _field(20000, _TRAINING, "Train until the global step is this.", unit="global steps", minimum=1)
    batch_size: int = _field(100, _TRAINING, "Examples in a mini-batch of one worker.", unit="examples", minimum=1)
    learning_rate: float = _field(0.01, _TRAINING, "Learning rate of the optimizer.", above=0)
    optimizer: str = _field(
        "adam", _TRAINING, "Rule that applies the gradients; for embeddings that several workers train async take "
        "adagrad, as adam loses updates there.", choices=OPTIMIZERS)
    sync_replicas: bool = _field(False, _TRAINING, "Average the gradients of several workers into each update.")
    sync_engine: Optional[str] = _field(
        None, _TRAINING, "What averages them (with --sync_replicas): ps_train goes on without a worker that is gone; "
        "tensorflow is TensorFlow's own SyncReplicasOptimizer.", choices=SYNC_ENGINES, unset="ps_train")
    replicas_to_aggregate: Optional[int] = _field(
        None, _TRAINING, "Gradients in one update (with --sync_replicas); fewer than workers gives backup workers.",
        minimum=1, unset="all workers")
    min_replicas_to_aggregate: Optional[int] = _field(
        None, _TRAINING, "Gradients in one update at least (with --sync_replicas); where fewer workers are left, they "
        "wait.", minimum=1, unset="1")
    communication_period: int = _field(
        1, _TRAINING, "Steps on a worker's own copy of the parameters between two exchanges with the ps.",
        unit="steps", minimum=1)
    communication_warmup_steps: int = _field(
        0, _TRAINING, "Exchange after every step until the global step is this (with --communication_period).",
        unit="global steps", minimum=0)
    steps_per_execution: int = _field(
        1, _TRAINING, "Single steps in one session run, each with its own pull and push; async, without "
        "--communication_period and --profile_steps. With `keras`: steps in one call of its compiled function.",
        unit="steps", minimum=1, maximum=_MOST_AT_ONCE)
    staleness_bound: Optional[int] = _field(
        None, _TRAINING, "Steps that a worker may be ahead of the slowest one that lives; async only.", unit="steps",
        minimum=1, unset="unbounded")
    on_nan: str = _field("stop", _TRAINING, "What to do when a loss or gradient is not finite, before it is applied.",
                         choices=("stop", "skip"))

    placement: str = _field("bytes", _TRANSFER, "Give each variable to the ps with the fewest bytes, or to one ps "
                            "after the other.", choices=PLACEMENTS)
    partition_bytes: int = _field(
        0, _TRANSFER, "Cut a variable that is larger than this into parts, at most one for each ps; 0 cuts none.",
        unit="bytes", minimum=0)
    wire_dtype: str = _field("as_is", _TRANSFER, "What dense floats are rounded to under way, with error feedback.",
                             choices=WIRE_DTYPES)
    fused_transfers: bool = _field(True, _TRANSFER, "Send the dense variables of a ps together.")

    train_dir: str = _field("", _SAVING, "Folder of checkpoints and summaries; a second run continues there.",
                            unit="path", unset="ps_train/MODEL in the temporary folder; launch makes a new one")
    save_model_secs: int = _field(600, _SAVING, "Time between checkpoints; 0 saves by --save_model_steps and at the "
                                  "end only.", unit="seconds", minimum=0, maximum=_LONGEST_SECS)
    save_model_steps: int = _field(0, _SAVING, "Global steps between checkpoints, beside --save_model_secs; 0 saves by "
                                   "time only.", unit="global steps", minimum=0)
    keep_checkpoint_max: int = _field(5, _SAVING, "Checkpoints to keep in --train_dir; older ones are removed.",
                                      unit="checkpoints", minimum=1)
    save_summaries_steps: int = _field(100, _SAVING, "Steps of the chief between summaries; 0 writes none.",
                                       unit="steps", minimum=0)
    log_steps: int = _field(100, _SAVING, "Steps of a worker between progress lines; 0 prints none.",
                            unit="steps", minimum=0)
    log_format: str = _field("ps_train", _SAVING, "Whose lines a task prints: those of ps_train, or on stdout those of "
                             "the script dist_mnist, for parsers of its log.", choices=LOG_FORMATS)
    profile_steps: str = _field("", _SAVING, "Trace the steps that begin at global step A to B - 1: where the time "
                                "goes, as a table and a time line.", unit="A:B", form=parse_steps, unset="none")
    log_placement: bool = _field(False, _SAVING, "Print which variable is on which ps, and its bytes.")
    tf_log: bool = _field(False, _SAVING, "Show TensorFlow's own messages, and whole tracebacks.")

    start_timeout_secs: float = _secs(300.0, "For the ps and the chief to be there, at the start and after a loss.")
    step_timeout_secs: float = _secs(300.0, "For one session run of training steps; then it is tried again in a new "
                                     "session.")
    save_timeout_secs: float = _secs(120.0, "For the last checkpoint, tried again while it fails.")
    eval_timeout_secs: float = _secs(600.0, "For the evaluation of one checkpoint; then the task ends with 1.")
    beat_timeout_secs: float = _secs(10.0, "For a sign of life of a worker; then nobody waits for it any more.")
    end_timeout_secs: float = _secs(30.0, "For the other workers to finish, after the last step.")
    stop_timeout_secs: float = _secs(20.0, "For the work at hand, and the last checkpoint, after SIGTERM.")
    idle_timeout_secs: float = _secs(600.0, "For a ps without any worker; then it ends with 138.")

    tf_config: str = ""
    given: frozenset[str] = frozenset()

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
            name = self.model.rsplit(".", 1)[-1]
            object.__setattr__(self, "train_dir", os.path.join(tempfile.gettempdir(), "ps_train", name))

    @property
    def timeouts(self) -> Timeouts:
        """How long the task waits for others."""
        return Timeouts(
            start_secs=self.start_timeout_secs, step_secs=self.step_timeout_secs, save_secs=self.save_timeout_secs,
            eval_secs=self.eval_timeout_secs, heartbeat_secs=self.beat_timeout_secs, end_secs=self.end_timeout_secs,
            stop_secs=self.stop_timeout_secs, idle_secs=self.idle_timeout_secs)

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
        return parse_steps("--profile_steps", self.profile_steps)

    def _problem_of_profile(self) -> list[str]:
        if self.steps_to_profile.start < self.train_steps:
            return []
        return [f"--profile_steps: got {self.profile_steps!r}, but training ends at --train_steps={self.train_steps}; "
                "let it begin earlier"]


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


