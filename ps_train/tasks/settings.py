"""What the flags mean for a worker. No module outside `tasks/` sees a Config.

    Config, Cluster --> WorkerSettings(updates, placement, loop, sessions, ...)
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.config import fields, groups
from ps_train.config.optimizer import RuleFlags, last_decay_step, parse_init_map
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.graph import devices, transfer
from ps_train.graph.placement import PlacementPlan
from ps_train.graph.shaping import Knobs, Schedule
from ps_train.runtime.waits import Timeouts
from ps_train.storage.saver import SaveSchedule
from ps_train.training.loop import LoopSettings
from ps_train.training.recovery import SessionSettings
from ps_train.updates import staleness
from ps_train.updates.update import Period, UpdateSettings

_WIRE_DTYPES = {"as_is": None, "bfloat16": tf.bfloat16}
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class WorkerSettings:
    """All that a worker was told.

    Attributes:
      device: where it computes, such as "/job:worker/task:0/gpu:0".
      num_gpus: GPUs of this machine, or None for those that are there.
      uses_existing_servers: whether its server and the ps run already, and go on after it.
      train_dir: folder of checkpoints and summaries.
      updates: how updates reach the parameters.
      placement: how variables are placed on the ps.
      loop: when the step loop does what, and how far this worker may run ahead.
      sessions: when the chief saves, and how a lost session is recovered.
      timeouts: the bounds of its waits.
      seed: graph-level seed, or None.
      steps_per_execution: single steps in one session run.
      logs_placement: whether the chief prints which variable is on which ps.
      accepted_params: parameters that may differ from those of the training in the folder.
      shared_flags: name -> value of the flags that all workers of a training must have in common.
      init_checkpoint: the checkpoint whose values a new training begins with, or "".
      init_map: pairs of a name in that checkpoint and a name in the model.
      command: the flags that this task was given, as on a command line.
    """

    device: str
    num_gpus: int | None
    uses_existing_servers: bool
    train_dir: str
    updates: UpdateSettings
    placement: PlacementPlan
    loop: LoopSettings
    sessions: SessionSettings
    timeouts: Timeouts
    seed: int | None
    steps_per_execution: int
    logs_placement: bool
    accepted_params: Sequence[str]
    shared_flags: Mapping[str, Any]
    init_checkpoint: str
    init_map: Sequence[tuple[str, str]]
    command: Sequence[str]


def worker_settings(config: Config, cluster: Cluster) -> WorkerSettings:
    """Returns what a worker was told.

    Raises:
      ConfigError: a flag needs to know how many workers there are, and this task does not.
    """
    return WorkerSettings(
        device=_device(config, cluster),
        num_gpus=config.num_gpus,
        uses_existing_servers=config.existing_servers,
        train_dir=config.train_dir,
        updates=update_settings(config, cluster),
        placement=PlacementPlan(strategy=config.placement, partition_bytes=config.partition_bytes),
        loop=_loop_settings(config, cluster),
        sessions=SessionSettings(train_dir=config.train_dir, saves=_save_schedule(config), timeouts=config.timeouts),
        timeouts=config.timeouts,
        seed=config.seed,
        steps_per_execution=config.steps_per_execution,
        logs_placement=config.log_placement,
        accepted_params=groups.parse_accepted("--accept_params", config.accept_params),
        shared_flags=fields.shared(config),
        init_checkpoint=config.init_checkpoint,
        init_map=parse_init_map(config.init_map),
        command=fields.as_flags(config, config.given),
    )


def update_settings(config: Config, cluster: Cluster) -> UpdateSettings:
    """Returns how updates reach the parameters.

    Raises:
      ConfigError: a flag needs to know how many workers there are, and this task does not.
    """
    return UpdateSettings(
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        replicas_to_aggregate=_gradients_per_update(config, cluster),
        num_workers=cluster.num_workers,
        worker=cluster.worker_number,
        min_replicas_to_aggregate=config.min_replicas_to_aggregate or 1,
        wire=transfer.Wire(dtype=_WIRE_DTYPES[config.wire_dtype], is_fused=config.fused_transfers),
        period=Period(steps=config.communication_period, warmup_steps=config.communication_warmup_steps,
                      train_steps=config.train_steps),
        heartbeat_timeout_secs=config.beat_timeout_secs,
        sync_engine=config.sync_engine or "ps_train",
        decays_all_rows=config.adam_decays_all_rows,
        knobs=_knobs(config),
    )


def _knobs(config: Config) -> Knobs:
    schedule = Schedule(
        kind=config.learning_rate_schedule, warmup_steps=config.warmup_steps, decay_steps=last_decay_step(config),
        decay_rate=config.decay_rate or 1.0, decay_power=config.decay_power or 1.0, end=config.end_learning_rate or 0.0,
        boundaries=config.boundaries, values=config.rates)
    return Knobs(options=tuple(config.optimizer_options.items()), schedule=schedule, clip_norm=config.clip_norm,
                 weight_decay=config.weight_decay, given=tuple(sorted(config.given & {*fields.rules(RuleFlags)})))


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


def _loop_settings(config: Config, cluster: Cluster) -> LoopSettings:
    return LoopSettings(
        worker_name=cluster.task.name,
        train_steps=config.train_steps,
        batch_size=config.batch_size,
        log_steps=config.log_steps,
        save_summaries_steps=config.save_summaries_steps,
        step_timeout_secs=config.step_timeout_secs,
        on_nan=config.on_nan,
        bound=staleness_bound(config, cluster),
    )


def _save_schedule(config: Config) -> SaveSchedule:
    return SaveSchedule(
        every_secs=config.save_model_secs,
        every_steps=config.save_model_steps,
        keep_max=config.keep_checkpoint_max,
        timeout_secs=config.save_timeout_secs,
    )


def _device(config: Config, cluster: Cluster) -> str:
    """Returns where this worker computes; a server that is there already may have GPUs that this machine has not."""
    asked_for = config.num_gpus if config.existing_servers else None
    has_gpu = devices.gpu_index(cluster, config.num_gpus) is not None if asked_for is None else asked_for > 0
    return cluster.task.device + ("/gpu:0" if has_gpu else "/cpu:0")


def _gradients_per_update(config: Config, cluster: Cluster) -> int | None:
    """Returns the number of gradients averaged into one update, or None for async."""
    if not config.sync_replicas:
        return None
    if cluster.is_elastic:
        raise ConfigError("--sync_replicas: the workers of an elastic cluster join and leave, so the number of "
                          "gradients in an update is unknown; train without this flag, or with a fixed number of "
                          "workers (--noelastic)")
    num_workers = cluster.num_workers
    if len(cluster.workers) < num_workers:
        raise ConfigError(f"--sync_replicas: TF_CONFIG names {len(cluster.workers)} of {num_workers} workers to this "
                          "task, so it cannot know how many gradients there are; name all, or train without this flag")
    gradients = config.replicas_to_aggregate or num_workers
    if (config.min_replicas_to_aggregate or 1) > gradients:
        raise ConfigError(f"--min_replicas_to_aggregate: got {config.min_replicas_to_aggregate}; allowed: at most the "
                          f"{gradients} gradients of an update, one from each worker")
    if gradients > num_workers:
        _log.warning("--replicas_to_aggregate=%d is more than the %d workers: each computes several mini-batches for "
                     "an update", gradients, num_workers)
    return gradients
