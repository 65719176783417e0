"""How far training is, and how it ended: the progress line that a worker prints and a launcher reads back."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

_NUMBER = r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?|nan|inf)"
_LINE = re.compile(rf"step ([0-9]+) of ([0-9]+)  loss ({_NUMBER})  ({_NUMBER}) steps/s  ({_NUMBER}) examples/s")


class Progress(NamedTuple):
    """How far training is.

    Attributes:
      step: the global step.
      train_steps: the global step at which training ends.
      loss: loss of this worker's last mini-batch.
      steps_per_sec: global steps per second, of all workers.
      examples_per_sec: examples per second, of this worker.
    """

    step: int
    train_steps: int
    loss: float
    steps_per_sec: float
    examples_per_sec: float

    def format(self) -> str:
        """Returns the line."""
        return (f"step {self.step} of {self.train_steps}  loss {self.loss:.4g}  {self.steps_per_sec:.1f} steps/s  "
                f"{self.examples_per_sec:.0f} examples/s")


def parse(line: str) -> Progress | None:
    """Returns the Progress in a line of a worker's output, or None where there is none."""
    match = _LINE.search(line)
    if match is None:
        return None
    step, train_steps, loss, steps_per_sec, examples_per_sec = match.groups()
    return Progress(int(step), int(train_steps), float(loss), float(steps_per_sec), float(examples_per_sec))


class End(enum.Enum):
    """Why a worker's training ended."""

    STEPS = "the global step reached train_steps"
    ANNOUNCED = "the end of training was announced"
    DATA = "the data ran out"
    SIGNAL = "told to stop"


class Outcome(NamedTuple):
    """What a worker did.

    Attributes:
      end: why it ended.
      first_step: the global step at which it began.
      global_step: the last global step that it saw.
      local_steps: mini-batches that it trained on.
      elapsed_secs: how long it trained.
      staleness: of its updates, in words, "" where there were none.
    """

    end: End
    first_step: int
    global_step: int
    local_steps: int
    elapsed_secs: float
    staleness: str = ""
