"""How a worker's training ended."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ps_train.coordination.state import NO_DATA


class End(enum.Enum):
    """Why a worker's training ended."""

    STEPS = "the global step reached train_steps"
    ANNOUNCED = "the end of training was announced"
    DATA = NO_DATA
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
      reason: the reason that was announced with the end, "" if none was.
    """

    end: End
    first_step: int
    global_step: int
    local_steps: int
    elapsed_secs: float
    staleness: str = ""
    reason: str = ""

    @property
    def why(self) -> str:
        """Why it ended, in words."""
        return self.reason or self.end.value

    @property
    def is_data_end(self) -> bool:
        """Whether there was no more data, here or for an update."""
        return self.end is End.DATA or self.reason.startswith(NO_DATA)
