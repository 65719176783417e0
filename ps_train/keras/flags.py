"""The flags of `ps_train keras`: those of `ps_train train` that apply here, and a few of its own."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ps_train.cluster.addresses import parse_hosts
from ps_train.config import fields
from ps_train.config.launch import PLACED_BY_LAUNCH, LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ConfigError, refuse

STRATEGIES = ("default", "one_device", "mirrored", "central_storage", "multi_worker_mirrored", "parameter_server",
              "tpu")
COMMUNICATIONS = ("AUTO", "RING", "NCCL")
CROSS_DEVICE_OPS = ("auto", "nccl", "hierarchical_copy", "reduction_to_one")

# Flags of `train` that apply here; the others concern the servers, updates and checkpoints of graph training.
_SHARED = frozenset({
    "job_name", "task_index", "ps_hosts", "worker_hosts", "num_gpus", "model", "dataset", "params", "data_dir",
    "download_only", "hidden_units", "seed", "train_steps", "batch_size", "learning_rate", "train_dir",
    "steps_per_execution", "save_model_steps", "keep_checkpoint_max", "save_summaries_steps", "log_steps", "tf_log",
    "start_timeout_secs", "step_timeout_secs", "eval_timeout_secs", "beat_timeout_secs", "stop_timeout_secs"})
# flag -> the strategies to which it applies
_ONLY_WITH = {
    "num_virtual_devices": ("mirrored", "central_storage"),
    "devices": ("one_device", "mirrored", "central_storage"),
    "cross_device_ops": ("mirrored",),
    "variable_partitioner": ("parameter_server",),
    "communication": ("multi_worker_mirrored",),
    "worker_hosts": ("multi_worker_mirrored", "parameter_server"),
    "job_name": ("multi_worker_mirrored", "parameter_server"),
    "task_index": ("multi_worker_mirrored", "parameter_server"),
    "ps_hosts": ("parameter_server",),
    "coordinator_host": ("parameter_server",),
    "beat_timeout_secs": ("parameter_server",),
    "num_workers": ("multi_worker_mirrored", "parameter_server"),
    "num_ps": ("parameter_server",),
    "tpu_name": ("tpu",),
    "save_model_steps": tuple(name for name in STRATEGIES if name != "parameter_server"),
}
_DEVICE = re.compile(r"(cpu|gpu):(\d{1,3})")
_PARTITIONER = re.compile(r"(min_size|fixed|max_size):(\d{1,15})")
_GROUP = "Keras under tf.distribute"


def parse_devices(what: str, text: str) -> list[tuple[str, int]]:
    """Returns [("gpu", 0), ("gpu", 1)] for "gpu:0,gpu:1", [] for "".

    Raises:
      ConfigError: the text is of another form, or names a device twice, or CPUs and GPUs together.
    """
    found = []
    for name in filter(None, text.lower().split(",")):
        match = _DEVICE.fullmatch(name.strip())
        if not match:
            raise ConfigError(f"{what}: got {name!r}; allowed: devices of one kind, as in cpu:0,cpu:1 or gpu:0,gpu:1")
        found.append((match[1], int(match[2])))
    if len(set(found)) < len(found):
        raise ConfigError(f"{what}: got {text!r}, which names a device twice; name each once")
    if len({kind for kind, _ in found}) > 1:
        raise ConfigError(f"{what}: got {text!r}; allowed: devices of one kind, cpu or gpu")
    return found


def parse_partitioner(what: str, text: str) -> tuple[str, int] | None:
    """Returns ("min_size", 262144) for "min_size:262144", None for "".

    Raises:
      ConfigError: the text is of another form.
    """
    if not text:
        return None
    match = _PARTITIONER.fullmatch(text)
    if not match or int(match[2]) < 1:
        raise ConfigError(f"{what}: got {text!r}; allowed: min_size:BYTES, fixed:PARTS or max_size:BYTES, the number "
                          "at least 1, as in min_size:262144")
    return match[1], int(match[2])


def _otherwise(name: str, default: Any, **rule: Any) -> Any:
    """Declares a field of Config again, with another default here."""
    known = Config.__dataclass_fields__[name].metadata["rule"]
    return dataclasses.field(default=default, metadata={"rule": dataclasses.replace(known, **rule)})


def _field(default: Any, help: str, **rule: Any) -> Any:  # noqa: A002 (absl's own word)
    return fields.field(default, _GROUP, help, **rule)


@dataclasses.dataclass(frozen=True)
class KerasConfig(Config):
    """What one task of `ps_train keras` is to do.

    Raises:
      ConfigError: a value is out of bounds, or a flag does not apply here; the message names each one.
    """

    model: str = _otherwise("model", "models.keras_mlp",
                            help="Module with build_model, imported from the working directory.")
    hidden_units: int = _otherwise("hidden_units", 256, help="Units in each hidden layer (models.keras_mlp).")
    learning_rate: float = _otherwise("learning_rate", 0.001)  # Adam's own in Keras
    batch_size: int = _otherwise("batch_size", 100, help="Examples in a mini-batch of one replica.")
    num_gpus: Optional[int] = _otherwise(
        "num_gpus", None, help="GPUs of this machine to train on; with multi_worker_mirrored a worker uses GPU number "
        "task_index % num_gpus.", unset="all that are present")
    steps_per_execution: int = _otherwise(
        "steps_per_execution", 1, help="Steps in one call of the compiled training function.", maximum=None)
    save_model_steps: int = _otherwise(
        "save_model_steps", 0, help="Steps between checkpoints within an epoch; 0 saves only at its end.")
    start_timeout_secs: float = _otherwise("start_timeout_secs", 300.0, help="Time to wait for the other tasks.")
    step_timeout_secs: float = _otherwise(
        "step_timeout_secs", 300.0, help="Time for one training step of a cluster; after that the task exits with 138.")
    eval_timeout_secs: float = _otherwise(
        "eval_timeout_secs", 600.0, help="Time to count the held-out data, and time for the evaluation at the end; "
        "after that the task exits with 1.")
    beat_timeout_secs: float = _otherwise(
        "beat_timeout_secs", 10.0, help="Time without a sign of life of the coordinator after which a ps or worker "
        "exits with 138.")

    strategy: str = _field("default", "The tf.distribute strategy to train under.", choices=STRATEGIES)
    num_virtual_devices: Optional[int] = _field(
        None, "Number of virtual devices into which this machine's CPU is divided (mirrored, central_storage).",
        minimum=1, unset="the GPUs, or one CPU")
    devices: str = _field("", "Devices of this machine to train on (one_device, mirrored, central_storage).",
                          unit="cpu:0,cpu:1 or gpu:0,...", form=parse_devices, unset="the GPUs, or one CPU")
    cross_device_ops: str = _field("auto", "How the devices reduce gradients (mirrored).", choices=CROSS_DEVICE_OPS)
    variable_partitioner: str = _field(
        "", "How variables are split among the ps: into parts of at least or at most BYTES, or into PARTS parts "
        "(parameter_server).", unit="min_size:BYTES, max_size:BYTES, fixed:PARTS", form=parse_partitioner,
        unset="not split")
    communication: str = _field("AUTO", "How gradients are all-reduced (multi_worker_mirrored).",
                                choices=COMMUNICATIONS)
    coordinator_host: str = _field("localhost:2221", "Address of the coordinator, job chief (parameter_server).",
                                   unit="host:port", form=parse_hosts)
    tpu_name: str = _field("", "Name or address of the TPU (tpu).", unit="name",
                           unset="TPU_NAME, or the TPU that is found")
    steps_per_epoch: Optional[int] = _field(
        None, "Steps between validations and checkpoints; --train_steps is rounded up to whole epochs.",
        unit="steps", minimum=1, unset="about 500")
    validation_epochs: int = _field(1, "Epochs between validations; 0 never validates.", unit="epochs", minimum=0)
    validation_steps: Optional[int] = _field(
        None, "Batches in one validation; required if the dataset repeats, and then also used for the evaluation at "
        "the end.", unit="batches", minimum=1, unset="all batches")

    def __post_init__(self) -> None:
        own = fields.rules(KerasConfig).keys() - fields.rules(Config).keys()
        problems = fields.problems(vars(self), KerasConfig)
        problems += [f"--{name}: has no effect in `ps_train keras`; leave it out" for name in sorted(self.given)
                     if name not in _SHARED | own]
        refuse(problems + misplaced(self.strategy, self.given) + self._problems_of_devices())
        super().__post_init__()
        # The ps write their share of a backup, and work in folders of their own.
        object.__setattr__(self, "train_dir", os.path.abspath(self.train_dir))

    def _problems_of_devices(self) -> list[str]:
        if not self.devices:
            return []
        found = [f"--{name}: --devices already selects the devices; leave one of them out"
                 for name in ("num_gpus", "num_virtual_devices") if name in self.given]
        named = parse_devices("--devices", self.devices)
        if self.strategy == "one_device" and len(named) > 1:
            found.append(f"--devices: got {self.devices!r}; allowed with --strategy=one_device: one device")
        return found


NOT_HERE = frozenset(fields.rules(Config)) - _SHARED
PLACED = PLACED_BY_LAUNCH | {"coordinator_host"}


def misplaced(strategy: str, given: frozenset[str]) -> list[str]:
    """Returns a line for each given flag that has no effect with the strategy."""
    return [f"--{name}: has an effect only with --strategy={' or '.join(_ONLY_WITH[name])}, but it is {strategy}"
            for name in sorted(given & _ONLY_WITH.keys()) if strategy not in _ONLY_WITH[name]]


def parse_task(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> KerasConfig:
    """Returns the KerasConfig of one task from its command line (without program and verb) and environment.

    Raises:
      ConfigError: the command line is wrong; the text says how.
    """
    values, given = fields.parse(argv, KerasConfig)
    return KerasConfig(**values, given=given, tf_config=environ.get("TF_CONFIG", ""))


def parse_launch(argv: Sequence[str]) -> tuple[KerasConfig, LaunchConfig]:
    """Returns the KerasConfig of the tasks, with `given`, and the LaunchConfig of the launcher.

    Raises:
      ConfigError: the command line is wrong, or it places the tasks, which is the launcher's job.
    """
    values, given = fields.parse(argv, LaunchConfig, KerasConfig)
    refuse([f"--{name}: launch places the tasks itself; leave it out, and give --num_ps and --num_workers"
            for name in sorted(given & PLACED)]
           + misplaced(values["strategy"], given & {"num_ps", "num_workers"}))
    own = {name: values.pop(name) for name in fields.rules(LaunchConfig)}
    return KerasConfig(**values, given=given - own.keys()), LaunchConfig(**own)


def check_installed() -> None:
    """Checks, without importing either, that tf_keras is installed and has TensorFlow's minor version.

    Keras 3 does not train under MultiWorkerMirroredStrategy (3.15 on TensorFlow 2.21), tf_keras does.

    Raises:
      ConfigError: it does not; the message says what to install.
    """
    tensorflow = _version("tensorflow")
    advice = f"`pip install 'tf_keras=={_minor(tensorflow)}.*'`" if tensorflow else "`pip install tf_keras`"
    found = _version("tf_keras")
    if not found:
        raise ConfigError(f"`ps_train keras` and `ps_train convert` need tf_keras, which is not installed: {advice}, "
                          "or ps_train with its extra: `pip install 'ps_train[keras]'`")
    if tensorflow and _minor(found) != _minor(tensorflow):
        raise ConfigError(f"tf_keras is {found} and TensorFlow {tensorflow}; both must be of the same minor version: "
                          f"{advice}")


def _version(package: str) -> str:
    """Returns a package's version, "" if it is not installed (TensorFlow may be, under another name)."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
