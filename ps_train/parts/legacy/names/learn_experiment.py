"""contrib.learn's Experiment, which learn_runner runs, and the exports of it.

    learn_runner.run(experiment_fn, run_config, schedule) --> the method of the Experiment that `schedule` names

        train_and_evaluate    what TF_CONFIG's task does: train, evaluate, serve; on one machine both of the first
        train                 training only
        continuous_eval       evaluates each new checkpoint, until there is one of `train_steps`
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator import training

from ps_train.parts.legacy.names.learn import Fitting, as_receiver_fn
from ps_train.parts.legacy.names.learn_inputs import make_input_fn
from ps_train.parts.legacy.names.learn_metrics import argument_names, of_learn, with_metrics
from ps_train.parts.legacy.names.monitors import hooks_of


class Experiment:
    """An Estimator with the data to train and evaluate it."""

    def __init__(self, estimator: Any, train_input_fn: Callable, eval_input_fn: Callable | None = None,
                 eval_metrics: Any = None, train_steps: int | None = None, eval_steps: int | None = 100,
                 train_monitors: Iterable | None = None, eval_hooks: Iterable | None = None,
                 local_eval_frequency: int | None = None, eval_delay_secs: float = 120,
                 continuous_eval_throttle_secs: float = 60, min_eval_frequency: int | None = None,
                 delay_workers_by_global_step: bool = False, export_strategies: Any = None,
                 train_steps_per_iteration: int | None = None, checkpoint_and_export: bool = False,
                 saving_listeners: Iterable | None = None, check_interval_secs: float = 5) -> None:
        """Takes contrib.learn's arguments; each checkpoint is evaluated, so how often that happens has no effect."""
        del local_eval_frequency, min_eval_frequency, delay_workers_by_global_step, train_steps_per_iteration
        del checkpoint_and_export, check_interval_secs
        is_named = getattr(estimator, "takes_names", False)
        self.estimator = with_metrics(estimator, eval_metrics)
        self.eval_metrics, self.train_steps, self.eval_steps = eval_metrics, train_steps, eval_steps
        self._train_input_fn = make_input_fn(train_input_fn, is_named=is_named)
        # An experiment that only trains has none.
        self._eval_input_fn = None if eval_input_fn is None else make_input_fn(eval_input_fn, is_named=is_named)
        self._train_hooks, self._eval_hooks = list(train_monitors or ()), list(eval_hooks or ())
        self._listeners = list(saving_listeners or ())
        self._delay_secs, self._throttle_secs = eval_delay_secs, continuous_eval_throttle_secs
        self._exporters = _as_list(export_strategies)

    def _train_spec(self) -> Any:
        return tf.estimator.TrainSpec(
            self._train_input_fn, max_steps=self.train_steps, hooks=hooks_of(self._train_hooks, self.estimator),
            saving_listeners=self._listeners)

    def _eval_spec(self, input_fn: Callable | None, name: str | None = None, exporters: Iterable = (),
                   delay_secs: float | None = None, throttle_secs: float | None = None) -> Any:
        return tf.estimator.EvalSpec(
            input_fn, steps=self.eval_steps, name=name, hooks=self._eval_hooks, exporters=list(exporters) or None,
            start_delay_secs=self._delay_secs if delay_secs is None else delay_secs,
            throttle_secs=self._throttle_secs if throttle_secs is None else throttle_secs)

    def _executor(self, eval_spec: Any, predicate: Callable | None = None) -> Any:
        """Returns what runs a task of the Estimator, until a predicate of (metrics, checkpoint path) is false."""
        listener = None if predicate is None else _Listener(predicate)
        # Only this class takes a listener, or evaluates without a TF_CONFIG that says so.
        return training._TrainingExecutor(  # noqa: SLF001
            self.estimator, self._train_spec(), eval_spec, continuous_eval_listener=listener)

    def train_and_evaluate(self) -> Any:
        """Does what TF_CONFIG's task does: a chief or worker trains, an evaluator evaluates, a ps serves.

        Returns:
          On one machine, the metrics and the results of the exports.
        """
        spec = self._eval_spec(self._eval_input_fn, exporters=self._exporters)
        result = tf.estimator.train_and_evaluate(self.estimator, self._train_spec(), spec)
        if result is not None and result[0] is None:  # an earlier run has trained all steps
            metrics = self._evaluate_now()
            result = metrics, self._export(metrics)
        return result

    local_run = run_std_server = train_and_evaluate

    def continuous_train_and_eval(self, continuous_eval_predicate_fn: Callable | None = None) -> Any:
        """The same, while the predicate of (metrics, checkpoint path) is true."""
        if continuous_eval_predicate_fn is None:
            return self.train_and_evaluate()
        spec = self._eval_spec(self._eval_input_fn, exporters=self._exporters)
        return self._executor(spec, continuous_eval_predicate_fn).run()

    def train(self, delay_secs: float | None = None) -> Any:
        """Trains only; in a cluster each task does its part, without a delay: all wait for the chief anyway.

        Returns:
          The Estimator.
        """
        del delay_secs
        config = self.estimator.config
        if not config.cluster_spec and config.task_type != "evaluator":
            return self.estimator.train(**self._train_spec()._asdict())
        has_data = self._eval_input_fn is not None  # for an evaluator
        executor = self._executor(self._eval_spec(self._eval_input_fn, exporters=self._exporters) if has_data else None)
        (executor.run_chief if config.task_type == "master" else executor.run)()  # a master evaluates, too
        return self.estimator

    def evaluate(self, delay_secs: float | None = None, name: str | None = None) -> dict:
        """Evaluates the last checkpoint once; waits so long for the first one, by default `eval_delay_secs`."""
        secs = self._delay_secs if delay_secs is None else delay_secs
        next(iter(tf.train.checkpoints_iterator(self.estimator.model_dir, timeout=secs)), None)
        return self._evaluate_now(name=name or "one_pass")

    def continuous_eval(self, delay_secs: float | None = None, throttle_delay_secs: float | None = None,
                        evaluate_checkpoint_only_once: bool = True,
                        continuous_eval_predicate_fn: Callable | None = None, name: str = "continuous") -> None:
        """Evaluates each new checkpoint until there is one of `train_steps`, and while the predicate is true."""
        del evaluate_checkpoint_only_once  # the Estimator never evaluates one twice
        spec = self._eval_spec(self._eval_input_fn, name, self._exporters, delay_secs, throttle_delay_secs)
        self._executor(spec, continuous_eval_predicate_fn).run_evaluator()

    def continuous_eval_on_train_data(self, delay_secs: float | None = None, throttle_delay_secs: float | None = None,
                                      continuous_eval_predicate_fn: Callable | None = None,
                                      name: str = "continuous_on_train_data") -> None:
        """The same on the data of the training, without exports."""
        spec = self._eval_spec(self._train_input_fn, name, (), delay_secs, throttle_delay_secs)
        self._executor(spec, continuous_eval_predicate_fn).run_evaluator()

    def test(self) -> dict:
        """Trains and evaluates one step, and exports."""
        self.estimator.train(**{**self._train_spec()._asdict(), "max_steps": None}, steps=1)
        metrics = self._evaluate_now(steps=1, name="one_pass")
        self._export(metrics)
        return metrics

    def extend_train_hooks(self, additional_hooks: Iterable) -> None:
        """Adds hooks of the training."""
        self._train_hooks.extend(additional_hooks)

    def reset_export_strategies(self, new_export_strategies: Any = None) -> list:
        """Replaces the exporters, and returns the old ones."""
        old, self._exporters = self._exporters, _as_list(new_export_strategies)
        return old

    def _evaluate_now(self, steps: int | None = None, name: str | None = None) -> dict:
        return self.estimator.evaluate(input_fn=self._eval_input_fn, steps=steps or self.eval_steps,
                                       hooks=self._eval_hooks, name=name)

    def _export(self, metrics: dict) -> list:
        folder = os.path.join(self.estimator.model_dir, "export")
        return [exporter.export(
            self.estimator, os.path.join(folder, exporter.name), self.estimator.latest_checkpoint(), metrics,
            is_the_final_export=True) for exporter in self._exporters]


class _Listener(training._ContinuousEvalListener):  # noqa: SLF001 (it has no public name)
    """Ends an evaluation when a predicate of contrib.learn is false."""

    def __init__(self, predicate: Callable) -> None:
        self._predicate, self._last = predicate, (None, None)
        self._takes_path = len(argument_names(predicate)) > 1

    def before_eval(self) -> bool:
        metrics, path = self._last
        return bool(self._predicate(metrics, checkpoint_path=path) if self._takes_path else self._predicate(metrics))

    def after_eval(self, eval_result: Any) -> bool:
        if eval_result is not None and eval_result.metrics:
            self._last = eval_result.metrics, eval_result.checkpoint_path
        return True


def _as_list(strategies: Any) -> list:
    return [strategy for strategy in (strategies if isinstance(strategies, (list, tuple)) else [strategies])
            if strategy is not None]


def run_experiment(experiment_fn: Callable, output_dir: str | None = None, schedule: str | None = None,
                   run_config: Any = None, hparams: Any = None) -> Any:
    """Creates an Experiment and runs it as TF_CONFIG's task demands, or by the method that `schedule` names.

    Args:
      experiment_fn: takes the output_dir (of the checkpoints) or, with a run_config, that and hparams.

    Raises:
      ValueError: the Experiment has no such method.
    """
    if run_config is not None:
        experiment = experiment_fn(run_config, hparams)
    elif "output_dir" in argument_names(experiment_fn):  # by name: it may be the last of several
        experiment = experiment_fn(output_dir=output_dir)
    else:
        experiment = experiment_fn(output_dir)
    schedules = {name: method for name, method in inspect.getmembers(experiment, callable) if not name.startswith("_")}
    name = schedule or "train_and_evaluate"
    if name not in schedules:
        raise ValueError(f"learn_runner.run: schedule is {name!r}; allowed: {', '.join(schedules)}")
    return schedules[name]()


class ExportStrategy(tf.estimator.Exporter):
    """Exports by a function, to a folder of a name.

    Attributes:
      name: of the folder.
      export_fn: takes the Estimator and the folder, and may take `checkpoint_path`, `eval_result` and
        `strip_default_attrs`; returns the path of the export.
      strip_default_attrs: what it gets of that name.
    """

    name = None

    def __init__(self, name: str, export_fn: Callable, strip_default_attrs: bool | None = None) -> None:
        self.name, self.export_fn, self.strip_default_attrs = name, export_fn, strip_default_attrs

    def export(self, estimator: Any, export_path: str, checkpoint_path: str | None = None, eval_result: Any = None,
               is_the_final_export: bool = True) -> Any:
        """Exports, and returns the path.

        Raises:
          ValueError: the function takes the result of an evaluation, but no checkpoint.
        """
        names = argument_names(self.export_fn)
        if "eval_result" in names and "checkpoint_path" not in names:
            raise ValueError(f"an export_fn with eval_result needs checkpoint_path, too; its arguments are {names}")
        known = {"checkpoint_path": checkpoint_path, "eval_result": eval_result,
                 "strip_default_attrs": self.strip_default_attrs}
        return self.export_fn(estimator, export_path, **{
            name: value for name, value in known.items() if name in names})


class _LatestExporter(tf.estimator.LatestExporter):
    """Exports each last evaluated checkpoint, by default with an output of a name."""

    def __init__(self, default_output: str | None, *args: Any) -> None:
        """Takes the name, and what LatestExporter takes."""
        super().__init__(*args)
        self._default_output = default_output

    def export(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Exports, and returns the path.

        Raises:
          ValueError: there is no such output; or there are several, and no name.
        """
        model = of_learn(estimator)
        if isinstance(model, Fitting):
            with model.exporting(self._default_output):
                return super().export(estimator, *args, **kwargs)
        if self._default_output is not None:
            raise ValueError(f"default_output_alternative_key={self._default_output!r} needs an Estimator of "
                             f"tf.contrib.learn; got {type(model).__name__}")
        return super().export(estimator, *args, **kwargs)


def make_export_strategy(serving_input_fn: Callable, default_output_alternative_key: str | None = None,
                         assets_extra: dict | None = None, as_text: bool = False, exports_to_keep: int | None = 5,
                         **others: Any) -> Any:
    """Returns an exporter of each last evaluated checkpoint, to the folder export/Servo.

    Args:
      serving_input_fn: makes the features of requests.
      default_output_alternative_key: of several outputs, such as those of heads, the name of the default one.
      assets_extra: name in the export -> path of a further file.
      as_text: whether the graph is text.
      exports_to_keep: as many of the last ones; all if None.
      others: without effect.
    """
    return _LatestExporter(default_output_alternative_key, "Servo", as_receiver_fn(serving_input_fn), assets_extra,
                           as_text, exports_to_keep)
