"""How a training has ended, from what its chief has left in the train_dir: the journal, and the newest checkpoint."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_train.config.folders import local_folder
from ps_train.launch.display import duration
from ps_train.storage import journal


class Result(NamedTuple):
    """How a training has ended.

    Attributes:
      why: the reason, in a line.
      metrics: name -> value in the evaluation of the last checkpoint; {} without an evaluation.
      step: the last global step; None if it never trained.
      checkpoint: the newest one in the train_dir, "" without one.
      secs: from the launch to the end.
      exit_codes: of each task, by its name; {} if none was started.
      train_dir: the folder of the training.
      log_dir: that of the tasks' logs, "" if none was started.
      error: what `wait` raises, or None.
    """

    why: str
    metrics: Mapping[str, float]
    step: int | None
    checkpoint: str
    secs: float
    exit_codes: Mapping[str, int]
    train_dir: str
    log_dir: str
    error: BaseException | None

    def __str__(self) -> str:
        """Returns a line such as "step 200: the global step reached train_steps; accuracy 0.9579; 16 s"."""
        step = "" if self.step is None else f"step {self.step}: "
        metrics = "".join(f"{name} {value:.4g}; " for name, value in sorted(self.metrics.items()))
        return f"{step}{self.why}; {metrics}{duration(self.secs)}"


def events_of(train_dir: str) -> Sequence[Mapping[str, Any]]:
    """Returns the events in the journal of a train_dir; none if it cannot be read, or is not known yet."""
    with contextlib.suppress(OSError):
        return journal.read_journal(local_folder(train_dir)) if train_dir else []
    return []


def make_result(
    events: Sequence[Mapping[str, Any]], error: BaseException | None, *, secs: float, exit_codes: Mapping[str, int],
    train_dir: str, log_dir: str,
) -> Result:
    """Returns the result of a training with these events; the other arguments are attributes of it."""
    end: Mapping[str, Any] = next((event for event in reversed(events) if event["event"] == "end"), {})
    steps = [event["step"] for event in events if isinstance(event.get("step"), int)]
    return Result(
        why=str(error).partition("\n")[0] if error else end.get("why", ""), metrics=end.get("metrics") or {},
        step=steps[-1] if steps else None, checkpoint=_newest_checkpoint(train_dir), secs=secs, exit_codes=exit_codes,
        train_dir=train_dir, log_dir=log_dir, error=error)


def _newest_checkpoint(train_dir: str) -> str:
    """Returns the path of the newest checkpoint of a train_dir, as its file "checkpoint" names it, or ""."""
    try:
        with open(os.path.join(local_folder(train_dir), "checkpoint"), encoding="utf-8") as file:
            name = re.match(r'model_checkpoint_path: "(.*)"', file.readline())
    except OSError:
        return ""
    return os.path.join(train_dir, name[1]) if name else ""
