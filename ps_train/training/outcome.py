"""How a worker's training ended."""

from __future__ import annotations

import enum
from typing import NamedTuple


class End(enum.Enum):
    """Why a worker's training ended."""

    STEPS = "the global step reached train_steps"
    ANNOUNCED = "the end of training was announced"
    DATA = "the data ran out"
    HOOK = "a hook of the model asked for it"
    SIGNAL = "told to stop"


class Outcome(NamedTuple):
    """What a worker did.

    Attributes:
      end: why it ended.
      first_step: the global step at which it began.
      global_step: the last global step that it read.
      local_steps: mini-batches that it trained on.
      elapsed_secs: time from its first step to its last.
      staleness: a line on the staleness of its updates, "" if it made none.
    """

    end: End
    first_step: int
    global_step: int
    local_steps: int
    elapsed_secs: float
    staleness: str = ""
