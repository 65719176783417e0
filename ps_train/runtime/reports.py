"""How far training is, and how it ended: the progress line that a worker prints and a launcher reads back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Callable, NamedTuple

_DIST_MNIST_STEP = re.compile(
    r"([0-9]+\.[0-9]+): Worker [0-9]+: training step [0-9]+ done \(global step: ([0-9]+)\)")

_NUMBER = r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?|nan|inf)"
_LINE = re.compile(rf"step ([0-9]+) of ([0-9]+)  loss ({_NUMBER})  ({_NUMBER}) steps/s  ({_NUMBER}) examples/s")
FINISHING, EVALUATING = "finishing and saving", "evaluating"
_STAGE_LINE = re.compile(rf"step ([0-9]+) of ([0-9]+), ({FINISHING}|{EVALUATING})$")


class Progress(NamedTuple):
    """How far training is.

    Attributes:
      step: the global step.
      train_steps: the global step at which training ends.
      loss: loss of this worker's last mini-batch; None where the line does not say it.
      steps_per_sec: global steps per second, of all workers.
      examples_per_sec: examples per second, of this worker.
    """

    step: int
    train_steps: int
    loss: float | None
    steps_per_sec: float
    examples_per_sec: float

    def format(self) -> str:
        """Returns the line."""
        loss = math.nan if self.loss is None else self.loss
        return (f"step {self.step} of {self.train_steps}  loss {loss:.4g}  {self.steps_per_sec:.1f} steps/s  "
                f"{self.examples_per_sec:.0f} examples/s")


def parse(line: str) -> Progress | None:
    """Returns the Progress in a line of a worker's output, or None where there is none."""
    match = _LINE.search(line)
    if match is None:
        return None
    step, train_steps, loss, steps_per_sec, examples_per_sec = match.groups()
    return Progress(int(step), int(train_steps), float(loss), float(steps_per_sec), float(examples_per_sec))


class Stage(NamedTuple):
    """What the chief does when it trains no more.

    Attributes:
      step: the global step.
      train_steps: the global step at which training was to end.
      what: what it does, such as "evaluating".
    """

    step: int
    train_steps: int
    what: str

    def format(self) -> str:
        """Returns the line."""
        return f"step {self.step} of {self.train_steps}, {self.what}"


def parse_stage(line: str) -> Stage | None:
    """Returns the Stage in a line of the chief's output, or None where there is none."""
    match = _STAGE_LINE.search(line)
    return match and Stage(int(match[1]), int(match[2]), match[3])


class Evaluation(NamedTuple):
    """The metrics of one checkpoint on the whole held-out set.

    Attributes:
      global_step: of the checkpoint.
      num_examples: in the set.
      loss_name: what the loss is.
      loss_sum: summed over the examples.
      metrics: name -> value of each of the model's eval_metric_ops.
    """

    global_step: int
    num_examples: int
    loss_name: str
    loss_sum: float
    metrics: Mapping[str, float]

    @property
    def loss_mean(self) -> float:
        """The loss of one example, in the mean."""
        return self.loss_sum / self.num_examples

    def format(self) -> str:
        """Returns the lines of the final report."""
        lines = [f"After {self.global_step} training steps, on {self.num_examples} held-out examples:",
                 f"  {self.loss_name} = {self.loss_sum:.6g} in sum, {self.loss_mean:.6g} in the mean"]
        return "\n".join(lines + [f"  {name} = {value:.4f}" for name, value in sorted(self.metrics.items())])


def reader_of(log_format: str, train_steps: int) -> Callable[[str], Progress | None]:
    """Returns the function that finds the Progress in a line of the chief's output, None where there is none."""
    return _DistMnistReader(train_steps) if log_format == "dist_mnist" else parse


class _DistMnistReader:
    """Reads the script's step lines, one after the other: their times give the rate; they tell no loss."""

    def __init__(self, train_steps: int) -> None:
        self._train_steps = train_steps
        self._first: tuple[float, int] | None = None

    def __call__(self, line: str) -> Progress | None:
        match = _DIST_MNIST_STEP.search(line)
        if match is None:
            return None
        secs, step = float(match[1]), int(match[2])
        self._first = self._first or (secs, step)
        first_secs, first_step = self._first  # from the first on: the time of a single step says little
        rate = (step - first_step) / (secs - first_secs) if secs > first_secs else math.nan
        return Progress(step, self._train_steps, None, rate, math.nan)
