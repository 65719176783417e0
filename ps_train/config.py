"""The flags, and the frozen Config that they become: the only place that reads a command line or TF_CONFIG."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Optional

from ps_train import flagset
from ps_train.errors import ConfigError

OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam", "rmsprop", "ftrl")

_CLUSTER = "Cluster and task"
_DATA = "Model and data"
_TRAINING = "Training"
_SAVING = "Saving and reporting"
_WAITING = "How long to wait"
_LAUNCH = "Launching a whole cluster on this machine"

_field = flagset.field


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
        None, _CLUSTER, "Job of this task.", choices=("ps", "worker", "chief", "master", "evaluator"),
        unset="from TF_CONFIG")
    task_index: Optional[int] = _field(
        None, _CLUSTER, "Index of this task in its job; worker 0 is the chief.", minimum=0, unset="from TF_CONFIG")
    ps_hosts: str = _field(
        "localhost:2222", _CLUSTER, "Addresses of the parameter servers.", unit="host:port,...")
    worker_hosts: str = _field(
        "localhost:2223,localhost:2224", _CLUSTER, "Addresses of the workers.", unit="host:port,...")
    existing_servers: bool = _field(
        False, _CLUSTER, "Use servers that `ps_train serve` started, and leave them running.")
    num_gpus: Optional[int] = _field(
        None, _CLUSTER, "GPUs of this machine; a worker takes number task_index % num_gpus, a ps never sees one.",
        minimum=0, unset="what is there")

    model: str = _field("models.mlp", _DATA, "Module with model_fn, found from the working directory.",
                        unit="dotted name")
    dataset: str = _field("data.mnist", _DATA, "Module with input_fn, found from the working directory.",
                          unit="dotted name")
    params: str = _field("", _DATA, "Parameters of the model's and the dataset's own DEFAULT_PARAMS.",
                         unit="name=value,...", unset="none")
    data_dir: str = _field("/tmp/mnist-data", _DATA, "Folder of the dataset's files.", unit="path")
    download_only: bool = _field(False, _DATA, "Fetch and check the data, train nothing.")
    hidden_units: int = _field(100, _DATA, "Units of the hidden layer (models.mlp).", minimum=1)
    seed: Optional[int] = _field(None, _DATA, "Seed of the initial values, the shuffling and the dropout.",
                                 minimum=0, unset="a new one each run")

    train_steps: int = _field(20000, _TRAINING, "Train until the global step is this.", unit="global steps", minimum=1)
    batch_size: int = _field(100, _TRAINING, "Examples in a mini-batch of one worker.", unit="examples", minimum=1)
    learning_rate: float = _field(0.01, _TRAINING, "Learning rate of the optimizer.", above=0)
    optimizer: str = _field("adam", _TRAINING, "Rule that applies the gradients.", choices=OPTIMIZERS)
    sync_replicas: bool = _field(False, _TRAINING, "Average the gradients of several workers into each update.")
    replicas_to_aggregate: Optional[int] = _field(
        None, _TRAINING, "Gradients in one update (with --sync_replicas); fewer than workers gives backup workers.",
        minimum=1, unset="all workers")

    train_dir: str = _field("", _SAVING, "Folder of checkpoints and summaries; a second run continues there.",
                            unit="path", unset="ps_train/MODEL in the temporary folder")
    save_model_secs: int = _field(600, _SAVING, "Time between checkpoints; 0 saves at the end only.",
                                  unit="seconds", minimum=0)
    save_summaries_steps: int = _field(100, _SAVING, "Steps of the chief between summaries; 0 writes none.",
                                       unit="steps", minimum=0)
    log_steps: int = _field(100, _SAVING, "Steps of a worker between progress lines; 0 prints none.",
                            unit="steps", minimum=0)
    tf_log: bool = _field(False, _SAVING, "Show TensorFlow's own start-up and deprecation messages.")

    start_timeout_secs: float = _field(300.0, _WAITING, "For the ps and the chief to be there.",
                                       unit="seconds", above=0)
    step_timeout_secs: float = _field(300.0, _WAITING, "For one training step.", unit="seconds", above=0)
    end_timeout_secs: float = _field(30.0, _WAITING, "For the other workers to finish, after the last step.",
                                     unit="seconds", above=0)

    tf_config: str = ""
    given: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        flagset.check(self)
        if self.replicas_to_aggregate is not None and not self.sync_replicas:
            raise ConfigError("--replicas_to_aggregate: means something with --sync_replicas only; add that flag")
        if not self.train_dir:
            name = self.model.rsplit(".", 1)[-1]
            object.__setattr__(self, "train_dir", os.path.join(tempfile.gettempdir(), "ps_train", name))


@dataclasses.dataclass(frozen=True)
class LaunchConfig:
    """What `ps_train launch` adds to the flags of a task."""

    num_ps: int = _field(2, _LAUNCH, "Parameter servers to start.", minimum=1)
    num_workers: int = _field(2, _LAUNCH, "Workers to start, the chief among them.", minimum=1)
    tmux: bool = _field(False, _LAUNCH, "Open a tmux pane for each task instead of one merged output.")
    log_dir: str = _field("", _LAUNCH, "Folder of the tasks' log files.", unit="path", unset="logs in train_dir")

    def __post_init__(self) -> None:
        flagset.check(self)


def parse_task(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Config:
    """Returns the Config of one task from its command line (without the program's name) and environment.

    Raises:
      ConfigError: the command line is wrong; the text says how.
    """
    values, given = flagset.parse(argv, Config)
    return Config(**values, given=given, tf_config=environ.get("TF_CONFIG", ""))


def parse_launch(argv: Sequence[str]) -> tuple[Config, LaunchConfig]:
    """Returns what each task is told, with `given`, and what the launcher itself is told.

    Raises:
      ConfigError: the command line is wrong, or it places the tasks, which is the launcher's work.
    """
    values, given = flagset.parse(argv, LaunchConfig, Config)
    placing = given & {"job_name", "task_index", "ps_hosts", "worker_hosts", "existing_servers"}
    if placing:
        raise ConfigError(f"--{min(placing)}: launch sets it for each task; give --num_ps and --num_workers")
    own = {name: values.pop(name) for name in flagset.rules(LaunchConfig)}
    return Config(**values, given=given - set(own)), LaunchConfig(**own)
