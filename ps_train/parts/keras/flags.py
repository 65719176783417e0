"""The flags of `ps_train keras` and `ps_train convert`: groups of `ps_train.config`, and their own."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Optional

from ps_train.cluster.addresses import parse_hosts
from ps_train.config import fields
from ps_train.config.groups import (
    ClusterFlags,
    ModelFlags,
    OptimizerFlags,
    TrainingFlags,
    WaitFlags,
    default_train_dir,
)
from ps_train.config.launch import PLACED_BY_LAUNCH, LaunchConfig, parse_launch_of
from ps_train.config.task import Config
from ps_train.errors import ConfigError, refuse

STRATEGIES = ("default", "one_device", "mirrored", "central_storage", "multi_worker_mirrored", "parameter_server",
              "tpu")

# flag -> the strategies that read it
_ONLY_WITH = {flag: strategies for flags, strategies in {
    "devices": ("one_device", "mirrored", "central_storage"),
    "num_virtual_devices": ("mirrored", "central_storage"),
    "cross_device_ops": ("mirrored",),
    "worker_hosts job_name task_index num_workers": ("multi_worker_mirrored", "parameter_server"),
    "communication": ("multi_worker_mirrored",),
    "coordinator_host ps_hosts num_ps variable_partitioner beat_timeout_secs": ("parameter_server",),
    "tpu_name": ("tpu",),
    "save_model_steps": tuple(name for name in STRATEGIES if name != "parameter_server"),
}.items() for flag in flags.split()}
_DEVICE = re.compile(r"(cpu|gpu):(\d{1,3})")
_PARTITIONER = re.compile(r"(min_size|fixed|max_size):(\d{1,15})")


def parse_devices(what: str, text: str) -> list[tuple[str, int]]:
    """Returns [("gpu", 0), ("gpu", 1)] for "gpu:0,gpu:1", [] for "".

    Raises:
      ConfigError: the text has another form, names a device twice, or names CPUs and GPUs together.
    """
    devices = []
    for name in filter(None, text.lower().split(",")):
        match = _DEVICE.fullmatch(name.strip())
        if not match:
            raise ConfigError(f"{what}: got {name!r}; allowed: devices of one kind, as in cpu:0,cpu:1 or gpu:0,gpu:1")
        devices.append((match[1], int(match[2])))
    if len(set(devices)) < len(devices):
        raise ConfigError(f"{what}: got {text!r}, which names a device twice; name each once")
    if len({kind for kind, _ in devices}) > 1:
        raise ConfigError(f"{what}: got {text!r}; allowed: devices of one kind, cpu or gpu")
    return devices


def parse_partitioner(what: str, text: str) -> tuple[str, int] | None:
    """Returns ("min_size", 262144) for "min_size:262144", None for "".

    Raises:
      ConfigError: the text has another form.
    """
    if not text:
        return None
    match = _PARTITIONER.fullmatch(text)
    if not match or int(match[2]) < 1:
        raise ConfigError(f"{what}: got {text!r}; allowed: min_size:BYTES, fixed:PARTS or max_size:BYTES, the number "
                          "at least 1, as in min_size:262144")
    return match[1], int(match[2])


_again = functools.partial(fields.redeclare, Config)
_field = functools.partial(fields.field, group="Keras under tf.distribute")
_of_convert = functools.partial(fields.field, group="Converting checkpoints")


@dataclasses.dataclass(frozen=True)
class KerasConfig(ClusterFlags, ModelFlags, TrainingFlags, WaitFlags):
    """The flags of one task of `ps_train keras`, checked.

    Raises:
      ConfigError: a value is out of its bounds, or a flag means nothing here; the text names each one.
    """

    num_gpus: Optional[int] = _again(
        "num_gpus", help="GPUs of this machine to train on; with multi_worker_mirrored a worker uses GPU number "
        "task_index % num_gpus.", unset="all that are present")
    model: str = _again("model", default="models.keras_mlp",
                        help="Module with build_model, imported from the working directory.")
    hidden_units: int = _again("hidden_units", default=256, help="Units in each hidden layer (models.keras_mlp).")
    learning_rate: float = _again("learning_rate", default=0.001)  # Adam's own in Keras
    batch_size: int = _again("batch_size", help="Examples in a mini-batch of one replica.")
    steps_per_execution: int = _again(
        "steps_per_execution", help="Steps in one call of the compiled training function.", maximum=None)
    save_model_steps: int = _again(
        "save_model_steps", help="Steps between checkpoints within an epoch; 0 saves only at its end.")
    start_timeout_secs: float = _again("start_timeout_secs", help="Time to wait for the other tasks.")
    step_timeout_secs: float = _again(
        "step_timeout_secs", help="Time for one training step of a cluster; after that the task exits with 138.")
    eval_timeout_secs: float = _again(
        "eval_timeout_secs", help="Time to count the held-out data, and time for the evaluation at the end; after "
        "that the task exits with 1.")
    beat_timeout_secs: float = _again(
        "beat_timeout_secs", help="Time without a sign of life of the coordinator after which a ps or worker exits "
        "with 138.")

    strategy: str = _field("default", help="The tf.distribute strategy to train under.", choices=STRATEGIES)
    num_virtual_devices: Optional[int] = _field(
        None, help="Number of virtual devices into which this machine's CPU is divided (mirrored, central_storage).",
        minimum=1, unset="the GPUs, or one CPU")
    devices: str = _field("", help="Devices of this machine to train on (one_device, mirrored, central_storage).",
                          unit="cpu:0,cpu:1 or gpu:0,...", form=parse_devices, unset="the GPUs, or one CPU")
    cross_device_ops: str = _field("auto", help="How the devices reduce gradients (mirrored).",
                                   choices=("auto", "nccl", "hierarchical_copy", "reduction_to_one"))
    variable_partitioner: str = _field(
        "", help="How variables are split among the ps: into parts of at least or at most BYTES, or into PARTS "
        "parts (parameter_server).", unit="min_size:BYTES, max_size:BYTES, fixed:PARTS", form=parse_partitioner,
        unset="not split")
    communication: str = _field("AUTO", help="How gradients are all-reduced (multi_worker_mirrored).",
                                choices=("AUTO", "RING", "NCCL"))
    coordinator_host: str = _field("localhost:2221", help="Address of the coordinator, job chief (parameter_server).",
                                   unit="host:port", form=parse_hosts)
    tpu_name: str = _field("", help="Name or address of the TPU (tpu).", unit="name",
                           unset="TPU_NAME, or the TPU that is found")
    steps_per_epoch: Optional[int] = _field(
        None, help="Steps between validations and checkpoints; --train_steps is rounded up to whole epochs.",
        unit="steps", minimum=1, unset="about 500")
    validation_epochs: int = _field(1, help="Epochs between validations; 0 never validates.", unit="epochs", minimum=0)
    validation_steps: Optional[int] = _field(
        None, help="Batches in one validation; required if the dataset repeats, and then also used for the "
        "evaluation at the end.", unit="batches", minimum=1, unset="all batches")

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), KerasConfig) + fields.foreign(self.given, "keras", KerasConfig)
        refuse(problems + _misplaced(self.strategy, self.given) + self._problems_of_devices())
        # The ps write their part of a backup, and work in folders of their own.
        object.__setattr__(self, "train_dir", os.path.abspath(self.train_dir or default_train_dir(self.model)))

    def _problems_of_devices(self) -> list[str]:
        if not self.devices:
            return []
        problems = [f"--{name}: --devices selects the devices already; leave one of the two out"
                    for name in ("num_gpus", "num_virtual_devices") if name in self.given]
        if self.strategy == "one_device" and len(parse_devices("--devices", self.devices)) > 1:
            problems.append(f"--devices: got {self.devices!r}; allowed with --strategy=one_device: one device")
        return problems


@dataclasses.dataclass(frozen=True)
class ConvertConfig(ModelFlags, OptimizerFlags):
    """The flags of `ps_train convert`, checked.

    Raises:
      ConfigError: a value is not allowed, a flag is missing, or means nothing here; the text names each one.
    """

    to: Optional[str] = _of_convert(None, help="Kind of checkpoint to write.",
                                    choices=("keras", "graph"), unset="none; required")
    output_dir: str = _of_convert("", help="Folder to write the checkpoint to; it is read from --train_dir.",
                                  unit="path", unset="none; required")

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), ConvertConfig) + fields.foreign(self.given, "convert", ConvertConfig)
        if self.to is None:
            problems.append("--to: not given; allowed: keras, graph")
        if not self.train_dir:
            problems.append("--train_dir: not given; it is the folder of the checkpoint to convert")
        if not self.output_dir:
            problems.append("--output_dir: not given; it is the folder for the new checkpoint")
        refuse(problems)


PLACED = PLACED_BY_LAUNCH | {"coordinator_host"}


def _misplaced(strategy: str, given: frozenset[str]) -> list[str]:
    """Returns a line for each given flag that means nothing with the strategy."""
    return [f"--{name}: means something with --strategy={' or '.join(_ONLY_WITH[name])} only, and it is {strategy}"
            for name in sorted(given & _ONLY_WITH.keys()) if strategy not in _ONLY_WITH[name]]


def parse_keras_task(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> KerasConfig:
    """Returns the KerasConfig of one task from its command line, without program and verb, and its environment.

    Raises:
      ConfigError: the command line is wrong; the text says how.
    """
    values, given = fields.parse_flags(argv, KerasConfig, others=[Config])
    return KerasConfig(**values, given=given, tf_config=environ.get("TF_CONFIG", ""))


def parse_keras_launch(argv: Sequence[str]) -> tuple[KerasConfig, LaunchConfig]:
    """Returns the KerasConfig of the tasks, with `given`, and the LaunchConfig of the launcher.

    Raises:
      ConfigError: the command line is wrong, or it places the tasks, which is the launcher's job.
    """
    return parse_launch_of(
        KerasConfig, argv, PLACED, others=[Config],
        more_problems=lambda values, given: _misplaced(values["strategy"], given & {"num_ps", "num_workers"}))


def parse_convert(argv: Sequence[str]) -> ConvertConfig:
    """Returns the ConvertConfig of a command line, without program and verb.

    Raises:
      ConfigError: the command line is wrong; the text says how.
    """
    values, given = fields.parse_flags(argv, ConvertConfig, others=[Config])
    return ConvertConfig(**values, given=given)
