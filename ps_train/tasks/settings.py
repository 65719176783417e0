"""What the flags mean for a worker's graph, and for all workers of one training.

    Config, Cluster --> optimizer.Settings, placement.Plan, staleness.Bound
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.graph import placement, transfer
from ps_train.updates import staleness, update
from ps_train.updates.local_steps.rounds import Period

_SHARED = ("model", "dataset", "params", "optimizer", "learning_rate", "sync_replicas", "sync_engine",
           "replicas_to_aggregate", "communication_period", "communication_warmup_steps", "staleness_bound",
           "placement", "partition_bytes")
_WIRE_DTYPES = {"as_is": None, "bfloat16": tf.bfloat16}
_log = logging.getLogger(__name__)


def shared(config: Config) -> dict[str, Any]:
    """Returns name -> value of the flags that all workers of a training must have in common."""
    return {name: getattr(config, name) for name in _SHARED}


def of_updates(config: Config, cluster: Cluster) -> update.Settings:
    """Returns how updates reach the parameters.

    Raises:
      ConfigError: a flag needs to know how many workers there are, and this task does not.
    """
    return update.Settings(
        config.optimizer, config.learning_rate, _gradients_per_update(config, cluster), cluster.num_workers,
        cluster.worker_number, config.min_replicas_to_aggregate or 1,
        transfer.Wire(_WIRE_DTYPES[config.wire_dtype], config.fused_transfers),
        Period(config.communication_period, config.communication_warmup_steps, config.train_steps),
        config.beat_timeout_secs, config.sync_engine or "ps_train")


def caution(config: Config, cluster: Cluster, sparse: Sequence[str]) -> str | None:
    """Returns what to say before training about variables whose gradients are sparse, or None."""
    has_others = cluster.num_workers > 1 or cluster.is_elastic
    if not sparse or config.optimizer != "adam" or config.sync_replicas or not has_others:
        return None
    return (f"--optimizer=adam loses updates of {', '.join(sparse)}: its update by sparse gradients is not atomic, and "
            "several async workers make it at once; give --optimizer=adagrad, which loses none")


def of_placement(config: Config) -> placement.Plan:
    """Returns how variables are placed."""
    return placement.Plan(config.placement, config.partition_bytes)


def of_staleness(config: Config, cluster: Cluster) -> staleness.Bound | None:
    """Returns how far workers may be apart, or None where that is not bounded."""
    if config.staleness_bound is None:
        return None
    names = {cluster.number_of(worker): str(worker) for worker in cluster.workers}
    at_once = max(config.communication_period, config.steps_per_execution)
    return staleness.Bound(config.staleness_bound, at_once, config.beat_timeout_secs, names)


def _gradients_per_update(config: Config, cluster: Cluster) -> int | None:
    """Returns the number of gradients averaged into one update, or None for async."""
    if not config.sync_replicas:
        return None
    if cluster.is_elastic:
        raise ConfigError("--sync_replicas: the workers of an elastic cluster come and go, so nobody knows how many "
                          "gradients make an update; train without this flag, or with a fixed number of workers "
                          "(--noelastic)")
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
