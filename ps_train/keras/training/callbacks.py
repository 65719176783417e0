"""Keras' own callbacks, set up for a train_dir, and the one that reports, stops and beats."""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
from typing import Any, Callable

import tensorflow as tf
import tf_keras

from ps_train.errors import StoppedError
from ps_train.keras.flags import KerasConfig
from ps_train.keras.storage import checkpoints
from ps_train.keras.strategies.watchdog import Pulse
from ps_train.runtime.reports import Progress
from ps_train.storage.folder_lock import FolderLock

_log = logging.getLogger(__name__)


class Checkpoint(tf_keras.callbacks.Callback):
    """Saves the whole model after each epoch, and every --save_model_steps within it: ModelCheckpoint with save_freq.

    Keras' own counts batches anew after a restart, and knows no number of checkpoints to keep.
    """

    def __init__(self, config: KerasConfig, keeper: checkpoints.Keeper) -> None:
        super().__init__()
        self._supports_tf_logs = True  # it looks at no logs; parameter_server allows no other callback
        self._period_steps = config.save_model_steps
        self._keeper = keeper
        self._saved_step = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Notes where training begins."""
        self._saved_step = self._step() if self._period_steps else 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves when it is time to; with several steps in an execution, after the one in which it was."""
        if self._period_steps and self._step() // self._period_steps > self._saved_step // self._period_steps:
            self._save()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves."""
        self._save()

    def _step(self) -> int:
        return int(self.model.optimizer.iterations.numpy())

    def _save(self) -> None:
        self._saved_step = self._step()
        self._keeper.save(self.model, self._saved_step)


class Backup(tf_keras.callbacks.BackupAndRestore):
    """BackupAndRestore for every strategy, within epochs too, also with several steps in an execution.

    Keras' own knows neither OneDeviceStrategy nor CentralStorageStrategy, and notes the first step of an execution as
    the last one done (tf_keras 2.21, callbacks.py).
    """

    def __init__(self, config: KerasConfig, steps_per_epoch: int, lock: FolderLock) -> None:
        folder = checkpoints.backup_dir(config.train_dir, steps_per_epoch)
        self._counts_batches = config.strategy != "parameter_server"
        period_steps = min(config.save_model_steps or steps_per_epoch, steps_per_epoch)
        super().__init__(folder, save_freq=math.ceil(period_steps / config.steps_per_execution)
                         if self._counts_batches else "epoch")
        self._supported_strategies = (tf.distribute.Strategy,)
        self._batch = 0
        self._lock = lock

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

    def on_train_end(self, logs: Any = None) -> None:
        """Removes the backup."""
        self._lock.check()
        super().on_train_end(logs)

    def save(self) -> None:
        """Saves now."""
        self._backup(epoch=self._current_epoch, batch=self._batch)

    def _backup(self, epoch: int, batch: int = 0) -> None:
        self._lock.check()
        super()._backup(epoch=epoch, batch=batch)


class Meter:
    """Prints progress lines, each with the rate since the one before."""

    def __init__(self, examples_per_step: int, train_steps: int) -> None:
        self._examples_per_step = examples_per_step
        self._train_steps = train_steps
        self._last = (0.0, 0)

    def start(self, step: int) -> None:
        """Counts from here on."""
        self._last = (time.monotonic(), step)

    def report(self, step: int, loss: float) -> None:
        """Prints the line of a step."""
        then_secs, then_step = self._last
        now_secs = time.monotonic()
        rate = (step - then_step) / max(now_secs - then_secs, 1e-9)
        self._last = (now_secs, step)
        _log.info(Progress(step, self._train_steps, loss, rate, rate * self._examples_per_step).format())


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
        self._meter = Meter(examples_per_step, train_steps)
        # With parameter_server a step has only been scheduled when Keras says that it ended.
        self._prints = prints and config.log_steps > 0
        self._is_asynchronous = config.strategy == "parameter_server"
        self._executions = 0
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
        self._meter.start(step)
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
        self._meter.report(self._step(), float(logs["loss"]))

    def _stopped(self) -> StoppedError:
        step, again = self._step(), f"with --train_dir={shlex.quote(self._config.train_dir)} it continues"
        if self._save is None:
            return StoppedError(f"told to stop at step {step}; {again} from the last backup")
        self._save()
        return StoppedError(f"told to stop at step {step}, and saved; {again} from there")
