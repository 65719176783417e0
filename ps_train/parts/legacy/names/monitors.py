"""`tf.contrib.learn.monitors`: what `fit` called before and after steps, as hooks.

    BaseMonitor, EveryN    of which scripts derive their own
    ValidationMonitor      evaluates new checkpoints while the chief trains, and may end the training
    the others             hooks of tf.train, with the arguments that they had
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

_log = logging.getLogger(__name__)
NanLossDuringTrainingError = tf.train.NanLossDuringTrainingError


class BaseMonitor:
    """Called by the chief before and after each step; a step is the value that the global step will have."""

    run_on_all_workers = False

    def __init__(self) -> None:
        self._estimator: Any = None
        self._max_steps: int | None = None

    def set_estimator(self, estimator: Any) -> None:
        """Says whose training it is."""
        self._estimator = estimator

    def begin(self, max_steps: int | None = None) -> None:
        """Is called before the first step, when the graph is made."""
        self._max_steps = max_steps

    def epoch_begin(self, epoch: int) -> None:
        """Is here for classes derived from this one; nothing calls it, as contrib.learn did not."""

    def epoch_end(self, epoch: int) -> None:
        """Is here for classes derived from this one; nothing calls it, as contrib.learn did not."""

    def step_begin(self, step: int) -> list:
        """Returns the tensors, or their names, whose values `step_end` gets."""
        return []

    def step_end(self, step: int, output: dict) -> bool:
        """Returns whether the training ends."""
        return False

    def post_step(self, step: int, session: Any) -> None:
        """Is called after each step, with a session."""

    def end(self, session: Any = None) -> None:
        """Is called after the last step."""


class EveryN(BaseMonitor):
    """Called in the first steps, and then in every n-th: a derived class has `every_n_step_end`, say."""

    def __init__(self, every_n_steps: int = 100, first_n_steps: int = 1) -> None:
        super().__init__()
        self._every_n_steps, self._first_n_steps = every_n_steps, first_n_steps
        self._last_successful_step: int | None = None
        self._last_active_step = 0
        self._is_active = False

    def every_n_step_begin(self, step: int) -> list:
        """Returns the tensors, or their names, whose values `every_n_step_end` gets."""
        return []

    def every_n_step_end(self, step: int, outputs: dict) -> bool:
        """Returns whether the training ends."""
        return False

    def every_n_post_step(self, step: int, session: Any) -> None:
        """Is called after such a step, and after the last one."""

    def step_begin(self, step: int) -> list:
        super().step_begin(step)
        self._is_active = step <= self._first_n_steps or step >= self._every_n_steps + self._last_active_step
        return self.every_n_step_begin(step) if self._is_active else []

    def step_end(self, step: int, output: dict) -> bool:
        super().step_end(step, output)
        return self.every_n_step_end(step, output) if self._is_active else False

    def post_step(self, step: int, session: Any) -> None:
        super().post_step(step, session)
        if self._is_active:
            self.every_n_post_step(step, session)
            self._last_active_step = step
        self._last_successful_step = step

    def end(self, session: Any = None) -> None:
        super().end(session)
        if self._last_successful_step not in (None, self._last_active_step):
            self.every_n_post_step(self._last_successful_step, session)


class ValidationMonitor(EveryN):
    """Evaluates a new checkpoint, if there is one, every n steps.

    With `early_stopping_rounds`, it ends the training after so many steps in which a metric has not become better.

    Attributes:
      early_stopped: whether it has.
      best_step, best_value, best_metrics: when the metric was best, and all metrics then.
    """

    def __init__(self, x: Any = None, y: Any = None, input_fn: Any = None, batch_size: int | None = None,
                 eval_steps: int | None = None, every_n_steps: int = 100, metrics: Any = None, hooks: Any = None,
                 early_stopping_rounds: int | None = None, early_stopping_metric: str = "loss",
                 early_stopping_metric_minimize: bool = True, name: str | None = None,
                 check_interval_secs: float | None = 5) -> None:
        super().__init__(every_n_steps, first_n_steps=-1)
        if x is None and input_fn is None:
            raise ValueError("ValidationMonitor: x or input_fn must be given")
        data = {"x": x, "y": y, "input_fn": input_fn, "batch_size": batch_size, "metrics": metrics}
        self._arguments = {key: value for key, value in data.items() if value is not None}
        self._arguments.update(steps=eval_steps, hooks=hooks, name=name)
        self._rounds, self._metric = early_stopping_rounds, early_stopping_metric
        self._is_smaller_better, self._interval_secs = early_stopping_metric_minimize, check_interval_secs
        self._last_path: str | None = None
        self._looked_secs: float | None = None
        self.early_stopped, self.best_step, self.best_value, self.best_metrics = False, None, None, None

    def every_n_step_end(self, step: int, outputs: dict) -> bool:
        super().every_n_step_end(step, outputs)
        now_secs = time.monotonic()
        if None not in (self._looked_secs, self._interval_secs) and now_secs - self._looked_secs <= self._interval_secs:
            return False
        self._looked_secs = now_secs
        path = tf.train.latest_checkpoint(self._estimator.model_dir)
        if path in (None, self._last_path):
            return False
        self._last_path = path
        metrics = self._estimator.evaluate(**self._arguments)
        _log.info("Validation (step %d): %s", step, ", ".join(f"{key} = {value}" for key, value in metrics.items()))
        return self._rounds is not None and self._ends(step, metrics)

    def _ends(self, step: int, metrics: dict) -> bool:
        """Returns whether the metric has not become better for too long.

        Raises:
          ValueError: it is not among the metrics.
        """
        if self._metric not in metrics:
            raise ValueError(f"ValidationMonitor: early_stopping_metric is {self._metric!r}; the metrics are "
                             f"{', '.join(sorted(metrics))}")
        value = metrics[self._metric]
        if self.best_step is None or (value < self.best_value if self._is_smaller_better else value > self.best_value):
            self.best_step, self.best_value, self.best_metrics = step, value, dict(metrics)
        self.early_stopped = step - self.best_step >= self._rounds
        if self.early_stopped:
            _log.info("Stopping. Best step: %d with %s = %s.", self.best_step, self._metric, self.best_value)
        return self.early_stopped


class _Hook(tf.train.SessionRunHook):
    """Calls monitors."""

    def __init__(self, monitors: list) -> None:
        self._monitors = monitors
        self._step: int | None = None

    def begin(self) -> None:
        self._step, self._counter = None, tf.train.get_global_step()
        for monitor in self._monitors:
            monitor.begin(max_steps=None)

    def before_run(self, run_context: Any) -> tf.train.SessionRunArgs:
        if self._step is None:
            self._step = int(run_context.session.run(self._counter)) + 1
        wanted = [tensor for monitor in self._monitors for tensor in monitor.step_begin(self._step) or ()]
        return tf.train.SessionRunArgs(dict(_named(tensor) for tensor in wanted))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if any([monitor.step_end(self._step, run_values.results) for monitor in self._monitors]):
            run_context.request_stop()
        for monitor in self._monitors:
            monitor.post_step(self._step, run_context.session)
        # A run of its own: within that of the step, it may be read before or after the step.
        self._step = int(run_context.session.run(self._counter)) + 1

    def end(self, session: Any) -> None:
        for monitor in self._monitors:
            monitor.end(**({"session": session} if "session" in inspect.signature(monitor.end).parameters else {}))


def _named(tensor: Any) -> tuple[str, Any]:
    """Returns the name by which a monitor finds a value, the one that it gave, and the tensor of the graph."""
    if not isinstance(tensor, str):
        return tensor.name, tensor
    return tensor, tf.get_default_graph().as_graph_element(tensor if ":" in tensor else f"{tensor}:0")


def hooks_of(monitors: Iterable | None, estimator: Any) -> list:
    """Returns hooks for monitors and hooks; monitors are the chief's, unless they run on all workers."""
    given = list(monitors or ())
    hooks = [one for one in given if isinstance(one, tf.train.SessionRunHook)]
    others = [one for one in given if one not in hooks and (estimator.config.is_chief or one.run_on_all_workers)]
    for monitor in others:
        monitor.set_estimator(estimator)
    return [*hooks, *([_Hook(others)] if others else [])]


def PrintTensor(tensor_names: Any, every_n: int = 100, first_n: int = 1) -> Any:  # noqa: N802 (TensorFlow's name)
    """`tf.train.LoggingTensorHook`."""
    del first_n
    return tf.train.LoggingTensorHook(tensor_names, every_n_iter=every_n)


def SummarySaver(summary_op: Any, save_steps: int = 100, output_dir: str | None = None,  # noqa: N802
                 summary_writer: Any = None, scaffold: Any = None) -> Any:
    """`tf.train.SummarySaverHook`, whose arguments have another order."""
    return tf.train.SummarySaverHook(save_steps, None, output_dir, summary_writer, scaffold, summary_op)


def _step_counter(every_n_steps: int = 100, output_dir: str | None = None, summary_writer: Any = None) -> Any:
    """`tf.train.StepCounterHook`, whose second argument is another one."""
    return tf.train.StepCounterHook(every_n_steps, output_dir=output_dir, summary_writer=summary_writer)


def NanLoss(loss_tensor: Any, every_n_steps: int = 100, fail_on_nan_loss: bool = True) -> Any:  # noqa: N802
    """`tf.train.NanTensorHook`, which looks at each step."""
    del every_n_steps
    return tf.train.NanTensorHook(loss_tensor, fail_on_nan_loss)


StepCounter, StopAtStep, CheckpointSaver = _step_counter, tf.train.StopAtStepHook, tf.train.CheckpointSaverHook
