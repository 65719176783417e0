"""`RunConfig`: the Estimator's, which knows the chief by either name, and contrib.learn's, with older arguments."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.cluster.tf_config import chief_listed_again
from ps_train.errors import ConfigError
from ps_train.parts.legacy.classic.script_cluster import addresses_of

_log = logging.getLogger(__name__)


def know_chief_as_worker_0() -> None:
    """Makes the task that TF_CONFIG calls worker 0 the Estimator's chief, if the chief has the same address.

    The Estimator would wait for a chief that is this process.
    """
    read = tf.estimator.RunConfig._init_distributed_setting_from_environment_var  # noqa: SLF001 (no public place)

    @functools.wraps(read)
    def read_with_chief(config: Any, tf_config: dict) -> None:
        task, chief_job = tf_config.get("task", {}), chief_listed_again(addresses_of(tf_config.get("cluster", {})))
        if chief_job and (task.get("type"), str(task.get("index"))) == ("worker", "0"):
            tf_config = {**tf_config, "task": {**task, "type": chief_job}}
        read(config, tf_config)

    tf.estimator.RunConfig._init_distributed_setting_from_environment_var = read_with_chief  # noqa: SLF001


class LearnRunConfig(tf.estimator.RunConfig):
    """The Estimator's RunConfig, with contrib.learn's arguments.

    In a TF_CONFIG that has neither a chief nor a master, worker 0 is the chief. The Estimator refuses that.
    """

    environment = "cloud"

    def __init__(self, master: str | None = None, num_cores: int = 0, log_device_placement: bool = False,
                 gpu_memory_fraction: float = 1.0, tf_random_seed: int | None = None, save_summary_steps: int = 100,
                 save_checkpoints_secs: int | None = None, save_checkpoints_steps: int | None = None,
                 keep_checkpoint_max: int = 5, keep_checkpoint_every_n_hours: float = 10000,
                 log_step_count_steps: int = 100, protocol: str | None = None, evaluation_master: str = "",
                 model_dir: str | None = None, session_config: Any = None, **others: Any) -> None:
        if session_config is None and (log_device_placement or gpu_memory_fraction < 1 or num_cores):
            session_config = tf.ConfigProto(
                log_device_placement=log_device_placement, allow_soft_placement=True,
                inter_op_parallelism_threads=num_cores, intra_op_parallelism_threads=num_cores,
                gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction))
        if save_checkpoints_steps is None and save_checkpoints_secs is None:
            save_checkpoints_secs = 600
        tf_config = _with_index(json.loads(os.environ.get("TF_CONFIG") or "{}"))
        with _tf_config_set_to(tf_config if _has_chief(tf_config) else None):
            super().__init__(
                model_dir=model_dir, tf_random_seed=tf_random_seed, save_summary_steps=save_summary_steps,
                save_checkpoints_secs=save_checkpoints_secs, save_checkpoints_steps=save_checkpoints_steps,
                keep_checkpoint_max=keep_checkpoint_max, session_config=session_config,
                keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
                log_step_count_steps=log_step_count_steps)
        if not _has_chief(tf_config):
            place(self, tf_config)

    @property
    def tf_config(self) -> tf.ConfigProto:
        """The sessions' configuration, which a script may change."""
        if self._session_config is None:
            self._session_config = tf.ConfigProto(allow_soft_placement=True)
        return self._session_config

    @property
    def task(self) -> int:
        """The index of this task, as the first versions called it."""
        return self.task_id


def drop_parameter_server_strategy(config: tf.estimator.RunConfig, tf_config: dict) -> None:
    """Makes a RunConfig with ParameterServerStrategy one without a strategy.

    Under this strategy the Estimator of TensorFlow 1 did what it does without one: each worker trains its own graph
    asynchronously, with the variables on the ps. But worker 0 could be the chief, and an `input_fn` gets its share.

    Raises:
      ConfigError: it is to train in a cluster without a ps.
    """
    for name in ("train_distribute", "eval_distribute"):
        if type(getattr(config, name)).__name__.startswith("ParameterServerStrategy"):
            vars(config).update({f"_{name}": None, f"_had_{name}": True})
            _log.info("RunConfig: %s=ParameterServerStrategy is how an Estimator works without a strategy", name)
    cluster = tf_config.get("cluster")
    if hasattr(config, "_had_train_distribute") and cluster and "ps" not in cluster:
        raise ConfigError("strategy_without_ps", "RunConfig: got ParameterServerStrategy, and TF_CONFIG has no ps; "
                          "allowed: a cluster with a ps, as `ps_train launch run --num_ps=1` starts it, or "
                          "MultiWorkerMirroredStrategy, which needs none")


def place(config: tf.estimator.RunConfig, tf_config: dict) -> None:
    """Gives a RunConfig the cluster and the task of TF_CONFIG, where worker 0 is the chief if there is none."""
    if tf_config.get("task", {}).get("type") == "evaluator" and not _has_chief(tf_config):
        cluster = tf_config["cluster"]  # which the Estimator refuses without a chief, even for an evaluator
        tf_config = {**tf_config, "cluster": {
            **cluster, "chief": list(cluster["worker"])[:1], "worker": list(cluster["worker"])[1:]}}
    if _has_chief(tf_config):
        config._init_distributed_setting_from_environment_var(tf_config)  # noqa: SLF001
    else:
        take_cluster(config, tf_config["cluster"], tf_config.get("task", {}))
    config._maybe_overwrite_session_config_for_distributed_training()  # noqa: SLF001


def take_cluster(config: tf.estimator.RunConfig, cluster: dict, task: dict) -> None:
    """Gives a RunConfig a cluster and a task; worker 0 is the chief if there is none."""
    spec, job, index = tf.train.ClusterSpec(cluster), task.get("type", "worker"), int(task.get("index", 0))
    chiefs, workers = len(cluster.get("chief", ())), len(cluster.get("worker", ()))
    in_cluster = job in cluster
    vars(config).update(
        _cluster_spec=spec, _task_type=job, _task_id=index, _service=None, _evaluation_master="",
        _master="grpc://" + spec.task_address(job, index) if in_cluster else "",
        _is_chief=(job, index) == (("chief" if chiefs else "worker"), 0), _num_ps_replicas=len(cluster.get("ps", ())),
        _num_worker_replicas=chiefs + workers,
        _global_id_in_cluster=index + {"worker": chiefs, "ps": chiefs + workers}.get(job, 0))


def share_input(estimator_class: Any) -> None:
    """Lets an Estimator whose ParameterServerStrategy was dropped call its `input_fn` as under the strategy.

    It gets an InputContext, and may return a function that returns the tensors.
    """
    call = estimator_class._call_input_fn  # noqa: SLF001 (no public place)
    if hasattr(call, "__wrapped__"):  # done before
        return

    @functools.wraps(call)
    def call_input_fn(self: Any, input_fn: Any, mode: str, input_context: Any = None) -> Any:
        config = self._config
        is_dropped = input_context is None and hasattr(config, f"_had_{mode}_distribute")
        if is_dropped and mode == "train":
            input_context = tf.distribute.InputContext(config.num_worker_replicas, config.global_id_in_cluster)
        elif is_dropped:
            input_context = tf.distribute.InputContext()
        found = call(self, input_fn, mode, input_context)
        if not is_dropped or not callable(found):
            return found
        with tf.device("/cpu:0"):
            return found()

    estimator_class._call_input_fn = call_input_fn  # noqa: SLF001


def _has_chief(tf_config: dict) -> bool:
    """Returns whether the Estimator understands a TF_CONFIG."""
    cluster = tf_config.get("cluster", {})
    return not cluster or "chief" in cluster or "master" in cluster


def _with_index(tf_config: dict) -> dict:
    """Returns a TF_CONFIG whose task has an index, which for contrib.learn was 0 by default."""
    task = tf_config.get("task", {})
    return {**tf_config, "task": {"index": 0, **task}} if "type" in task else tf_config


@contextlib.contextmanager
def _tf_config_set_to(tf_config: dict | None) -> Iterator[None]:
    """Sets TF_CONFIG, or removes it for None, while the Estimator reads it."""
    value = os.environ.pop("TF_CONFIG", None)
    try:
        if tf_config is not None:
            os.environ["TF_CONFIG"] = json.dumps(tf_config)
        yield
    finally:
        os.environ.pop("TF_CONFIG", None)
        if value is not None:
            os.environ["TF_CONFIG"] = value
