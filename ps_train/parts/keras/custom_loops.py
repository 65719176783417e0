"""Training by a loop of the plug-in instead of Model.fit: by its `train_step`, or by its `train`.

    train_step   strategy.run(train_step) in a tf.function; with parameter_server closures for ClusterCoordinator
    train        the whole loop; it reports each step by run.advance
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import tensorflow as tf
import tf_keras

from ps_train.errors import DataError, UserCodeError
from ps_train.parts.keras import callbacks, inputs
from ps_train.parts.keras.fitting import ModelTraining, ScheduledSteps, StepCounter, ValidationCallback, is_due

_MAX_SCHEDULED = 100  # closures between two checks for the end, if no progress lines are logged
_log = logging.getLogger(__name__)


class CustomRun(StepCounter):
    """The argument `run` of a plug-in's `train(strategy, model, run)`: the data, and methods to report progress.

    Attributes:
      params: the model's parameters.
      dataset: batches of (features, labels), without end if input_fn repeats: a distributed dataset or, with
        parameter_server, a dataset on each worker, whose `iter` is an argument of coordinator.schedule.
      coordinator: the ClusterCoordinator of parameter_server, else None.
      step: the global step.
      train_steps: the global step at which training ends.
    """

    def __init__(self, training: ModelTraining) -> None:
        context, strategy, _, plan, self._feed, _ = training
        self._strategy = strategy
        config, feed = context.config, self._feed
        super().__init__(training, config.train_steps, log_period=config.log_steps,
                         save_period=config.save_model_steps or plan.steps_per_epoch)
        self.params: Mapping[str, Any] = context.plugins.model_params
        self._validation_period = plan.steps_per_epoch * config.validation_epochs
        self._scheduled = ScheduledSteps.of(training)
        self.coordinator = None
        if config.strategy == "parameter_server":
            self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
            self.dataset = self.coordinator.create_per_worker_dataset(lambda: feed.training.dataset_fn(None))
        else:
            self.dataset = strategy.experimental_distribute_dataset(feed.training)

    @property
    def is_done(self) -> bool:
        """Whether training is at its end."""
        return self.step >= self.train_steps

    def advance(self, loss: Any, num_steps: int = 1) -> None:
        """Reports completed steps: logs, saves and validates if that is due.

        Each of several workers makes the same calls. With parameter_server no closure may be pending.

        Args:
          loss: of the last step, a number or scalar tensor; it is read only if it is logged.

        Raises:
          StoppedError: the process was asked to stop; do not catch it.
        """
        previous_step = self.step
        self.count(num_steps, loss)
        if is_due(self._validation_period, previous_step, self.step):
            self.validate()
        self.check_stop()

    def steps_until_due(self) -> int:
        """Returns the steps until something is due: a progress line, a checkpoint, a validation, the end."""
        periods = [self._log_period or _MAX_SCHEDULED, self._save_period, self._validation_period]
        return min(self.train_steps - self.step, *(period - self.step % period for period in periods if period))

    def validate(self) -> dict[str, float]:
        """Returns the model's metrics on the held-out data; each of several workers calls it, and gets the same."""
        beats = ValidationCallback(self, self._scheduled, self._feed.validation_steps)
        values = self._model.evaluate(self._feed.validation, steps=self._feed.validation_steps, verbose=0,
                                      return_dict=True, callbacks=[beats])
        if self._context.config.strategy == "multi_worker_mirrored":
            values = callbacks.MeanOverWorkers(self._strategy)(values)
        self.beat()
        if self._context.is_chief:
            _log.info("step %d, on held-out data: %s", self.step,
                      ", ".join(f"{name} {value:.4f}" for name, value in callbacks.single_values(values).items()))
        return values


def train_by_loop(training: ModelTraining) -> None:
    """Trains by the plug-in's loop up to --train_steps, and saves; raises the same errors as `fit`."""
    context, strategy, model, *_ = training
    plugin, config = context.plugins.model, context.config
    run = CustomRun(training)
    first_step = run.step
    if context.is_chief:
        _log.info("the loop of %s: from step %d to step %d", plugin.name, first_step, run.train_steps)
    if plugin.train is not None:
        plugin.train(strategy=strategy, model=model, run=run)
    else:
        try:
            _repeat_train_step(run, _execution(strategy, model, plugin.train_step), config.steps_per_execution)
        except (tf.errors.OutOfRangeError, StopIteration) as error:
            if context.cluster is None and run.step > first_step:
                run.save(is_last=True)
            raise inputs.data_ended(context.plugins.dataset.name, run.step, run.train_steps) from error
    if run.step == first_step:
        raise DataError("no_step_reported",
                        f"{plugin.name}.train reported no step: call run.advance(loss) after each one")
    run.save(is_last=True)


def _repeat_train_step(run: CustomRun, execute: Callable[..., tf.Tensor], max_steps: int) -> None:
    batches = iter(run.dataset)
    while not run.is_done:
        if run.coordinator is None:
            num_steps = min(max_steps, run.train_steps - run.step)
            loss = execute(batches, num_steps)
        else:  # closures up to the next progress line, checkpoint or validation
            num_steps = run.steps_until_due()
            sizes = [min(max_steps, num_steps - done) for done in range(0, num_steps, max_steps)]
            for closure in [run.coordinator.schedule(execute, args=(batches, size)) for size in sizes]:
                loss = closure.fetch()
                run.beat()
            run.coordinator.join()
        run.advance(loss, num_steps)


@tf.autograph.experimental.do_not_convert
def _check_loss(loss: Any, function: str) -> None:
    """Raises UserCodeError if a loss is not one number."""
    if isinstance(loss, (int, float)) or tf.is_tensor(loss) and loss.shape.rank in (0, None):
        return
    got = f"a tensor of the shape {loss.shape}" if tf.is_tensor(loss) else type(loss).__name__
    raise UserCodeError("plugin_returned_wrong_type", f"{function} returned {got}; it must return one number, its "
                        "part of the mean loss, as tf.nn.compute_average_loss makes it of the losses of the examples")


def _execution(
    strategy: tf.distribute.Strategy, model: tf_keras.Model, train_step: Callable[..., Any]
) -> Callable[..., tf.Tensor]:
    """Returns the compiled function of several steps, which returns the loss of the last one."""

    def replica_step(features: Any, labels: Any) -> tf.Tensor:
        loss = train_step(model=model, features=features, labels=labels)
        _check_loss(loss, f"{train_step.__module__}.train_step")
        return tf.cast(loss, tf.float32)

    @tf.function
    def execute(batches: Iterator, num_steps: int) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(num_steps):
            loss = strategy.reduce("SUM", strategy.run(replica_step, args=next(batches)), axis=None)
        return loss

    return execute
