"""What a task reports: the values, their lines in its log, and how they reach the launcher.

    task      send(Progress(...), [line]), then it prints the line
                 --> {"lines": ["step 100 of 200 ..."], "progress": {"step": 100, ...}} in the launcher's file
    launcher  decode: each line of that file, one JSON object, back to the value and the lines of the log that have it

The launcher names its file, by an open descriptor, in an environment variable. Without a launcher nothing is sent.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Union

DESCRIPTOR_VARIABLE = "PS_TRAIN_REPORTS_FD"
NO_STEP_LIMIT = 2**53  # train_steps where only --num_epochs ends the training
FINISHING, EVALUATING = "finishing and saving", "evaluating"
MESSAGE_PREFIX = "ps_train: "
_launcher_file: list[int] = []  # its descriptor, if a launcher has started this process


def of_all(step: int, train_steps: int, separator: str = " of ") -> str:
    """Returns a step as a part of all, such as "100 of 200", or alone if their number is unknown or exceeded.

    It is exceeded in a folder that was trained for longer before, or in the last steps of several workers.
    """
    return f"{step}{separator}{train_steps}" if step <= train_steps < NO_STEP_LIMIT else str(step)


def last_step(train_steps: int) -> int | None:
    """Returns the step at which training ends; None where only --num_epochs, or the end of the data, ends it."""
    return train_steps if train_steps < NO_STEP_LIMIT else None


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
        return (f"step {of_all(self.step, self.train_steps)}  loss {self.loss:.4g}  {self.steps_per_sec:.1f} steps/s  "
                f"{self.examples_per_sec:.0f} examples/s")


class Stage(NamedTuple):
    """What the chief does after its last training step.

    Attributes:
      step: the global step.
      train_steps: the global step at which training was to end.
      activity: what it does, such as "evaluating".
    """

    step: int
    train_steps: int
    activity: str

    def format(self) -> str:
        """Returns the line."""
        return f"step {of_all(self.step, self.train_steps)}, {self.activity}"


class Failure(NamedTuple):
    """Why a process ends with an error.

    Attributes:
      message: what is wrong and what to do, a line for each problem; empty if only a traceback is known.
      missing_data: what is wrong with a data file that cannot be fetched, without the advice; "" for other failures.
      is_in_user_code: whether the traceback of the user's own code is in the log before the message.
      is_requested: whether `ps_train stop` was the reason.
    """

    message: Sequence[str]
    missing_data: str = ""
    is_in_user_code: bool = False
    is_requested: bool = False

    def lines(self) -> list[str]:
        """Returns the lines of the message as they are printed."""
        return [f"{MESSAGE_PREFIX}{line}" for line in self.message]


class Joined(NamedTuple):
    """A task whose code makes its own server has joined its cluster.

    Attributes:
      name: of the task, such as "worker:1".
      ps: the names and addresses of the parameter servers; "" if it has only made a server.
    """

    name: str
    ps: str

    def format(self) -> str:
        """Returns the line."""
        return f"{self.name} has joined {self.ps}"


class Evaluation(NamedTuple):
    """The metrics of one checkpoint on the whole held-out set.

    Attributes:
      global_step: of the checkpoint.
      num_examples: in the set.
      loss_name: the name of the loss.
      loss_sum: summed over the examples.
      metrics: name -> value of each of the model's eval_metric_ops.
      split: the kind of examples.
    """

    global_step: int
    num_examples: int
    loss_name: str
    loss_sum: float
    metrics: Mapping[str, float]
    split: str = "held-out"

    @property
    def loss_mean(self) -> float:
        """The mean loss per example."""
        return self.loss_sum / self.num_examples

    def format(self) -> str:
        """Returns the lines of the final report."""
        lines = [f"After {self.global_step} training steps, on {self.num_examples} {self.split} examples:",
                 f"  {self.loss_name} = {self.loss_sum:.6g} in sum, {self.loss_mean:.6g} in the mean"]
        return "\n".join(lines + [f"  {name} = {value:.4f}" for name, value in sorted(self.metrics.items())])


def evaluation_fields(evaluation: Evaluation) -> dict[str, Any]:
    """Returns the values of an evaluation in a log of JSON."""
    return {"step": evaluation.global_step, "loss": evaluation.loss_mean, "metrics": dict(evaluation.metrics)}


Report = Union[Progress, Stage, Failure, Joined]
_KINDS = {"progress": Progress, "stage": Stage, "failure": Failure, "joined": Joined}


def connect() -> None:
    """Takes the launcher's file, if a launcher has started this process; its children get neither file nor name."""
    descriptor = os.environ.pop(DESCRIPTOR_VARIABLE, "")
    with contextlib.suppress(ValueError, OSError):  # the variable is not ps_train's
        os.set_inheritable(int(descriptor), False)
        _launcher_file[:] = [int(descriptor)]


def is_launched() -> bool:
    """Returns whether a launcher has started this process."""
    return bool(_launcher_file)


def send(report: Report, lines: Sequence[str]) -> None:
    """Sends a report to the launcher, if one has started this process.

    Call it before the lines are printed, so the launcher, which reads the log first, can recognise them. If the disk is
    full, the report is lost, and the launcher shows the lines as they are.

    Args:
      lines: the lines of the log that say the same, each without the time of day.
    """
    if not _launcher_file:
        return
    record = encode(report, lines)
    with contextlib.suppress(OSError):
        # The first line break ends a record that a full disk or a kill has cut short.
        os.write(_launcher_file[0], f"\n{record}\n".encode())


def encode(report: Report, lines: Sequence[str]) -> str:
    """Returns the line of the launcher's file for a report, without its line break; see `send`."""
    (kind,) = [kind for kind, of_kind in _KINDS.items() if isinstance(report, of_kind)]
    return json.dumps({"lines": lines, kind: report._asdict()}, default=float)  # a number of numpy, too


def decode(line: str) -> tuple[Report, list[str]] | None:
    """Returns the report in a line of the launcher's file, and its lines in the log; None if the line is damaged."""
    try:
        record = json.loads(line)
        lines = [str(line) for line in record.pop("lines")]
        [(kind, values)] = record.items()
        return _KINDS[kind](**values), lines
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
