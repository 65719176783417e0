"""What the parts of a process that trains share: its context, the epochs before it, and what it has trained."""

from __future__ import annotations

import dataclasses
import math
import shlex
import threading
from typing import Callable, NamedTuple

import tf_keras

from ps_train.cluster.spec import Cluster
from ps_train.errors import StoppedError
from ps_train.parts.keras.flags import KerasConfig
from ps_train.parts.keras.plugins import KerasPlugins
from ps_train.parts.keras.storage.keras_checkpoints import ModelSaver
from ps_train.parts.keras.strategies.watchdog import Pulse
from ps_train.storage.folder_lock import FolderLock

_DEFAULT_STEPS_PER_EPOCH = 500


@dataclasses.dataclass(frozen=True)
class TrainingContext:
    """What Model.fit and a loop of the plug-in's own have in common.

    Attributes:
      cluster: None for a strategy of one process, which can save without the others.
      lock: of the train_dir; check it before anything there changes.
      stop: is set when the process is told to stop.
      pulse: must beat during training.
    """

    config: KerasConfig
    cluster: Cluster | None
    plugins: KerasPlugins
    lock: FolderLock
    saver: ModelSaver
    stop: threading.Event
    pulse: Pulse = dataclasses.field(default_factory=Pulse)

    @property
    def is_chief(self) -> bool:
        """Whether this process reports, and saves for all."""
        return self.cluster is None or self.cluster.is_chief

    def stopped(self, step: int, save: Callable[[], None], newest: str) -> StoppedError:
        """Saves if this is the only process, and returns the error that names the step at which it stopped.

        Args:
          newest: what training continues from otherwise.
        """
        again = f"with --train_dir={shlex.quote(self.config.train_dir)} it continues"
        if self.cluster is not None:
            return StoppedError(f"told to stop at step {step}; {again} from the last {newest}")
        save()
        return StoppedError(f"told to stop at step {step}, and saved; {again} from there")


class EpochPlan(NamedTuple):
    """The epochs of a run.

    Attributes:
      steps_per_epoch: the same for each epoch.
      epochs: the epoch at which training ends.
      first_epoch: the epoch at which it begins; equal to `epochs` if nothing is left to train.
      end_step: the global step at which training ends.
    """

    steps_per_epoch: int
    epochs: int
    first_epoch: int
    end_step: int


def plan_epochs(train_steps: int, steps_per_epoch: int | None, step: int) -> EpochPlan:
    """Returns the whole epochs that bring training from a global step to `train_steps`, or up to an epoch beyond."""
    if steps_per_epoch is None:  # equal parts of about the default, so that it goes beyond by a few steps only
        steps_per_epoch = math.ceil(train_steps / math.ceil(train_steps / _DEFAULT_STEPS_PER_EPOCH))
    steps_per_epoch = min(steps_per_epoch, train_steps)
    epochs = math.ceil(train_steps / steps_per_epoch)
    left = math.ceil(max(train_steps - step, 0) / steps_per_epoch)
    return EpochPlan(steps_per_epoch, epochs, epochs - left, step + left * steps_per_epoch)


class TrainingSpan(NamedTuple):
    """The global step at which training began, and the time it took without what came after it."""

    first_step: int
    secs: float


def global_step(model: tf_keras.Model) -> int:
    """Returns the number of updates of a model."""
    return int(model.optimizer.iterations.numpy())
