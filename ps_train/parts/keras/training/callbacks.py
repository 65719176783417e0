"""Keras' own callbacks, set up for a train_dir, and the callback that reports, beats and stops."""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Callable

import tensorflow as tf
import tf_keras

from ps_train.parts.keras.storage import keras_checkpoints
from ps_train.parts.keras.training.planning import TrainingContext, global_step
from ps_train.runtime import reports
from ps_train.runtime.reports import Progress

_log = logging.getLogger(__name__)


class Checkpoint(tf_keras.callbacks.Callback):
    """Saves the whole model after each epoch and, within an epoch, every --save_model_steps."""

    # Keras' ModelCheckpoint counts batches anew after a restart, and does not remove old checkpoints.

    def __init__(self, context: TrainingContext) -> None:
        super().__init__()
        self._supports_tf_logs = True  # it reads no logs; parameter_server allows no other callback
        self._period_steps = context.config.save_model_steps
        self._saver = context.saver
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

    # Keras' own refuses OneDeviceStrategy and CentralStorageStrategy, and records the first step of an execution as the
    # last one done (tf_keras 2.21, callbacks.py).

    def __init__(self, context: TrainingContext, steps_per_epoch: int) -> None:
        config = context.config
        self._counts_batches = config.strategy != "parameter_server"
        period_steps = min(config.save_model_steps or steps_per_epoch, steps_per_epoch)
        super().__init__(keras_checkpoints.backup_dir(config.train_dir, steps_per_epoch),
                         save_freq=math.ceil(period_steps / config.steps_per_execution) if self._counts_batches
                         else "epoch")
        self._supported_strategies = (tf.distribute.Strategy,)
        self._batch = 0
        self._lock = context.lock
        self._train_dir = config.train_dir

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
        """Removes the backup."""
        self._lock.check()
        super().on_train_end(logs)

    def save(self) -> None:
        """Saves the state now."""
        self._backup(epoch=self._current_epoch, batch=self._batch)

    def _backup(self, epoch: int, batch: int = 0) -> None:
        self._lock.check()
        with keras_checkpoints.failures_told("a backup", self._train_dir):
            super()._backup(epoch=epoch, batch=batch)


class Meter:
    """Prints progress lines, each with the rate since the last one."""

    def __init__(self, examples_per_step: int, train_steps: int) -> None:
        self._examples_per_step = examples_per_step
        self._train_steps = train_steps
        self._last = (0.0, 0)

    def start(self, step: int) -> None:
        """Measures from here on."""
        self._last = (time.monotonic(), step)

    def report(self, step: int, loss: float) -> None:
        """Prints the line of a step."""
        then_secs, then_step = self._last
        now_secs = time.monotonic()
        rate = (step - then_step) / max(now_secs - then_secs, 1e-9)
        self._last = (now_secs, step)
        progress = Progress(step, self._train_steps, loss, rate, rate * self._examples_per_step)
        reports.send(progress, [progress.format()])
        _log.info(progress.format())


class Reporter(tf_keras.callbacks.Callback):
    """Measures steps and time, prints progress lines, beats, and ends training when the process is told to stop."""

    def __init__(
        self, context: TrainingContext, meter: Meter, first_step: int, prints: bool, save: Callable[[], None]
    ) -> None:
        """Prepares it.

        Args:
          first_step: the global step of the model that Model.fit is given.
          prints: whether it prints progress lines.
          save: saves the state when this process, the only one, is told to stop.
        """
        super().__init__()
        self._supports_tf_logs = True  # it fetches only the loss that it prints; parameter_server allows no other
        self._context = context
        self._meter = meter
        self._save = save
        self._prints = prints and context.config.log_steps > 0
        # With parameter_server, Keras calls on_train_batch_end when a step is scheduled, not when it is done.
        self._is_asynchronous = context.config.strategy == "parameter_server"
        self._executions = self._steps_done = self._first_of_execution = 0
        self.first_step = first_step
        self.start_secs = self.end_secs = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        step = global_step(self.model)
        if step != self.first_step:  # BackupAndRestore, which is called before, has changed it
            _log.info("resumed at step %d, from the backup", step)
        self.first_step = step
        self.start_secs = self.end_secs = time.monotonic()
        self._meter.start(step)
        self._context.pulse.beat()

    @property
    def step(self) -> int:
        """The global step after the last execution that has ended."""
        # An execution that fails may have raised the optimizer's count.
        return global_step(self.model) if self._is_asynchronous else self.first_step + self._steps_done

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._first_of_execution = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Prints a progress line if one is due.

        Raises:
          StoppedError: the process was told to stop.
        """
        config = self._context.config
        self._context.pulse.beat()
        self._executions += 1
        self._steps_done += batch + 1 - self._first_of_execution
        period = max(1, config.log_steps // config.steps_per_execution)
        if self._prints and not self._is_asynchronous and self._executions % period == 0:
            self._report(logs)
        if self._context.stop.is_set():
            raise self._context.stopped(global_step(self.model), self._save, "backup")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._context.pulse.beat()
        self.end_secs = time.monotonic()  # what comes after the last epoch is no training
        if self._prints and self._is_asynchronous:
            self._report(logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._context.pulse.beat()  # validation is a sign of life, too

    def _report(self, logs: Any) -> None:
        self._meter.report(global_step(self.model), float(logs["loss"]))
