"""What a process that trains works with: the plug-ins, the epochs that lie before it, and what it must answer to."""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

from ps_train.keras.flags import KerasConfig
from ps_train.keras.plugins import KerasPlugins
from ps_train.keras.storage import checkpoints
from ps_train.keras.strategies.watchdog import Pulse
from ps_train.storage.folder_lock import FolderLock

_DEFAULT_STEPS_PER_EPOCH = 500


class Plan(NamedTuple):
    """The epochs of a run.

    Attributes:
      steps_per_epoch: in each of them.
      epochs: the epoch at which training ends.
      first_epoch: the epoch at which it begins, the same as `epochs` where nothing is left to train.
    """

    steps_per_epoch: int
    epochs: int
    first_epoch: int


def make_plan(train_steps: int, steps_per_epoch: int | None, step: int) -> Plan:
    """Returns the whole epochs that bring training from a global step to `train_steps`, or up to an epoch beyond."""
    if steps_per_epoch is None:  # equal parts of about the default, so that it goes beyond by a few steps only
        steps_per_epoch = math.ceil(train_steps / math.ceil(train_steps / _DEFAULT_STEPS_PER_EPOCH))
    steps_per_epoch = min(steps_per_epoch, train_steps)
    epochs = math.ceil(train_steps / steps_per_epoch)
    left = math.ceil(max(train_steps - step, 0) / steps_per_epoch)
    return Plan(steps_per_epoch, epochs, epochs - left)


class Task(NamedTuple):
    """What Model.fit and a loop of the plug-in's own have in common.

    Attributes:
      is_chief: whether it reports, and saves for all.
      is_alone: whether it is the only process, which can save without the others.
      pulse: must beat while it trains.
      stop: is set when it is told to stop.
      keeper: saves the checkpoints.
      lock: of the train_dir; checked before anything there is changed.
    """

    config: KerasConfig
    loaded: KerasPlugins
    is_chief: bool
    is_alone: bool
    pulse: Pulse
    stop: threading.Event
    keeper: checkpoints.Keeper
    lock: FolderLock


class Span(NamedTuple):
    """What was trained: the global step at which it began, and the time that it took without what came after it."""

    first_step: int
    secs: float
