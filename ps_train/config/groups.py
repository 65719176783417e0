"""The flags in groups, of which each verb lists those that it takes.

    train    all of them
    keras    ClusterFlags, ModelFlags, TrainingFlags, WaitFlags
    convert  ModelFlags, OptimizerFlags

A flag that is a field of a group has its help, limits and default there. `--help` shows the flags under other headings:
a heading is a subject, a group is what a verb needs together.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from typing import Any, Optional

from ps_train.cluster.addresses import parse_hosts
from ps_train.cluster.tf_config import JOBS
from ps_train.config import fields
from ps_train.errors import ConfigError
from ps_train.plugins import contracts

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
class ClusterFlags:
    """Which task this is, in which cluster, on which GPUs.

    Attributes:
      tf_config: the text of the TF_CONFIG environment variable, "" if it is not set.
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
    num_gpus: Optional[int] = _field(
        None, _CLUSTER, "GPUs of this machine; a worker takes number task_index % num_gpus of those that are "
        "there, a ps never sees one.", minimum=0, unset="what is there")
    tf_config: str = ""


@dataclasses.dataclass(frozen=True)
class ServerFlags:
    """How the tasks of the graph road share servers."""

    existing_servers: bool = _field(
        False, _CLUSTER, "Use servers that `ps_train serve` started, and leave them running.")
    elastic: Optional[bool] = _field(
        None, _CLUSTER, "Let workers that no other task was told of come and go; --worker_hosts is then a worker's own "
        "address.", unset="true where TF_CONFIG tells of no other worker")


@dataclasses.dataclass(frozen=True)
class ModelFlags:
    """The model, and the folder of its checkpoints: what every verb takes.

    Attributes:
      given: the names of the flags on the command line, to tell a choice from a default.
    """

    model: str = _field("models.mlp", _DATA, "Module with model_fn, found from the working directory.",
                        unit="dotted name")
    params: str = _field("", _DATA, "Parameters of the model's and the dataset's own DEFAULT_PARAMS.",
                         unit="name=value,...", form=contracts.split_params, unset="none")
    hidden_units: int = _field(100, _DATA, "Units of the hidden layer (models.mlp).", minimum=1)
    learning_rate: float = _field(0.01, _TRAINING, "Learning rate of the optimizer.", above=0)

    train_dir: str = _field("", _SAVING, "Folder of checkpoints and summaries; a second run continues there.",
                            unit="path", unset="ps_train/MODEL in the temporary folder; launch makes a new one")
    tf_log: bool = _field(False, _SAVING, "Show TensorFlow's own messages, and whole tracebacks.")
    given: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class OptimizerFlags:
    """The optimizer of the graph road."""

    optimizer: str = _field(
        "adam", _TRAINING, "Rule that applies the gradients; for embeddings that several workers train async take "
        "adagrad, as adam loses updates there.", choices=OPTIMIZERS)


@dataclasses.dataclass(frozen=True)
class TrainingFlags:
    """The data, how long to train, and what to save and report."""

    dataset: str = _field("data.mnist", _DATA, "Module with input_fn, found from the working directory.",
                          unit="dotted name")
    data_dir: str = _field("/tmp/mnist-data", _DATA, "Folder of the dataset's files, or Keras' mnist.npz.", unit="path")
    download_only: bool = _field(False, _DATA, "Fetch and check the data; with --job_name=worker, build its graph. "
                                 "Train nothing.")
    seed: Optional[int] = _field(None, _DATA, "Seed of the initial values, the shuffling and the dropout.",
                                 minimum=0, unset="a new one each run")

    train_steps: int = _field(20000, _TRAINING, "Train until the global step is this.", unit="global steps", minimum=1)
    batch_size: int = _field(100, _TRAINING, "Examples in a mini-batch of one worker.", unit="examples", minimum=1)
    steps_per_execution: int = _field(
        1, _TRAINING, "Single steps in one session run, each with its own pull and push; async, without "
        "--communication_period and --profile_steps. With `keras`: steps in one call of its compiled function.",
        unit="steps", minimum=1, maximum=_MOST_AT_ONCE)

    save_model_steps: int = _field(0, _SAVING, "Global steps between checkpoints, beside --save_model_secs; 0 saves by "
                                   "time only.", unit="global steps", minimum=0)
    keep_checkpoint_max: int = _field(5, _SAVING, "Checkpoints to keep in --train_dir; older ones are removed.",
                                      unit="checkpoints", minimum=1)
    save_summaries_steps: int = _field(100, _SAVING, "Steps of the chief between summaries; 0 writes none.",
                                       unit="steps", minimum=0)
    log_steps: int = _field(100, _SAVING, "Steps of a worker between progress lines; 0 prints none.",
                            unit="steps", minimum=0)


@dataclasses.dataclass(frozen=True)
class WaitFlags:
    """How long every task that trains waits."""

    start_timeout_secs: float = _secs(300.0, "For the ps and the chief to be there, at the start and after a loss.")
    step_timeout_secs: float = _secs(300.0, "For one session run of training steps; then it is tried again in a new "
                                     "session.")
    eval_timeout_secs: float = _secs(600.0, "For the evaluation of one checkpoint; then the task ends with 1.")
    beat_timeout_secs: float = _secs(10.0, "For a sign of life of a worker; then nobody waits for it any more.")
    stop_timeout_secs: float = _secs(20.0, "For the work at hand, and the last checkpoint, after SIGTERM.")


@dataclasses.dataclass(frozen=True)
class UpdateFlags:
    """How an update reaches the parameters on the graph road."""

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
    staleness_bound: Optional[int] = _field(
        None, _TRAINING, "Steps that a worker may be ahead of the slowest one that lives; async only.", unit="steps",
        minimum=1, unset="unbounded")
    on_nan: str = _field("stop", _TRAINING, "What to do when a loss or gradient is not finite, before it is applied.",
                         choices=("stop", "skip"))


@dataclasses.dataclass(frozen=True)
class TransferFlags:
    """Which variables each ps has, and how the graph road sends them."""

    placement: str = _field("bytes", _TRANSFER, "Give each variable to the ps with the fewest bytes, or to one ps "
                            "after the other.", choices=PLACEMENTS)
    partition_bytes: int = _field(
        0, _TRANSFER, "Cut a variable that is larger than this into parts, at most one for each ps; 0 cuts none.",
        unit="bytes", minimum=0)
    wire_dtype: str = _field("as_is", _TRANSFER, "What dense floats are rounded to under way, with error feedback.",
                             choices=WIRE_DTYPES)
    fused_transfers: bool = _field(True, _TRANSFER, "Send the dense variables of a ps together.")


@dataclasses.dataclass(frozen=True)
class GraphReportFlags:
    """What only the graph road saves, reports and waits for."""

    save_model_secs: int = _field(600, _SAVING, "Time between checkpoints; 0 saves by --save_model_steps and at the "
                                  "end only.", unit="seconds", minimum=0, maximum=_LONGEST_SECS)
    log_format: str = _field("ps_train", _SAVING, "Whose lines a task prints: those of ps_train, or on stdout those of "
                             "the script dist_mnist, for parsers of its log.", choices=LOG_FORMATS)
    profile_steps: str = _field("", _SAVING, "Trace the steps that begin at global step A to B - 1: where the time "
                                "goes, as a table and a time line.", unit="A:B", form=parse_steps, unset="none")
    log_placement: bool = _field(False, _SAVING, "Print which variable is on which ps, and its bytes.")

    save_timeout_secs: float = _secs(120.0, "For the last checkpoint, tried again while it fails.")
    end_timeout_secs: float = _secs(30.0, "For the other workers to finish, after the last step.")
    idle_timeout_secs: float = _secs(600.0, "For a ps without any worker; then it ends with 138.")


def default_train_dir(model: str) -> str:
    """Returns the train_dir of a model where none was given: the same one for all tasks of this machine."""
    return os.path.join(tempfile.gettempdir(), "ps_train", model.rsplit(".", 1)[-1])
