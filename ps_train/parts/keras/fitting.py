"""Training by Keras' Model.fit, and what it shares with a custom loop: the epochs, and what is due after a step.

    TrainingContext --> EpochPlan --> ModelTraining --> fit
                                                    |
             callbacks, in order: SharedLogs, StepCallback, TensorBoard, those of the plug-in
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import math
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import tensorflow as tf
import tf_keras

from ps_train.cluster.spec import Cluster
from ps_train.errors import StoppedError, UserCodeError
from ps_train.parts.keras import callbacks, checkpoints, inputs, strategies
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.keras.plugins import KerasPlugins
from ps_train.parts.keras.strategies import Pulse
from ps_train.runtime import reports

_DEFAULT_STEPS_PER_EPOCH = 500
_ROUNDS_AHEAD = 8  # steps of each worker of parameter_server that are scheduled and not yet known to be done
_log = logging.getLogger(__name__)


class EpochPlan(NamedTuple):
    """The epochs of a training, which begin at the multiples of `steps_per_epoch`; `first_epoch` of them are over."""

    steps_per_epoch: int
    epochs: int
    first_epoch: int

    @property
    def end_step(self) -> int:
        """The global step at which training ends."""
        return self.epochs * self.steps_per_epoch

    def stretches(self, step: int) -> Iterator[tuple[int, int, int]]:
        """Yields (first epoch, end epoch, steps per epoch): what is left of an epoch, and the whole ones after it."""
        steps_done, first_epoch = step % self.steps_per_epoch, self.first_epoch
        if steps_done and first_epoch < self.epochs:
            yield first_epoch, first_epoch + 1, self.steps_per_epoch - steps_done
            first_epoch += 1
        if first_epoch < self.epochs:
            yield first_epoch, self.epochs, self.steps_per_epoch


def plan_epochs(train_steps: int, steps_per_epoch: int | None, step: int) -> EpochPlan:
    """Returns the epochs that bring training from a global step to `train_steps`, rounded up to whole epochs."""
    if steps_per_epoch is None:  # equal parts of about the default, which exceed train_steps by a few steps only
        steps_per_epoch = math.ceil(train_steps / math.ceil(train_steps / _DEFAULT_STEPS_PER_EPOCH))
    steps_per_epoch = min(steps_per_epoch, train_steps)
    epochs = math.ceil(train_steps / steps_per_epoch)
    return EpochPlan(steps_per_epoch, epochs, step // steps_per_epoch if step < train_steps else epochs)


@dataclasses.dataclass(frozen=True)
class TrainingContext:
    """A process that trains."""

    config: KerasConfig
    cluster: Cluster | None  # None for a strategy of one process, which can save without the others
    plugins: KerasPlugins
    saver: checkpoints.ModelSaver
    stop: threading.Event  # is set when the process is asked to stop
    pulse: Pulse = dataclasses.field(default_factory=Pulse)  # must beat during training

    @property
    def is_chief(self) -> bool:
        """Whether this process reports, and saves for all."""
        return self.cluster is None or self.cluster.is_chief


class ModelTraining(NamedTuple):
    """One training: the model under its strategy, the epochs, the batches, and the global step at which it begins."""

    context: TrainingContext
    strategy: tf.distribute.Strategy
    model: tf_keras.Model
    plan: EpochPlan
    feed: inputs.Feed
    first_step: int


def num_updates(model: tf_keras.Model) -> int:
    """Returns the number of updates of a model; the global step is larger if it accumulates gradients."""
    return int(model.optimizer.iterations.numpy())


def loss_of(logs: Mapping[str, Any], model_name: str, function: str) -> Any:
    """Returns the loss among the metrics that `train_step` or `test_step` of a model's class returned.

    Raises:
      UserCodeError: there is none.
    """
    if "loss" not in logs:
        raise UserCodeError("loss_missing", f"{model_name}.build_model: {function} of the model returned "
                            f"{', '.join(logs) or 'nothing'}, and no 'loss', which the report needs; add it")
    return logs["loss"]


class StepCounter:
    """Counts the steps of a training, and does what is due after them.

    Attributes:
      train_steps: the global step at which training ends.
    """

    def __init__(
        self, training: ModelTraining, train_steps: int, *, log_period: int, save_period: int, counts: bool = True
    ) -> None:
        """Prepares it.

        Args:
          log_period: steps between two progress lines, 0 for none; so is `save_period`.
          counts: whether `count` is called; else the steps of an epoch are known at its end.
        """
        self._context, strategy, self._model, plan, _, self._step = training
        self.train_steps, self._log_period, self._save_period = train_steps, log_period, save_period
        self._counts, self._steps_per_epoch = counts, plan.steps_per_epoch
        self._updates, self._updated_step = num_updates(self._model), self._step  # as the last `end_epoch` has seen
        self._constants = checkpoints.infinite_constants(self._model)
        self._sound_step = -1  # whose weights were found finite
        self._examples_per_step = strategies.global_batch_size(strategy, self._context.config)
        self._logged = (time.monotonic(), self._step)

    @property
    def step(self) -> int:
        """The global step."""
        # Counted, as an execution that fails may have raised the model's own count, which is one of updates.
        return self._step if self._counts else self._step + num_updates(self._model) - self._updates

    def beat(self) -> None:
        """Gives a sign of life, for work that is no step and may take longer than --step_timeout_secs."""
        self._context.pulse.beat()

    def count(self, num_steps: int, loss: Any) -> None:
        """Counts steps that are done; logs and saves if that is due. `loss` is read only if it is logged."""
        previous_step, self._step = self._step, self._step + num_steps
        self.beat()
        if is_due(self._log_period, previous_step, self.step):
            self.log(loss)
        if is_due(self._save_period, previous_step, self.step):
            self.save()

    def loss_of(self, logs: Mapping[str, Any], function: str) -> Any:
        """Returns the loss in what a function of the model returned; raises UserCodeError if there is none."""
        return loss_of(logs, self._context.plugins.model.name, function)

    def log(self, loss: Any) -> None:
        """Logs a progress line, with the rate since the last one, if there are such lines and this is the chief."""
        if not (self._log_period and self._context.is_chief):
            return
        (last_secs, last_step), now_secs, step = self._logged, time.monotonic(), self.step
        self._logged = (now_secs, step)
        rate = (step - last_step) / max(now_secs - last_secs, 1e-9)
        progress = reports.Progress(step, self.train_steps, float(loss), rate, rate * self._examples_per_step)
        reports.send(progress, [progress.format()])
        _log.info(progress.format(), extra={"fields": progress._asdict()})

    def end_epoch(self, num_scheduled: int) -> None:
        """Counts steps that were scheduled and are done now.

        Raises:
          UserCodeError: the optimizer of the model has made no update for a whole epoch.
        """
        self._step += num_scheduled
        if (updates := num_updates(self._model)) != self._updates:
            self._updates, self._updated_step = updates, self._step
        # One that scales the loss leaves out steps whose gradients are not finite, perhaps all of a short epoch.
        elif (self._step - self._updated_step >= self._steps_per_epoch
              and not hasattr(self._model.optimizer, "inner_optimizer")):
            raise UserCodeError("model_optimizer_unused", f"{self._context.plugins.model.name}.build_model: train_step "
                                f"of the model made no update by model.optimizer in {self._steps_per_epoch} steps, and "
                                "a checkpoint has the state of no other one; apply the gradients by self.optimizer, at "
                                "least once in --steps_per_epoch, or write the whole loop as the module's function "
                                "train")

    def save(self, *, again: bool = False, is_last: bool = False) -> None:
        """Saves a checkpoint of this step; each of several workers calls it. See `ModelSaver.save`.

        Raises:
          UserCodeError: a weight is NaN or infinite; its checkpoints would in time replace all sound ones.
        """
        is_known = self.step == self._sound_step and not again  # an epoch is saved before its validation and after it
        spoilt = "" if is_known else checkpoints.spoilt_weight(self._model, self._constants)
        if not spoilt:
            self._sound_step = self.step
            self._context.saver.save(self._model, self.step, again=again, is_last=is_last)
        elif is_last or not self._model.stop_training:  # else a callback that ended training may restore other weights
            raise UserCodeError("not_finite", f"{self._context.plugins.model.name}: after step {self.step}, weight "
                                f"{spoilt} is not finite; it was not saved, and the checkpoints in "
                                f"{self._context.config.train_dir} are of earlier steps. Look at the data and the "
                                "model, or lower --learning_rate")
        self.beat()

    def check_stop(self) -> None:
        """Raises StoppedError if the process was asked to stop; saves first if it is the only process."""
        if not self._context.stop.is_set():
            return
        again = f"with --train_dir={shlex.quote(self._context.config.train_dir)} it continues"
        if self._context.cluster is not None:
            raise StoppedError("stopped",
                               f"stopped at step {self.step}; {again} from the last checkpoint")
        self.save(is_last=True)
        raise StoppedError("stopped", f"stopped at step {self.step}, and saved; {again} from there")


def is_due(period: int, previous_step: int, step: int) -> bool:
    """Returns whether a multiple of a period was reached since the previous step; never if the period is 0."""
    return period > 0 and step // period > previous_step // period


def fit(training: ModelTraining) -> None:
    """Trains the epochs of the plan.

    Raises:
      StoppedError: the process was asked to stop.
      UserCodeError: a plug-in breaks its contract.
      DataError: the training data end before training does.
    """
    context, strategy, model, plan, feed, first_step = training
    config, is_chief = context.config, context.is_chief
    if is_chief:
        _log.info("epochs %d to %d of %d steps each: training ends at step %d", plan.first_epoch + 1, plan.epochs,
                  plan.steps_per_epoch, plan.end_step)
    is_asynchronous = config.strategy == "parameter_server"
    on_terminal = is_chief and sys.stdout is not None and sys.stdout.isatty() and not is_asynchronous
    progress = StepCounter(training, plan.end_step, log_period=0 if on_terminal else config.log_steps,
                           save_period=config.save_model_steps, counts=not is_asynchronous)
    scheduled = ScheduledSteps.of(training)
    plugin_callbacks = callbacks.of_plugin(context.plugins)
    if is_chief and first_step and plugin_callbacks:
        _log.warning("callbacks begin anew, as a checkpoint has nothing of theirs, nor a learning rate that one has "
                     "changed: %s", ", ".join(type(callback).__name__ for callback in plugin_callbacks))
    shared = [callbacks.SharedLogs(strategy)] if config.strategy == "multi_worker_mirrored" else []
    board = callbacks.make_board(config, lambda: progress.step) if is_chief else []
    own_callbacks = [*shared, StepCallback(progress, scheduled, feed.validation_steps), *board]
    try:
        _fit_stretches(training, own_callbacks, plugin_callbacks, (1 if on_terminal else 2) if is_chief else 0)
    except tf.errors.OpError as error:
        if not inputs.is_end(error):
            raise
        if context.cluster is None and progress.step > first_step:
            progress.save(is_last=True)
        raise inputs.data_ended(context.plugins.dataset.name, progress.step, plan.end_step) from error
    # The end of fit may have set other weights: EarlyStopping the best ones, an optimizer with use_ema the means.
    has_other_weights = bool(plugin_callbacks) or _averages_weights(model)
    progress.save(again=has_other_weights, is_last=True)


def _fit_stretches(
    training: ModelTraining, own: list[tf_keras.callbacks.Callback], plugin: list[tf_keras.callbacks.Callback],
    verbose: int,
) -> None:
    """Calls Model.fit: not once, as an epoch that a checkpoint has divided has fewer steps than the others."""
    context, strategy, model, plan, feed, first_step = training
    config = context.config
    validation = {"validation_data": feed.validation, "validation_steps": feed.validation_steps,
                  "validation_freq": config.validation_epochs} if config.validation_epochs else {}
    if context.is_chief:
        plugin = [*plugin, callbacks.MonitorCheck(plugin, config.validation_epochs)]
    for first_epoch, epochs, num_steps in plan.stretches(first_step):
        is_last = epochs == plan.epochs
        with strategy.scope():
            every = callbacks.StretchCallbacks(
                own, plugin, is_first=first_epoch == plan.first_epoch, is_last=is_last, model=model, verbose=verbose,
                epochs=epochs, steps=num_steps)
        with contextlib.nullcontext() if is_last else callbacks.keeping_weights(model):
            model.fit(feed.training, steps_per_epoch=num_steps, epochs=epochs, initial_epoch=first_epoch,
                      callbacks=every, verbose=verbose, **validation)
        if model.stop_training:  # by a callback of the plug-in
            break


def _averages_weights(model: tf_keras.Model) -> bool:
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # of mixed_float16
    return bool(getattr(optimizer, "use_ema", False))


class ScheduledSteps:
    """The steps that the coordinator of parameter_server has scheduled, which is before they are done.

    Keras waits only at the end of an epoch, which may take longer than any limit of a step.
    """

    def __init__(self, num_workers: int, beat: Callable[[], None]) -> None:
        self._num_workers, self._beat, self._num_steps = num_workers, beat, 0
        self._pending: collections.deque[tf.distribute.coordinator.RemoteValue] = collections.deque()

    @classmethod
    def of(cls, training: ModelTraining) -> ScheduledSteps | None:
        """Returns those of a training; None for a strategy that takes its steps one by one."""
        context = training.context
        if context.config.strategy != "parameter_server" or context.cluster is None:
            return None
        return cls(len(context.cluster.addresses["worker"]), context.pulse.beat)

    def add(self, result: tf.distribute.coordinator.RemoteValue, *, is_last: bool) -> None:
        """Adds a step with its result; waits for earlier ones, for all if it is the last of an epoch or validation.

        Raises:
          OpError: a step has failed.
        """
        self._num_steps += 1
        if is_last or self._num_steps % self._num_workers == 0:  # fetching each result would cost a transfer a step
            self._pending.append(result)
        self._beat()  # the first one is compiled before it is scheduled
        while self._pending and (is_last or len(self._pending) > _ROUNDS_AHEAD):
            self._pending.popleft().fetch()
            self._beat()


class ValidationCallback(tf_keras.callbacks.Callback):
    """Gives a sign of life for each batch of a validation that is done, and stops between two of them."""

    def __init__(self, progress: StepCounter, scheduled: ScheduledSteps | None, validation_steps: int) -> None:
        super().__init__()
        self._supports_tf_logs = True  # it fetches only the loss that is logged; parameter_server allows no other
        self._progress, self._scheduled, self._validation_steps = progress, scheduled, validation_steps

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Gives the sign; raises StoppedError if the process was asked to stop."""
        if self._scheduled is None:
            self._progress.beat()
        else:
            self._scheduled.add(logs, is_last=batch + 1 >= self._validation_steps)
        self._progress.check_stop()

    def on_test_end(self, logs: Any = None) -> None:
        """Raises UserCodeError if the report at the end would have no loss."""
        self._progress.loss_of(logs, "test_step")


class StepCallback(ValidationCallback):
    """Passes each execution of steps on to a StepCounter, and saves after each epoch: before its validation."""

    def __init__(self, progress: StepCounter, scheduled: ScheduledSteps | None, validation_steps: int) -> None:
        super().__init__(progress, scheduled, validation_steps)
        self._first_of_execution = self._num_scheduled = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._first_of_execution = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the steps of the execution; raises StoppedError if the process was asked to stop."""
        # With parameter_server, Keras calls on_train_batch_end when a step is scheduled, not when it is done.
        if self._scheduled is None:
            self._progress.count(batch + 1 - self._first_of_execution, self._progress.loss_of(logs, "train_step"))
        else:
            self._scheduled.add(logs, is_last=batch + 1 >= self.params["steps"])
            self._num_scheduled = batch + 1
        self._progress.check_stop()

    def on_test_begin(self, logs: Any = None) -> None:
        """Saves the epoch, which a validation that takes long or fails must not cost."""
        self._save_epoch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._save_epoch()
        if self._scheduled is not None:
            self._progress.log(self._progress.loss_of(logs, "train_step"))

    def _save_epoch(self) -> None:
        num_scheduled, self._num_scheduled = self._num_scheduled, 0
        self._progress.end_epoch(num_scheduled)
        self._progress.save()
