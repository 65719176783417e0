"""contrib.learn.Experiment, learn_runner, RunConfig and export strategies, by `tf.estimator.train_and_evaluate`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names import learn


class Experiment:
    """An Estimator with the data to train and evaluate it."""

    def __init__(self, estimator: Any, train_input_fn: Callable, eval_input_fn: Callable, eval_metrics: Any = None,
                 train_steps: int | None = None, eval_steps: int | None = 100, train_monitors: Iterable | None = None,
                 eval_hooks: Iterable | None = None, local_eval_frequency: int | None = None,
                 eval_delay_secs: int = 120, continuous_eval_throttle_secs: int = 60,
                 min_eval_frequency: int | None = None, delay_workers_by_global_step: bool = False,
                 export_strategies: Any = None, **others: Any) -> None:
        """Takes contrib.learn's arguments; those that have no counterpart have no effect."""
        del local_eval_frequency, min_eval_frequency, delay_workers_by_global_step, others
        is_named = getattr(estimator, "takes_names", False)
        self._estimator = learn.with_metrics(estimator, eval_metrics)
        strategies = export_strategies if isinstance(export_strategies, (list, tuple)) else [export_strategies]
        self._train_spec = tf.estimator.TrainSpec(
            learn.make_input_fn(train_input_fn, is_named=is_named), max_steps=train_steps,
            hooks=list(train_monitors or ()))
        self._eval_spec = tf.estimator.EvalSpec(
            learn.make_input_fn(eval_input_fn, is_named=is_named), steps=eval_steps, hooks=list(eval_hooks or ()),
            exporters=[strategy for strategy in strategies if strategy is not None],
            start_delay_secs=eval_delay_secs, throttle_secs=continuous_eval_throttle_secs)

    @property
    def estimator(self) -> Any:
        """The Estimator."""
        return self._estimator

    def train_and_evaluate(self) -> Any:
        """Does what TF_CONFIG's task does: a chief or worker trains, an evaluator evaluates, a ps serves."""
        return tf.estimator.train_and_evaluate(self._estimator, self._train_spec, self._eval_spec)

    local_run = run_std_server = continuous_train_and_eval = train_and_evaluate

    def train(self, delay_secs: float | None = None) -> Any:
        """Does the same; no task needs a delay, since each waits for the chief."""
        del delay_secs
        return self.train_and_evaluate()

    def extend_train_hooks(self, additional_hooks: Iterable) -> None:
        """Adds hooks of the training."""
        self._train_spec = self._train_spec._replace(hooks=(*self._train_spec.hooks, *additional_hooks))

    def evaluate(self, delay_secs: float | None = None) -> dict:
        """Evaluates the last checkpoint once."""
        del delay_secs
        return self._estimator.evaluate(input_fn=self._eval_spec.input_fn, steps=self._eval_spec.steps)


def run_experiment(experiment_fn: Callable, output_dir: str | None = None, schedule: str | None = None,
                   run_config: Any = None, hparams: Any = None) -> Any:
    """Makes an Experiment and runs it as TF_CONFIG's task demands, or as `schedule` says.

    Args:
      experiment_fn: takes the output_dir, or, if a run_config is given, that and hparams.
      output_dir: the folder of the checkpoints.
      schedule: the name of a method of Experiment; only "evaluate" makes a difference.
      run_config: with its model_dir.
      hparams: for the experiment_fn.
    """
    experiment = experiment_fn(output_dir) if run_config is None else experiment_fn(run_config, hparams)
    return getattr(experiment, schedule or "train_and_evaluate")()


class LearnRunConfig(tf.estimator.RunConfig):
    """The Estimator's RunConfig, with contrib.learn's arguments; `master`, `num_cores` and the like have no effect.

    In a TF_CONFIG that has neither a chief nor a master, worker 0 is the chief. The Estimator refuses that.
    """

    environment = "cloud"

    def __init__(self, master: str | None = None, num_cores: int = 0, log_device_placement: bool = False,
                 gpu_memory_fraction: float = 1.0, tf_random_seed: int | None = None, save_summary_steps: int = 100,
                 save_checkpoints_secs: int | None = None, save_checkpoints_steps: int | None = None,
                 keep_checkpoint_max: int = 5, keep_checkpoint_every_n_hours: float = 10000,
                 evaluation_master: str = "", model_dir: str | None = None, session_config: Any = None,
                 **others: Any) -> None:
        del master, num_cores, evaluation_master, others
        if session_config is None and (log_device_placement or gpu_memory_fraction < 1):
            session_config = tf.ConfigProto(
                log_device_placement=log_device_placement, allow_soft_placement=True,
                gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction))
        if save_checkpoints_steps is None and save_checkpoints_secs is None:
            save_checkpoints_secs = 600
        tf_config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        with _without_tf_config(not _has_chief(tf_config)):
            super().__init__(
                model_dir=model_dir, tf_random_seed=tf_random_seed, save_summary_steps=save_summary_steps,
                save_checkpoints_secs=save_checkpoints_secs, save_checkpoints_steps=save_checkpoints_steps,
                keep_checkpoint_max=keep_checkpoint_max, session_config=session_config,
                keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours)
        if not _has_chief(tf_config):
            self._take_cluster(tf_config["cluster"], tf_config.get("task", {}))

    def _take_cluster(self, cluster: dict, task: dict) -> None:
        self._cluster_spec = tf.train.ClusterSpec(cluster)
        self._task_type, self._task_id = task.get("type", "worker"), int(task.get("index", 0))
        self._master = "grpc://" + self._cluster_spec.task_address(self._task_type, self._task_id)
        self._is_chief = (self._task_type, self._task_id) == ("worker", 0)
        self._num_ps_replicas = len(cluster.get("ps", ()))
        self._num_worker_replicas = len(cluster.get("worker", ()))
        self._global_id_in_cluster = self._task_id + (self._num_worker_replicas if self._task_type == "ps" else 0)
        self._maybe_overwrite_session_config_for_distributed_training()

    @property
    def task(self) -> int:
        """The index of this task, as the first versions called it."""
        return self.task_id


def _has_chief(tf_config: dict) -> bool:
    """Returns whether the Estimator understands a TF_CONFIG."""
    cluster = tf_config.get("cluster", {})
    return not cluster or "chief" in cluster or "master" in cluster


class _without_tf_config:  # noqa: N801 (a context manager)
    def __init__(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._kept: str | None = None

    def __enter__(self) -> None:
        if self._is_wanted:
            self._kept = os.environ.pop("TF_CONFIG", None)

    def __exit__(self, *error: object) -> None:
        if self._kept is not None:
            os.environ["TF_CONFIG"] = self._kept


class InputFnOps(NamedTuple):
    """What a serving input function returned: tensors of features, labels, and of the request."""

    features: Any
    labels: Any
    default_inputs: Any


def make_export_strategy(serving_input_fn: Callable, default_output_alternative_key: str | None = None,
                         assets_extra: dict | None = None, as_text: bool = False, exports_to_keep: int | None = 5,
                         **others: Any) -> Any:
    """Returns an exporter of each last evaluated checkpoint, to the folder export/Servo."""
    del default_output_alternative_key, others
    return tf.estimator.LatestExporter("Servo", lambda: _receiver(serving_input_fn()), assets_extra, as_text,
                                       exports_to_keep)


def _receiver(made: Any) -> Any:
    """Returns the ServingInputReceiver of InputFnOps; what is one already stays."""
    if isinstance(made, InputFnOps):
        return tf.estimator.export.ServingInputReceiver(made.features, made.default_inputs)
    return made


def build_parsing_serving_input_fn(feature_spec: dict, default_batch_size: int | None = None) -> Callable:
    """Returns a serving input function for requests of serialized tf.Example."""
    def serving_input_fn() -> InputFnOps:
        serialized = tf.placeholder(tf.string, [default_batch_size], "input_example_tensor")
        return InputFnOps(tf.io.parse_example(serialized, feature_spec), None, {"examples": serialized})
    return serving_input_fn


def build_default_serving_input_fn(features: dict, default_batch_size: int | None = None) -> Callable:
    """Returns a serving input function for requests of the features themselves, whose tensors give dtype and shape."""
    def serving_input_fn() -> InputFnOps:
        made = {name: tf.placeholder(tensor.dtype, [default_batch_size, *tensor.shape.as_list()[1:]], name)
                for name, tensor in features.items()}
        return InputFnOps(made, None, made)
    return serving_input_fn
