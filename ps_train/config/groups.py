"""Declares the flags, in groups that verbs share.

    train    all of them
    keras    ClusterFlags, ModelFlags, TrainingFlags, WaitFlags
    convert  ModelFlags, OptimizerFlags

A group contains flags that a verb takes together. The headings in `--help` are different: a heading is a subject.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import Any, Optional

from ps_train.cluster.addresses import parse_hosts
from ps_train.cluster.spec import JOBS
from ps_train.config import fields
from ps_train.errors import ConfigError
from ps_train.plugins.params import split_params

OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam", "rmsprop", "ftrl")
PLACEMENTS = ("bytes", "round_robin")
WIRE_DTYPES = ("as_is", "bfloat16")
BAD_RECORDS = ("stop", "skip")
LOG_FORMATS = ("ps_train", "dist_mnist", "json")

CLUSTER = "Cluster and task"
DATA = "Model and data"
TRAINING = "Training"
_TRANSFER = "Placement and transfer"
SAVING = "Saving and reporting"
OPTIMIZER = "Optimizer"
LAUNCH = "Launching a cluster on this machine"
_WAITING = "How long to wait"

_MAX_SECS = 10**9  # about 30 years: Python's waits raise OverflowError at 292 years

# Each step has its own copy in the graph: with 32 steps, the first session run of a model of 43 variables took 13 s.
_MAX_STEPS_PER_EXECUTION = 20

_field = fields.field


def _secs(default: float, help: str) -> Any:  # noqa: A002 (absl's own word)
    return _field(default, _WAITING, help, unit="seconds", above=0, maximum=_MAX_SECS)


def parse_accepted(flag: str, names: str) -> list[str]:
    """Returns the names of a list.

    Raises:
      ConfigError: an entry is a value, not a name; the error names `flag`.
    """
    parameters = [name.strip() for name in names.split(",") if name.strip()]
    for name in parameters:
        if not name.isidentifier():
            raise ConfigError("flag_malformed",
                              f"{flag}: got {name!r}; allowed: names of parameters, as in schema,vocabulary")
    return parameters


@dataclasses.dataclass(frozen=True)
class ClusterFlags:
    """The cluster, which of its tasks this is, and its GPUs.

    Attributes:
      tf_config: the text of the TF_CONFIG environment variable, "" if it is not set.
    """

    job_name: Optional[str] = _field(
        None, CLUSTER, "Job of this task; in graph training, chief and master come from TF_CONFIG only.", choices=JOBS,
        unset="from TF_CONFIG")
    task_index: Optional[int] = _field(
        None, CLUSTER, "Index of this task in its job; worker 0 is the chief.", minimum=0,
        unset="from TF_CONFIG, or 0 if the job has one task")
    ps_hosts: str = _field(
        "localhost:2222", CLUSTER, "Addresses of the parameter servers.", unit="host:port,...", form=parse_hosts)
    worker_hosts: str = _field(
        "localhost:2223,localhost:2224", CLUSTER, "Addresses of the workers.", unit="host:port,...", form=parse_hosts)
    num_gpus: Optional[int] = _field(
        None, CLUSTER, "GPUs of this machine; the workers of a machine use them in turn, a ps uses none.",
        minimum=0, unset="all that are present")
    tf_config: str = ""


@dataclasses.dataclass(frozen=True)
class ServerFlags:
    """How the tasks of graph training share servers."""

    existing_servers: bool = _field(
        False, CLUSTER, "Use the servers that `ps_train serve` started, and leave them running.")
    elastic: Optional[bool] = _field(
        None, CLUSTER, "Let workers that are not listed in the cluster join and leave during training; "
        "--worker_hosts is then a worker's own address.",
        unset="true if TF_CONFIG lists the ps, and of the workers this one at most, by its index")


@dataclasses.dataclass(frozen=True)
class ModelFlags:
    """The model and the folder of its checkpoints, which every verb takes.

    Attributes:
      given: the names of the flags on the command line, to tell a choice from a default.
    """

    model: str = _field("models.mlp", DATA, "Module with model_fn, imported from the working directory.",
                        unit="dotted name", is_shared=True)
    params: str = _field("", DATA, "Values for parameters in the DEFAULT_PARAMS of the model and the dataset.",
                         unit="name=value,...", form=split_params, unset="none", is_shared=True)
    hidden_units: int = _field(100, DATA, "Units in the hidden layer (models.mlp).", minimum=1)
    learning_rate: float = _field(0.01, TRAINING, "Learning rate of the optimizer.", above=0, is_shared=True)

    train_dir: str = _field("", SAVING, "Folder for checkpoints and summaries; a second run continues from it.",
                            unit="path", unset="ps_train/MODEL in the temporary folder; launch creates a new one")
    tf_log: bool = _field(False, SAVING, "Show TensorFlow's own messages and full tracebacks.")
    given: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class OptimizerFlags:
    """The optimizer of graph training."""

    optimizer: str = _field(
        "adam", TRAINING, "Optimizer that applies the gradients. Of a table with sparse gradients, adam updates only "
        "the rows that have one (lazy Adam).", choices=OPTIMIZERS, is_shared=True, is_of_optimizer=True)


@dataclasses.dataclass(frozen=True)
class TrainingFlags:
    """The data, how long to train, and what to save and report."""

    dataset: str = _field("data.mnist", DATA, "Module with input_fn, imported from the working directory.",
                          unit="dotted name", is_shared=True)
    data_dir: str = _field(
        "/tmp/mnist-data", DATA, "Folder with the dataset's files, or its URL in a store, or Keras' mnist.npz.",
        unit="path or URL", is_path=False, form=fields.refuse_password)
    on_bad_record: str = _field(
        "stop", DATA, "What to do with a malformed line or record of a file: end training and name it, or leave it "
        "out and count it.", choices=BAD_RECORDS)
    download_only: bool = _field(
        False, DATA, "Fetch and check the data, then exit; with --job_name=worker, also build the worker's graph.")
    seed: Optional[int] = _field(None, DATA, "Seed for initial values, shuffling and dropout.",
                                 minimum=0, unset="a new one for each run")

    train_steps: int = _field(20000, TRAINING, "Global step at which training ends.", unit="global steps", minimum=1)
    batch_size: int = _field(100, TRAINING, "Examples in a mini-batch of one worker.", unit="examples", minimum=1)
    steps_per_execution: int = _field(
        1, TRAINING, "Single steps in one session run, each with its own pull and push; async only, not with "
        "--communication_period or --profile_steps. With `keras`: steps in one call of the compiled function.",
        unit="steps", minimum=1, maximum=_MAX_STEPS_PER_EXECUTION)

    accept_params: str = _field(
        "", SAVING, "Parameters of --params that may differ from those of the training in --train_dir, such as a "
        "path that has changed.", unit="name,...", form=parse_accepted, unset="none")
    save_model_steps: int = _field(
        0, SAVING, "Global steps between checkpoints, in addition to --save_model_secs; 0 saves by time only.",
        unit="global steps", minimum=0)
    keep_checkpoint_max: int = _field(5, SAVING, "Checkpoints to keep in --train_dir; older ones are removed.",
                                      unit="checkpoints", minimum=1)
    save_summaries_steps: int = _field(100, SAVING, "Steps of the chief between summaries; 0 writes none.",
                                       unit="steps", minimum=0)
    log_steps: int = _field(100, SAVING, "Steps of a worker between progress lines; 0 prints none.",
                            unit="steps", minimum=0)


@dataclasses.dataclass(frozen=True)
class WaitFlags:
    """The time limits of every task that trains."""

    start_timeout_secs: float = _secs(
        300.0, "Time to wait for the ps and the chief, at the start and after a loss; the chief reads its checkpoint "
        "in that time, too.")
    step_timeout_secs: float = _secs(
        300.0, "Time for one session run of training steps; after that it is retried in a new session.")
    eval_timeout_secs: float = _secs(
        600.0, "Time for the evaluation of one checkpoint; after that the task exits with 1.")
    beat_timeout_secs: float = _secs(10.0, "Time without a heartbeat after which a worker counts as dead.")
    stop_timeout_secs: float = _secs(20.0, "Time for the current work and the last checkpoint, after SIGTERM.")


@dataclasses.dataclass(frozen=True)
class UpdateFlags:
    """How an update reaches the parameters in graph training."""

    sync_replicas: bool = _field(
        False, TRAINING, "Average the gradients of several workers in each update.", is_shared=True)
    replicas_to_aggregate: Optional[int] = _field(
        None, TRAINING, "Gradients in one update (with --sync_replicas); with fewer than workers, the rest are "
        "backup workers.", minimum=1, unset="all workers", is_shared=True)
    min_replicas_to_aggregate: Optional[int] = _field(
        None, TRAINING, "Minimum number of gradients in one update (with --sync_replicas); if fewer workers are "
        "left, they wait.", minimum=1, unset="1")
    communication_period: int = _field(
        1, TRAINING, "Steps of a worker between two exchanges with the ps.",
        unit="steps", minimum=1, is_shared=True)
    communication_warmup_steps: int = _field(
        0, TRAINING, "Exchange after every step up to this global step (with --communication_period).",
        unit="global steps", minimum=0, is_shared=True)
    staleness_bound: Optional[int] = _field(
        None, TRAINING, "How many steps a worker may be ahead of the slowest live one; async only.", unit="steps",
        minimum=1, unset="unbounded", is_shared=True)
    adam_decays_all_rows: bool = _field(
        False, TRAINING, "Let adam decay the moments of every row of a table in each update, as TensorFlow's "
        "does (with --sync_replicas); its cost grows with the table.", is_shared=True)
    on_nan: str = _field(
        "stop", TRAINING, "What to do if a loss or gradient is not finite; checked before it is applied.",
        choices=("stop", "skip"))


@dataclasses.dataclass(frozen=True)
class TransferFlags:
    """Which variables each ps has, and how graph training sends them."""

    placement: str = _field(
        "bytes", _TRANSFER, "Place each variable on the ps with the fewest bytes so far, or on each ps in turn.",
        choices=PLACEMENTS, is_shared=True)
    partition_bytes: int = _field(
        0, _TRANSFER, "Split variables larger than this into parts, at most one per ps; 0 splits none.",
        unit="bytes", minimum=0, is_shared=True)
    wire_dtype: str = _field(
        "as_is", _TRANSFER, "Type that dense floats are rounded to for transfer, with error feedback.",
        choices=WIRE_DTYPES)
    fused_transfers: bool = _field(True, _TRANSFER, "Transfer the dense variables of a ps together.")


@dataclasses.dataclass(frozen=True)
class GraphReportFlags:
    """Saving, reporting and waiting that only graph training has."""

    save_model_secs: int = _field(
        600, SAVING, "Time between checkpoints; 0 saves only by --save_model_steps and at the end.", unit="seconds",
        minimum=0, maximum=_MAX_SECS)
    log_format: str = _field(
        "ps_train", SAVING, "Format of a task's log: that of ps_train, the lines of the dist_mnist script on "
        "stdout, for existing log parsers, or a JSON object on each line.", choices=LOG_FORMATS)

    save_timeout_secs: float = _secs(120.0, "Time for a checkpoint; for the last one, after another, with retries.")
    end_timeout_secs: float = _secs(30.0, "Time to wait for the other workers to finish, after the last step.")
    idle_timeout_secs: float = _secs(600.0, "Time without any worker after which a ps exits with 138.")


def default_train_dir(model: str) -> str:
    """Returns the default train_dir of a model, which is the same for all tasks on this machine."""
    folder = os.path.join(tempfile.gettempdir(), "ps_train")
    is_of_another_user = os.path.exists(folder) and not os.access(folder, os.W_OK)
    return os.path.join(f"{folder}-{os.getuid()}" if is_of_another_user else folder, model.rsplit(".", 1)[-1])
