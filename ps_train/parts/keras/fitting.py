"""Training by Keras' Model.fit, and everything that a loop of the plug-in shares with it.

    TrainingContext --> EpochPlan --> ModelTraining --> fit
                                                    |
             callbacks, in order: Backup, Checkpoint, TensorBoard, those of the plug-in, Reporter
"""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import math
import shlex
import sys
import threading
import time
from typing import Any, Callable, NamedTuple

import tensorflow as tf
import tf_keras

from ps_train.cluster.spec import Cluster
from ps_train.errors import StoppedError, UserCodeError
from ps_train.parts.keras import checkpoints, inputs, strategies
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.keras.plugins import KerasPlugins
from ps_train.parts.keras.strategies import Pulse
from ps_train.runtime import reports
from ps_train.storage.folder_lock import FolderLock

_DEFAULT_STEPS_PER_EPOCH = 500
_log = logging.getLogger(__name__)


class EpochPlan(NamedTuple):
    """The epochs of a run, numbers `first_epoch` to `epochs` - 1, which end at the global step `end_step`."""

    steps_per_epoch: int
    epochs: int
    first_epoch: int
    end_step: int


def plan_epochs(train_steps: int, steps_per_epoch: int | None, step: int) -> EpochPlan:
    """Returns the whole epochs that bring training from a global step to `train_steps`, or up to an epoch beyond."""
    if steps_per_epoch is None:  # equal parts of about the default, to go beyond by a few steps only
        steps_per_epoch = math.ceil(train_steps / math.ceil(train_steps / _DEFAULT_STEPS_PER_EPOCH))
    steps_per_epoch = min(steps_per_epoch, train_steps)
    epochs = math.ceil(train_steps / steps_per_epoch)
    remaining = math.ceil(max(train_steps - step, 0) / steps_per_epoch)
    return EpochPlan(steps_per_epoch, epochs, epochs - remaining, step + remaining * steps_per_epoch)


@dataclasses.dataclass(frozen=True)
class TrainingContext:
    """A process that trains."""

    config: KerasConfig
    cluster: Cluster | None  # None for a strategy of one process, which can save without the others
    plugins: KerasPlugins
    lock: FolderLock  # of the train_dir; check it before anything there changes
    saver: checkpoints.ModelSaver
    stop: threading.Event  # is set when the process is asked to stop
    pulse: Pulse = dataclasses.field(default_factory=Pulse)  # must beat during training

    @property
    def is_chief(self) -> bool:
        """Whether this process reports, and saves for all."""
        return self.cluster is None or self.cluster.is_chief

    def stopped(self, step: int, save: Callable[[], None], newest: str) -> StoppedError:
        """Saves if this is the only process (several continue from the `newest`); returns the error with the step."""
        again = f"with --train_dir={shlex.quote(self.config.train_dir)} it continues"
        if self.cluster is not None:
            return StoppedError(f"told to stop at step {step}; {again} from the last {newest}")
        save()
        return StoppedError(f"told to stop at step {step}, and saved; {again} from there")


class ModelTraining(NamedTuple):
    """One training: the model under its strategy, the epochs, and the batches."""

    context: TrainingContext
    strategy: tf.distribute.Strategy
    model: tf_keras.Model
    plan: EpochPlan
    feed: inputs.Feed

    @property
    def examples_per_step(self) -> int:
        return strategies.global_batch_size(self.strategy, self.context.config)


def global_step(model: tf_keras.Model) -> int:
    """Returns the number of updates of a model."""
    return int(model.optimizer.iterations.numpy())


class Meter:
    """Prints progress lines, each with the rate since the last one, or since the meter was made."""

    def __init__(self, examples_per_step: int, train_steps: int, step: int) -> None:
        self._examples_per_step, self._train_steps = examples_per_step, train_steps
        self._last = (time.monotonic(), step)

    def report(self, step: int, loss: float) -> None:
        """Prints the line of a step."""
        (then_secs, then_step), now_secs = self._last, time.monotonic()
        self._last = (now_secs, step)
        rate = (step - then_step) / max(now_secs - then_secs, 1e-9)
        progress = reports.Progress(step, self._train_steps, loss, rate, rate * self._examples_per_step)
        reports.send(progress, [progress.format()])
        _log.info(progress.format())


def fit(training: ModelTraining) -> tuple[int, float]:
    """Trains the epochs of the plan; returns the global step at which it began, and the seconds that it took.

    Raises:
      StoppedError: the process was asked to stop.
      UserCodeError: a plug-in breaks its contract.
      DataError: the training data end before training does.
    """
    context, _, model, plan, feed = training
    config, is_chief = context.config, context.is_chief
    if is_chief:
        _log.info("epochs %d to %d of %d steps each: training ends at step %d", plan.first_epoch + 1, plan.epochs,
                  plan.steps_per_epoch, plan.end_step)
    context.pulse.expect("a step of training", config.step_timeout_secs)
    on_terminal = sys.stdout is not None and sys.stdout.isatty() and config.strategy != "parameter_server"
    backup = Backup(context, plan.steps_per_epoch)
    reporter = Reporter(training, is_chief and not on_terminal, backup.save)
    validates = config.validation_epochs > 0
    try:
        model.fit(
            feed.training, steps_per_epoch=plan.steps_per_epoch, epochs=plan.epochs, initial_epoch=plan.first_epoch,
            validation_data=feed.validation if validates else None,
            validation_steps=feed.validation_steps if validates else None,
            validation_freq=max(config.validation_epochs, 1),
            callbacks=[backup, Checkpoint(context), *_tensorboard(context), *_plugin_callbacks(context.plugins),
                       reporter],
            verbose=(1 if on_terminal else 2) if is_chief else 0)
    except tf.errors.OpError as error:
        if not inputs.is_end(error):
            raise
        if context.cluster is None and reporter.step > reporter.first_step:
            context.saver.save(model, reporter.step)
        raise inputs.data_ended(context.plugins.dataset.name, reporter.step, plan.end_step) from error
    return reporter.first_step, reporter.end_secs - reporter.start_secs


def _plugin_callbacks(plugins: KerasPlugins) -> list[tf_keras.callbacks.Callback]:
    model = plugins.model
    callbacks = model.make_callbacks(params=plugins.model_params) if model.make_callbacks else []
    wrong = [callbacks] if not isinstance(callbacks, (list, tuple)) else [
        callback for callback in callbacks if not isinstance(callback, tf_keras.callbacks.Callback)]
    if wrong:
        raise UserCodeError(f"{model.name}.make_callbacks returned {wrong[0]!r}; it must return a list of "
                            "tf_keras.callbacks.Callback (of tf_keras, not of Keras 3)")
    return list(callbacks)


def _tensorboard(context: TrainingContext) -> list[tf_keras.callbacks.Callback]:
    config = context.config
    if not context.is_chief or not config.save_summaries_steps:
        return []
    if importlib.util.find_spec("tensorboard") is None:
        _log.info("tensorboard is not installed: no event files are written; `pip install tensorboard`, or give "
                  "--save_summaries_steps=0")
        return []
    # parameter_server allows no work after each batch.
    frequency = "epoch" if config.strategy == "parameter_server" else config.save_summaries_steps
    return [tf_keras.callbacks.TensorBoard(config.train_dir, update_freq=frequency, write_graph=False)]


class Checkpoint(tf_keras.callbacks.Callback):
    """Saves the whole model after each epoch and, within an epoch, every --save_model_steps."""

    # Keras' ModelCheckpoint starts to count batches again after a restart, and does not remove old checkpoints.

    def __init__(self, context: TrainingContext) -> None:
        super().__init__()
        self._supports_tf_logs = True  # it reads no logs; parameter_server allows no other callback
        self._period_steps, self._saver = context.config.save_model_steps, context.saver
        self._saved_step = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._saved_step = global_step(self.model) if self._period_steps else 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves if a multiple of --save_model_steps was reached or, in an execution of several steps, passed."""
        period_steps = self._period_steps
        if period_steps and global_step(self.model) // period_steps > self._saved_step // period_steps:
            self._save()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._save()

    def _save(self) -> None:
        self._saved_step = global_step(self.model)
        self._saver.save(self.model, self._saved_step)


class Backup(tf_keras.callbacks.BackupAndRestore):
    """BackupAndRestore for every strategy, also within an epoch and with several steps in an execution."""

    # That of Keras refuses OneDeviceStrategy and CentralStorageStrategy, and records the first step of an execution as
    # the last one done (tf_keras 2.21, callbacks.py).

    def __init__(self, context: TrainingContext, steps_per_epoch: int) -> None:
        config = context.config
        self._counts_batches = config.strategy != "parameter_server"
        period_steps = min(config.save_model_steps or steps_per_epoch, steps_per_epoch)
        super().__init__(checkpoints.backup_dir(config.train_dir, steps_per_epoch),
                         save_freq=math.ceil(period_steps / config.steps_per_execution) if self._counts_batches
                         else "epoch")
        self._supported_strategies = (tf.distribute.Strategy,)
        self._batch = 0
        self._lock, self._train_dir = context.lock, config.train_dir

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._batch = batch
        if self._counts_batches:
            self._training_state._ckpt_saved_batch.assign(batch)  # noqa: SLF001 (as BackupAndRestore itself does)
        super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._counts_batches and self._batches_count:  # the epoch did not end with a backup
            self._batches_count = 0
            self.save()

    def on_train_end(self, logs: Any = None) -> None:
        self._lock.check()  # before it removes the backup
        super().on_train_end(logs)

    def save(self) -> None:
        """Saves the state now."""
        self._backup(epoch=self._current_epoch, batch=self._batch)

    def _backup(self, epoch: int, batch: int = 0) -> None:
        self._lock.check()
        with checkpoints.explaining_failures("a backup", self._train_dir):
            super()._backup(epoch=epoch, batch=batch)


class Reporter(tf_keras.callbacks.Callback):
    """Measures steps and time, beats, prints progress lines, and ends training when the process is asked to stop."""

    def __init__(self, training: ModelTraining, prints: bool, save: Callable[[], None]) -> None:
        super().__init__()
        self._supports_tf_logs = True  # it fetches only the loss that it prints; parameter_server allows no other
        self._training, self._context, self._save = training, training.context, save
        config = self._context.config
        self._prints = prints and config.log_steps > 0
        self._period = max(1, config.log_steps // config.steps_per_execution)
        # With parameter_server, Keras calls on_train_batch_end when a step is scheduled, not when it is done.
        self._is_asynchronous = config.strategy == "parameter_server"
        self._executions = self._steps_done = self._first_of_execution = 0
        self.first_step = global_step(training.model)
        self.start_secs = self.end_secs = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        step = global_step(self.model)
        if step != self.first_step:  # BackupAndRestore, which is called before, has changed it
            _log.info("resumed at step %d, from the backup", step)
        self.first_step = step
        self.start_secs = self.end_secs = time.monotonic()
        self._meter = Meter(self._training.examples_per_step, self._training.plan.end_step, step)
        self._context.pulse.beat()

    @property
    def step(self) -> int:
        """The global step after the last execution that has ended."""
        # An execution that fails may have raised the optimizer's count.
        return global_step(self.model) if self._is_asynchronous else self.first_step + self._steps_done

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._first_of_execution = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Prints a progress line if one is due; raises StoppedError if the process was asked to stop."""
        self._context.pulse.beat()
        self._executions += 1
        self._steps_done += batch + 1 - self._first_of_execution
        if self._prints and not self._is_asynchronous and self._executions % self._period == 0:
            self._meter.report(global_step(self.model), float(logs["loss"]))
        if self._context.stop.is_set():
            raise self._context.stopped(global_step(self.model), self._save, "backup")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._context.pulse.beat()
        self.end_secs = time.monotonic()  # the time after the last epoch does not count as training
        if self._prints and self._is_asynchronous:
            self._meter.report(global_step(self.model), float(logs["loss"]))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._context.pulse.beat()  # validation is a sign of life, too
