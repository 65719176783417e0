"""contrib.learn.Experiment and learn_runner, by `tf.estimator.train_and_evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.contrib.learn import inputs, metrics


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
        self._estimator = metrics.with_metrics(estimator, eval_metrics)
        strategies = export_strategies if isinstance(export_strategies, (list, tuple)) else [export_strategies]
        self._train_spec = tf.estimator.TrainSpec(
            inputs.make_input_fn(train_input_fn, is_named=is_named), max_steps=train_steps,
            hooks=list(train_monitors or ()))
        self._eval_spec = tf.estimator.EvalSpec(
            inputs.make_input_fn(eval_input_fn, is_named=is_named), steps=eval_steps, hooks=list(eval_hooks or ()),
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
