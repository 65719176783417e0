"""The flags of `ps_train keras` and `ps_train convert`, and the cluster that they or TF_CONFIG describe.

    default, one_device, mirrored, central_storage, tpu   one process, and no cluster
    multi_worker_mirrored                                 workers, the first (or the chief task) is the chief
    parameter_server                                      a chief that coordinates, ps and workers that serve it
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Optional

from ps_train.cluster.addresses import parse_hosts, refuse_duplicates
from ps_train.cluster.spec import Cluster, Task
from ps_train.cluster.tf_config import parse_tf_config
from ps_train.config import fields, flag_help
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
from ps_train.errors import ConfigError, Problem, refuse
from ps_train.launch.command_lines import TaskList
from ps_train.parts import table
from ps_train.runtime import tensorflow_errors

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
_HOST_FLAGS = {
    "multi_worker_mirrored": {"worker": "worker_hosts"},
    "parameter_server": {"chief": "coordinator_host", "ps": "ps_hosts", "worker": "worker_hosts"},
}
_DEVICE = re.compile(r"(cpu|gpu):(\d{1,3})")
_PARTITIONER = re.compile(r"(min_size|fixed|max_size):(\d{1,15})")


def parse_devices(flag: str, text: str) -> list[tuple[str, int]]:
    """Returns [("gpu", 0), ("gpu", 1)] for "gpu:0,gpu:1", [] for ""; raises ConfigError for another form."""
    matches = [_DEVICE.fullmatch(name.strip()) for name in text.lower().split(",") if name]
    devices = [(match[1], int(match[2])) for match in matches if match]
    if len(set(devices)) < len(matches) or len({kind for kind, _ in devices}) > 1:
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: devices of one kind, each once, as in "
                          "cpu:0,cpu:1 or gpu:0,gpu:1")
    return devices


def parse_partitioner(flag: str, text: str) -> tuple[str, int] | None:
    """Returns ("min_size", 262144) for "min_size:262144", None for ""; raises ConfigError for another form."""
    if not text:
        return None
    match = _PARTITIONER.fullmatch(text)
    if not match or int(match[2]) < 1:
        raise ConfigError("flag_malformed",
                          f"{flag}: got {text!r}; allowed: min_size:BYTES, fixed:PARTS or max_size:BYTES, the number "
                          "at least 1, as in min_size:262144")
    return match[1], int(match[2])


_again = functools.partial(fields.redeclare, Config)
_field = functools.partial(fields.field, group="Keras under tf.distribute")
_of_convert = functools.partial(fields.field, group="Converting checkpoints")


@dataclasses.dataclass(frozen=True)
class KerasConfig(
    ClusterFlags, ModelFlags, TrainingFlags, WaitFlags, *table.flag_classes(is_located=True),  # type: ignore[misc]
):
    """The flags of one task of `ps_train keras`; raises ConfigError with a line for each one that is wrong."""

    num_gpus: Optional[int] = _again(
        "num_gpus", help="GPUs of this machine to train on; with multi_worker_mirrored a worker uses GPU number "
        "task_index % num_gpus.", unset="all that are present")
    model: str = _again("model", default="models.keras_mlp",
                        help="Module with build_model, imported from the working directory.")
    hidden_units: int = _again("hidden_units", default=256, help="Units in each hidden layer (models.keras_mlp).")
    learning_rate: float = _again("learning_rate", default=0.001)  # the default of Adam in Keras
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
    save_timeout_secs: float = _again(
        "save_timeout_secs", help="Time for the last upload, if --train_dir is a URL.")
    beat_timeout_secs: float = _again(
        "beat_timeout_secs", help="Time without a sign of life of the coordinator after which a ps or worker exits "
        "with 138.")

    log_format: str = fields.redeclare(
        Config, "log_format", help="Format of a task's log: text, or a JSON object on each line.",
        choices=("ps_train", "json"))

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
        problems = fields.problems(vars(self), KerasConfig) + flag_help.foreign(self.given, "keras", KerasConfig)
        problems += _misplaced(self.strategy, self.given)
        if self.strategy == "parameter_server" and self.on_bad_record == "skip":
            problems.append(Problem("flags_conflict", "--on_bad_record: got 'skip' with --strategy=parameter_server, "
                                    "where input_fn can make no counter; allowed: stop, or another strategy"))
        if self.devices:
            problems += [Problem("flags_conflict",
                                 f"--{name}: --devices selects the devices already; leave one of the two out")
                         for name in ("num_gpus", "num_virtual_devices") if name in self.given]
            if self.strategy == "one_device" and len(parse_devices("--devices", self.devices)) > 1:
                problems.append(Problem("flags_conflict", f"--devices: got {self.devices!r}; allowed with "
                                        "--strategy=one_device: one device"))
        refuse(problems)
        object.__setattr__(self, "train_dir", self.train_dir or default_train_dir(self.model))


@dataclasses.dataclass(frozen=True)
class ConvertConfig(ModelFlags, OptimizerFlags):
    """The flags of `ps_train convert`; raises ConfigError with a line for each one that is wrong or missing."""

    to: Optional[str] = _of_convert(None, help="Kind of checkpoint to write.",
                                    choices=("keras", "graph"), unset="none; required")
    output_dir: str = _of_convert("", help="Folder to write the checkpoint to; it is read from --train_dir.",
                                  unit="path", unset="none; required")

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), ConvertConfig) + flag_help.foreign(self.given, "convert", ConvertConfig)
        problems += [Problem("flag_missing", f"--{name}: not given; {advice}") for name, advice in (
            ("to", "allowed: keras, graph"), ("train_dir", "it is the folder of the checkpoint to convert"),
            ("output_dir", "it is the folder for the new checkpoint")) if not getattr(self, name)]
        if self.to == "graph" and (problem := tensorflow_errors.problem_of_path(self.output_dir)):
            problems.append(Problem("path_is_pattern", f"--output_dir: got {self.output_dir!r}; {problem}"))
        refuse(problems)


PLACED = PLACED_BY_LAUNCH | {"coordinator_host"}


def _misplaced(strategy: str, given: frozenset[str]) -> list[Problem]:
    """Returns a line for each given flag that has no effect with the strategy."""
    return [Problem("flag_without_effect", f"--{name}: has an effect only with --strategy="
                    f"{' or '.join(_ONLY_WITH[name])}, and it is {strategy}")
            for name in sorted(given & _ONLY_WITH.keys()) if strategy not in _ONLY_WITH[name]]


def parse_keras_task(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> KerasConfig:
    """Returns the flags of one task, from the words after `keras`; raises ConfigError if they are wrong."""
    values, given = fields.parse_flags(argv, KerasConfig, others=[Config])
    return KerasConfig(**values, given=given, tf_config=environ.get("TF_CONFIG", ""))


def parse_keras_launch(argv: Sequence[str]) -> tuple[KerasConfig, LaunchConfig]:
    """Returns the flags of the tasks and those of the launcher; raises ConfigError if they are wrong."""
    return parse_launch_of(
        KerasConfig, argv, PLACED, others=[Config],
        more_problems=lambda values, given: [*_misplaced(values["strategy"], given & {"num_ps", "num_workers"})])


def parse_convert(argv: Sequence[str]) -> ConvertConfig:
    """Returns the flags of `convert`; raises ConfigError if they are wrong."""
    values, given = fields.parse_flags(argv, ConvertConfig, others=[Config])
    return ConvertConfig(**values, given=given)


def resolve_cluster(config: KerasConfig) -> Cluster | None:
    """Returns the cluster and this task's place in it, or None for a strategy of one process.

    Raises:
      ConfigError: the flags or TF_CONFIG are malformed, contradictory, or no cluster for this strategy.
    """
    has_tf_config = bool(config.tf_config.strip())
    if config.strategy in _HOST_FLAGS:
        return _from_tf_config(config) if has_tf_config else _from_flags(config)
    if has_tf_config:  # a scheduler may write one for a job of one process
        jobs = parse_tf_config(config.tf_config, needs_ps=False).addresses
        names = [f"{job}:{index}" for job, hosts in jobs.items() if job != "evaluator" for index in hosts]
        if len(names) > 1:
            raise ConfigError("tf_config_unsuitable",
                              f"--strategy={config.strategy} is one process, and TF_CONFIG names {len(names)}: "
                              f"{', '.join(names)}; each would train alone. Choose multi_worker_mirrored or "
                              "parameter_server, or unset TF_CONFIG")
    return None


def peers(cluster: Cluster) -> list[Task]:
    """Returns all other tasks, the ps first; for the coordinator of parameter_server these are the servers."""
    return [task for task in [*cluster.ps, *cluster.workers] if task != cluster.task]


def strategy_tasks(config: KerasConfig, launch_config: LaunchConfig) -> TaskList:
    """Returns the tasks that a launcher starts for the strategy."""
    flags = _HOST_FLAGS.get(config.strategy, {})
    counts = {"ps": launch_config.num_ps, "chief": 1, "worker": launch_config.num_workers}
    names = [f"{job}:{index}" for job, count in counts.items() if job in flags for index in range(count)]
    chief = "chief:0" if "chief" in flags else "worker:0"
    return TaskList(names or [chief], chief, ("keras",), flags)


def _from_tf_config(config: KerasConfig) -> Cluster:
    flags = _HOST_FLAGS[config.strategy]
    refuse([Problem("flag_contradicts_tf_config",
                    f"--{name}: TF_CONFIG defines the cluster; leave the flag out, or unset TF_CONFIG")
            for name in sorted(config.given & {"job_name", "task_index", *flags.values()})])
    parsed = parse_tf_config(config.tf_config, needs_ps=False)
    names = {"master": "chief"}  # the same role; tf.distribute knows only one of the names
    hosts_by_job = {names.get(job, job): hosts for job, hosts in parsed.addresses.items() if job != "evaluator"}
    jobs, allowed = hosts_by_job.keys(), {"chief", "worker", *flags}
    if parsed.job == "evaluator" or not jobs <= allowed or "ps" in flags and jobs != allowed:
        needed = "a chief (the coordinator), ps and workers" if "ps" in flags else "workers, and no ps"
        raise ConfigError("tf_config_unsuitable",
                          f"TF_CONFIG: this task is of the job {parsed.job!r}, in a cluster of {', '.join(jobs)}; "
                          f"{config.strategy} needs {needed}, and no evaluator, since the chief evaluates")
    for job, hosts in hosts_by_job.items():
        if sorted(hosts) != list(range(len(hosts))):
            raise ConfigError("tf_config_unsuitable",
                              f"TF_CONFIG: cluster[{job!r}] names the indices {', '.join(map(str, sorted(hosts)))}; "
                              f"{config.strategy} needs to know all tasks, from 0 on without a gap")
    return Cluster(names.get(parsed.job, parsed.job), parsed.index, hosts_by_job)


def _from_flags(config: KerasConfig) -> Cluster:
    flags = _HOST_FLAGS[config.strategy]
    if config.job_name is None or config.task_index is None:
        missing = "job_name" if config.job_name is None else "task_index"
        raise ConfigError("flag_missing",
                          f"--{missing}: not given, and TF_CONFIG is not set; give --job_name and --task_index, or run "
                          f"all tasks on this machine with `ps_train launch keras --strategy={config.strategy}`")
    if config.job_name not in flags:
        raise ConfigError("flag_out_of_range",
                          f"--job_name: got {config.job_name!r}; allowed with --strategy={config.strategy}: "
                          f"{', '.join(flags)}")
    hosts = {job: parse_hosts(f"--{flag}", getattr(config, flag)) for job, flag in flags.items()}
    refuse_duplicates(hosts)
    count = len(hosts[config.job_name])
    if len(hosts.get("chief", [0])) != 1:
        raise ConfigError("flag_malformed",
                          f"--coordinator_host: got {config.coordinator_host!r}; allowed: one host:port")
    if config.task_index >= count:
        raise ConfigError("flag_out_of_range",
                          f"--task_index: got {config.task_index}; allowed: 0 to {count - 1}, since "
                          f"--{flags[config.job_name]} names {count} task{'s' if count > 1 else ''}")
    return Cluster(config.job_name, config.task_index, hosts)
