"""Keras' own callbacks, set up for a train_dir, and the one that reports, stops and beats."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import Any, Callable

import tensorflow as tf
import tf_keras

from ps_train.distribute import saving
from ps_train.distribute.options import KerasConfig
from ps_train.distribute.watch import Pulse
from ps_train.errors import StoppedError
from ps_train.progress import Progress

_log = logging.getLogger(__name__)


class Checkpoint(tf_keras.callbacks.ModelCheckpoint):
    """Saves the whole model after each epoch, under its global step, and removes older ones."""

    def __init__(self, train_dir: str, keep: int, is_chief: bool) -> None:
        super().__init__(os.path.join(train_dir, saving.CHECKPOINT))
        self._train_dir = train_dir
        self._keep = keep
        self._is_chief = is_chief

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Every worker saves, because reading may be a collective; all but the chief into a folder that goes away."""
        super().on_epoch_end(epoch, {**(logs or {}), "step": int(self.model.optimizer.iterations.numpy())})
        if self._is_chief:
            saving.remove_older(self._train_dir, self._keep)

    def _save_handler(self, filepath: str) -> None:
        # Outside the main thread tf_keras writes `.keras` once, and then HDF5 under that name (a thread-local default
        # in saving/saving_lib.py), unless it is told the format.
        self.model.save(filepath, overwrite=True, save_format="keras_v3")


class Backup(tf_keras.callbacks.BackupAndRestore):
    """BackupAndRestore for every strategy, within epochs too, also with several steps in an execution.

    Keras' own knows neither OneDeviceStrategy nor CentralStorageStrategy, and notes the first step of an execution as
    the last one done (tf_keras 2.21, callbacks.py).
    """

    def __init__(self, config: KerasConfig, steps_per_epoch: int) -> None:
        folder = saving.backup_dir(config.train_dir, steps_per_epoch)
        self._counts_batches = config.strategy != "parameter_server"
        period_steps = min(config.save_model_steps or steps_per_epoch, steps_per_epoch)
        super().__init__(folder, save_freq=math.ceil(period_steps / config.steps_per_execution)
                         if self._counts_batches else "epoch")
        self._supported_strategies = (tf.distribute.Strategy,)
        self._batch = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the last step done, and saves when it is time to."""
        self._batch = batch
        if self._counts_batches:
            self._training_state._ckpt_saved_batch.assign(batch)  # noqa: SLF001 (as BackupAndRestore itself does)
        super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves, too, where the epoch's last step was not one at which it was time to."""
        super().on_epoch_end(epoch, logs)
        if self._counts_batches and self._batches_count:
            self._batches_count = 0
            self.save()

    def save(self) -> None:
        """Saves now."""
        self._backup(epoch=self._current_epoch, batch=self._batch)


class Reporter(tf_keras.callbacks.Callback):
    """Counts steps and time, prints progress lines, beats, and ends training when the process is told to stop."""

    def __init__(
        self, config: KerasConfig, pulse: Pulse, stop: threading.Event, save: Callable[[], None] | None,
        examples_per_step: int, train_steps: int, prints: bool,
    ) -> None:
        """Prepares it.

        Args:
          save: saves the state before it stops; None where that needs the other tasks.
          examples_per_step: in all replicas.
          train_steps: the global step at which training ends.
          prints: whether it prints progress lines.
        """
        super().__init__()
        self._supports_tf_logs = True  # nothing is fetched but what is due; parameter_server allows no other callback
        self._config = config
        self._pulse = pulse
        self._stop = stop
        self._save = save
        self._examples_per_step = examples_per_step
        self._train_steps = train_steps
        # With parameter_server a step has only been scheduled when Keras says that it ended.
        self._prints = prints and config.log_steps > 0
        self._is_asynchronous = config.strategy == "parameter_server"
        self._executions = 0
        self._last_report = (0.0, 0)
        self.first_step = 0
        self.start_secs = 0.0
        self.end_secs = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        """Notes where training begins; BackupAndRestore, which comes before, may have moved that."""
        step = self._step()
        if step != int(self.first_step):
            _log.info("resumed at step %d, from the backup", step)
        self.first_step = step
        self.start_secs = self.end_secs = time.monotonic()
        self._last_report = (self.start_secs, step)
        self._pulse.beat()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reports when it is time to, and stops when told to.

        Raises:
          StoppedError: told to stop.
        """
        self._pulse.beat()
        self._executions += 1
        period = max(1, self._config.log_steps // self._config.steps_per_execution)
        if self._prints and not self._is_asynchronous and self._executions % period == 0:
            self._report(logs)
        if self._stop.is_set():
            raise self._stopped()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Notes the time: what comes after the last epoch is no training."""
        self._pulse.beat()
        self.end_secs = time.monotonic()
        if self._prints and self._is_asynchronous:
            self._report(logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """A validation is a sign of life, too."""
        self._pulse.beat()

    def _step(self) -> int:
        return int(self.model.optimizer.iterations.numpy())

    def _report(self, logs: Any) -> None:
        then_secs, then_step = self._last_report
        now_secs, step = time.monotonic(), self._step()
        rate = (step - then_step) / max(now_secs - then_secs, 1e-9)
        self._last_report = (now_secs, step)
        _log.info(Progress(step, self._train_steps, float(logs["loss"]), rate, rate * self._examples_per_step).format())

    def _stopped(self) -> StoppedError:
        step = self._step()
        if self._save is None:
            return StoppedError(f"told to stop at step {step}; the same command continues from the last backup")
        self._save()
        return StoppedError(f"told to stop at step {step}, and saved; the same command continues from there")
