"""What the flags mean for a worker. No module outside `tasks/` sees a Config.

    Config, Cluster --> WorkerSettings(graph, server, loop, sessions, identity)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.config import fields, groups
from ps_train.config.optimizer import RuleFlags, last_decay_step
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.graph import devices, transfer
from ps_train.graph.optimizers import OptimizerPlan, RuleSettings, Schedule
from ps_train.graph.placement import PlacementPlan
from ps_train.runtime.waits import Timeouts
from ps_train.storage.saver import SaveSchedule
from ps_train.training.loop import LoopSettings
from ps_train.training.recovery import SessionSettings
from ps_train.training.replica_graph import GraphSettings
from ps_train.updates import staleness
from ps_train.updates.update import Period, SyncSettings, UpdateSettings

_WIRE_DTYPES = {"as_is": None, "bfloat16": tf.bfloat16}
_log = logging.getLogger(__name__)


class ServerSettings(NamedTuple):
    """The server of a worker.

    Attributes:
      num_gpus: GPUs of this machine, or None for those that are there.
      is_existing: whether the server and those of the ps run already, and go on after this task.
    """

    num_gpus: int | None
    is_existing: bool


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
      server: of this worker.
      loop: when the step loop does what.
      sessions: when the chief saves, and how a lost session is recovered.
      identity: what must be the same in all tasks.
      logs_placement: whether the chief prints which variable is on which ps.
    """

    graph: GraphSettings
    server: ServerSettings
    loop: LoopSettings
    sessions: SessionSettings
    identity: TrainingIdentity
    logs_placement: bool

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
            device=_device(config, cluster),
            updates=update_settings(config, cluster),
            placement=PlacementPlan(strategy=config.placement, partition_bytes=config.partition_bytes),
            bound=staleness_bound(config, cluster),
            seed=config.seed,
            steps_per_execution=config.steps_per_execution),
        server=ServerSettings(num_gpus=config.num_gpus, is_existing=config.existing_servers),
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
        logs_placement=config.log_placement,
    )


def update_settings(config: Config, cluster: Cluster) -> UpdateSettings:
    """Returns how updates reach the parameters.

    Raises:
      ConfigError: a flag needs to know how many workers there are, and this task does not.
    """
    return UpdateSettings(
        plan=OptimizerPlan(config.optimizer, config.learning_rate, config.adam_decays_all_rows, _rule_settings(config)),
        worker=cluster.worker_number,
        sync=_sync_settings(config, cluster),
        wire=transfer.Wire(dtype=_WIRE_DTYPES[config.wire_dtype], is_fused=config.fused_transfers),
        period=Period(steps=config.communication_period, warmup_steps=config.communication_warmup_steps,
                      train_steps=config.train_steps),
        heartbeat_timeout_secs=config.beat_timeout_secs,
    )


def _rule_settings(config: Config) -> RuleSettings:
    schedule = Schedule(
        kind=config.learning_rate_schedule, warmup_steps=config.warmup_steps, decay_steps=last_decay_step(config),
        decay_rate=config.decay_rate or 1.0, decay_power=config.decay_power or 1.0, end=config.end_learning_rate or 0.0,
        boundaries=config.boundaries, values=config.rates)
    return RuleSettings(
        options=tuple(config.optimizer_options.items()), schedule=schedule, clip_norm=config.clip_norm,
        weight_decay=config.weight_decay, flags=tuple(sorted(config.given & {*fields.rules(RuleFlags)})))


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
    return SyncSettings(gradients, num_workers, config.min_replicas_to_aggregate or 1, config.sync_engine or "ps_train")
