"""Before a task begins: the plug-ins that it loads, the TF1 mode, its share of the cores, its server, and its settings.

    Config, Cluster --> WorkerSettings(graph, loop, sessions, identity, ...)

The settings are what the flags mean for a worker. Outside `tasks/` only parts see a Config, when they are made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster import addresses, ports
from ps_train.cluster.spec import Cluster
from ps_train.config import fields, groups
from ps_train.config.task import Config
from ps_train.errors import ConfigError, Problem, refuse
from ps_train.graph import devices, transfer
from ps_train.graph.optimizers import OptimizerPlan
from ps_train.graph.placement import PlacementPlan
from ps_train.parts import table as parts
from ps_train.plugins import contracts, loader
from ps_train.plugins.params import resolve_params
from ps_train.runtime import threads
from ps_train.runtime.waits import Timeouts
from ps_train.storage.saver import SaveSchedule
from ps_train.training.loop import LoopSettings
from ps_train.training.recovery import SessionSettings
from ps_train.training.replica_graph import GraphSettings
from ps_train.updates import staleness
from ps_train.updates.update import Period, SyncSettings, UpdateSettings

_WIRE_DTYPES = {"as_is": None, "bfloat16": tf.bfloat16}
_log = logging.getLogger(__name__)


class LoadedPlugins(NamedTuple):
    """The model and the dataset, each with its parameters."""

    model: contracts.Model
    model_params: dict[str, Any]
    dataset: contracts.Dataset
    dataset_params: dict[str, Any]


def load_plugins(config: Config) -> LoadedPlugins:
    """Imports and checks the plug-ins that the configuration names.

    Raises:
      ConfigError: one is missing or has another contract, or --params does not fit them.
    """
    parts.prepare_for_plugins()
    model, dataset = loader.load_model(config.model), loader.load_dataset(config.dataset)
    if model.make_optimizer:
        _refuse_optimizer_flags(config)
    shared = {name: getattr(config, name)
              for name in ("batch_size", "data_dir", "hidden_units", "learning_rate", "on_bad_record", "seed")}
    model_params, dataset_params = resolve_params(config.params, [model, dataset], shared)
    return LoadedPlugins(model, model_params, dataset, dataset_params)


def _refuse_optimizer_flags(config: Config) -> None:
    refuse([Problem("flags_conflict", f"--{name}: the model {config.model} has a make_optimizer, which chooses the "
                    "rule; leave the flag out, or read it from a parameter of the model (--params)")
            for name, (rule, _, _) in fields.rules(type(config)).items()
            if rule.is_of_optimizer and name in config.given])


def prepare_tensorflow(tf_log: bool) -> None:
    """Puts TensorFlow into the mode that TF1 graph code expects, for this whole process."""
    tf.disable_v2_behavior()
    # Otherwise a worker could read a half-updated parameter, see docs/decisions/resource-variables.md.
    tf.enable_resource_variables()
    tf.logging.set_verbosity(tf.logging.INFO if tf_log else tf.logging.ERROR)


def share_machine(cluster: Cluster, num_gpus: int | None) -> None:
    """Sets the GPU of this process, and how many threads an operation uses. Call it before a device is created."""
    # TensorFlow decides both once per process, with its first device, which tracing a function of the input pipeline
    # may already create. A server with another GPU would fail then (tensorflow/tensorflow#60810).
    index = devices.gpu_index(cluster, num_gpus)
    tf.config.set_visible_devices([] if index is None else tf.config.list_physical_devices("GPU")[index], "GPU")
    with tf.Graph().as_default(), tf.Session(config=session_threads(cluster, device_count={"GPU": 0})):
        pass


def session_threads(cluster: Cluster, **others: Any) -> tf.ConfigProto:
    """Returns the options of a session or server of this task, with its share of the cores; `others` are added."""
    num_threads, is_crowded = share_of_cores(cluster, threads.num_cores())
    return tf.ConfigProto(intra_op_parallelism_threads=num_threads, experimental=tf.ConfigProto.Experimental(
        disable_thread_spinning=is_crowded), **others)


def share_of_cores(cluster: Cluster, num_cores: int) -> tuple[int, bool]:
    """Returns how many threads an operation of this task uses, and whether its machine has few cores for its tasks.

    The workers of one machine share its cores. TensorFlow's own variable TF_NUM_INTRAOP_THREADS takes precedence.
    """
    # By default each task splits an operation into as many parts as there are cores, and waits for the part whose core
    # another task uses. On 2 cores, 1 ps and 2 workers took 2700 local steps per second that way, and 3400 with one
    # thread each; 670 and 735 single steps. And an idle thread spins before it sleeps: 565 single steps, 662 without.
    # With a container's limit of 1 core, 64 threads took 26 ms of CPU time for a mini-batch of DeepFM, and one took 12.
    own_host = addresses.host_of(cluster.task.address)
    here = [job for job, tasks in cluster.server_spec.items() for address in tasks.values()
            if addresses.host_of(address) == own_host]
    num_threads = max(1, num_cores // max(1, len(here) - here.count("ps")))
    return 0 if os.environ.get("TF_NUM_INTRAOP_THREADS") else num_threads, 2 * len(here) > num_cores


def start(cluster: Cluster, num_gpus: int | None) -> str:
    """Starts this task's server, which lives as long as the process, and returns its target, `grpc://...`.

    Args:
      cluster: the cluster and this task in it.
      num_gpus: GPUs of this machine, or None for all that are present; a ps uses none.

    Raises:
      ConfigError: the port is in use, or TensorFlow refuses the cluster.
    """
    ports.release_held_port()
    ports.check_port(cluster.task)
    try:
        tasks, job, index = cluster.boot
        server = tf.train.Server(tf.train.ClusterSpec(tasks), job_name=job, task_index=index,
                                 config=_session_config(cluster, num_gpus))
    except tf.errors.OpError as error:
        raise ConfigError("server_not_started",
                          f"TensorFlow could not start the server of {cluster.task}: {error.message}") from error
    _log.info("%s serves at %s, which others reach at %s%s", cluster.task.name, cluster.task.address,
              addresses.reachable_at(addresses.port_of(cluster.task.address)),
              "; all tasks serve without authentication" if cluster.is_chief else "")
    if cluster.job != "ps":
        index = devices.gpu_index(cluster, num_gpus)
        devices.log_devices(cluster.task.name, ["CPU:0" if index is None else f"GPU:{index}"], num_gpus)
    return server.target


def _session_config(cluster: Cluster, num_gpus: int | None) -> tf.ConfigProto:
    index = devices.gpu_index(cluster, num_gpus)
    if index is None:
        return session_threads(cluster, device_count={"GPU": 0})
    return session_threads(cluster, gpu_options=tf.GPUOptions(visible_device_list=str(index)))


class TrainingIdentity(NamedTuple):
    """What must be the same in all tasks of a training, and when it is continued.

    Attributes:
      shared_flags: name -> value of the flags that all workers must have in common.
      accepted_params: parameters that may differ from those of the training in the folder.
      command: the flags that this task was given, as on a command line.
      train_dir: where the training is, as the user knows it.
    """

    shared_flags: Mapping[str, Any]
    accepted_params: Sequence[str]
    command: Sequence[str]
    train_dir: str


class WorkerSettings(NamedTuple):
    """What the flags say to a worker.

    Attributes:
      graph: device, updates, placement and seed.
      num_gpus: GPUs of this machine, or None for those that are there.
      has_server: whether the servers of this worker and of the ps run already, and go on after this task.
      loop: when the step loop does what.
      sessions: when the chief saves, and how a lost session is recovered.
      identity: what must be the same in all tasks.
    """

    graph: GraphSettings
    num_gpus: int | None
    has_server: bool
    loop: LoopSettings
    sessions: SessionSettings
    identity: TrainingIdentity

    @property
    def train_dir(self) -> str:
        """The folder of checkpoints and summaries."""
        return self.sessions.train_dir

    @property
    def timeouts(self) -> Timeouts:
        """The bounds of this worker's waits."""
        return self.sessions.timeouts


def worker_settings(config: Config, cluster: Cluster) -> WorkerSettings:
    """Returns what the flags say to a worker.

    Raises:
      ConfigError: a flag needs to know how many workers there are, and this task does not.
    """
    return WorkerSettings(
        graph=GraphSettings(
            device=_device(config, cluster), updates=update_settings(config, cluster),
            placement=PlacementPlan(strategy=config.placement, partition_bytes=config.partition_bytes),
            bound=staleness_bound(config, cluster), seed=config.seed, steps_per_execution=config.steps_per_execution),
        num_gpus=config.num_gpus, has_server=config.existing_servers,
        loop=LoopSettings(
            worker_name=cluster.task.name, train_steps=config.train_steps, batch_size=config.batch_size,
            log_steps=config.log_steps, save_summaries_steps=config.save_summaries_steps,
            step_timeout_secs=config.step_timeout_secs, on_nan=config.on_nan),
        sessions=SessionSettings(
            train_dir=config.train_dir, timeouts=config.timeouts, saves=SaveSchedule(
                every_secs=config.save_model_secs, every_steps=config.save_model_steps,
                keep_max=config.keep_checkpoint_max, timeout_secs=config.save_timeout_secs)),
        identity=TrainingIdentity(
            shared_flags=fields.shared(config),
            accepted_params=groups.parse_accepted("--accept_params", config.accept_params),
            command=fields.as_flags(config, config.given), train_dir=os.path.abspath(config.train_dir)),
    )


def update_settings(config: Config, cluster: Cluster) -> UpdateSettings:
    """Returns how updates reach the parameters.

    Raises:
      ConfigError: a flag needs to know how many workers there are, and this task does not.
    """
    return UpdateSettings(
        plan=OptimizerPlan(config.optimizer, config.learning_rate, config.adam_decays_all_rows),
        worker=cluster.worker_number, sync=_sync_settings(config, cluster),
        wire=transfer.Wire(dtype=_WIRE_DTYPES[config.wire_dtype], is_fused=config.fused_transfers),
        period=Period(steps=config.communication_period, warmup_steps=config.communication_warmup_steps,
                      train_steps=config.train_steps),
        heartbeat_timeout_secs=config.beat_timeout_secs,
    )


def staleness_bound(config: Config, cluster: Cluster) -> staleness.Bound | None:
    """Returns how far workers may be apart, or None where that is not bounded."""
    if config.staleness_bound is None:
        return None
    return staleness.Bound(
        steps=config.staleness_bound,
        round_steps=max(config.communication_period, config.steps_per_execution),
        heartbeat_timeout_secs=config.beat_timeout_secs,
        names={cluster.number_of(worker): str(worker) for worker in cluster.workers},
    )


def _device(config: Config, cluster: Cluster) -> str:
    """Returns where this worker computes; an existing server may have GPUs that this machine lacks."""
    if config.existing_servers and config.num_gpus is not None:
        has_gpu = config.num_gpus > 0
    else:
        has_gpu = devices.gpu_index(cluster, config.num_gpus) is not None
    return cluster.task.device + ("/gpu:0" if has_gpu else "/cpu:0")


def _sync_settings(config: Config, cluster: Cluster) -> SyncSettings | None:
    """Returns how gradients are averaged, or None for async."""
    if not config.sync_replicas:
        return None
    if cluster.is_elastic:
        raise ConfigError("workers_unknown", "--sync_replicas: the workers of an elastic cluster join and leave, so "
                          "the number of gradients in an update is unknown; train without this flag, or with a fixed "
                          "number of workers (--noelastic)")
    num_workers = cluster.num_workers
    if len(cluster.workers) < num_workers:
        raise ConfigError("workers_unknown", f"--sync_replicas: TF_CONFIG names {len(cluster.workers)} of "
                          f"{num_workers} workers, so this task does not know how many gradients an update has; name "
                          "all, or train without this flag")
    gradients = config.replicas_to_aggregate or num_workers
    if (config.min_replicas_to_aggregate or 1) > gradients:
        raise ConfigError("flag_out_of_range", f"--min_replicas_to_aggregate: got {config.min_replicas_to_aggregate}; "
                          f"allowed: at most the {gradients} gradients of an update, one from each worker")
    if gradients > num_workers:
        _log.warning("--replicas_to_aggregate=%d is more than the %d workers: each computes several mini-batches for "
                     "an update", gradients, num_workers)
    return SyncSettings(gradients, num_workers, config.min_replicas_to_aggregate or 1)
