"""Reads and writes `selection.json`, which remembers the best value and the evaluations without a better one.

    {"last_step": 900,
     "keep_best": {"metric": "accuracy", "is_max": true, "value": 0.97, "step": 600, "num_worse": 3,
                   "checkpoint": "best/model.ckpt-600"},
     "early_stopping": {...the same...}}

Flags with the same metric and direction share their best value, even if an earlier run had only one of the flags.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
from collections.abc import Mapping
from typing import Any

from ps_train.parts.selection.flags import Target

SELECTION_RECORD = "selection.json"
_FLAGS = ("keep_best", "early_stopping")
_log = logging.getLogger(__name__)


@dataclasses.dataclass
class MetricStanding:
    """The best value of a metric, and what followed.

    Attributes:
      metric, is_max: the metric that should improve, and whether larger is better.
      value: the best so far, None before the first evaluation.
      step: the global step at which it was reached.
      num_worse: the evaluations since then.
      checkpoint: the copy that is kept of it, relative to the train_dir; "" if none is.
    """

    metric: str
    is_max: bool
    value: float | None = None
    step: int = 0
    num_worse: int = 0
    checkpoint: str = ""

    def count(self, value: float, step: int) -> bool:
        """Counts an evaluation; returns whether it is the best so far. NaN never is."""
        is_better = not math.isnan(value) and (
            self.value is None or (value > self.value if self.is_max else value < self.value))
        if is_better:
            self.value, self.step, self.num_worse, self.checkpoint = value, step, 0, ""
        else:
            self.num_worse += 1
        return is_better


class SelectionRecord:
    """The record of one train_dir.

    Attributes:
      last_step: the global step of the last evaluation, -1 before the first.
    """

    def __init__(self, train_dir: str, targets: dict[str, Target]) -> None:
        """Reads the record; a flag with another metric than in the file starts without a best value.

        Args:
          targets: name of a flag -> the metric that should improve.

        Raises:
          OSError: it is there, and cannot be read now.
        """
        self._path = os.path.join(train_dir, SELECTION_RECORD)
        content = self._read()
        self.last_step = int(content.get("last_step", -1))
        recorded = [standing for name in _FLAGS if (standing := _parsed(content.get(name)))]
        by_target = {target: next((standing for standing in recorded if (standing.metric, standing.is_max) == target),
                                  MetricStanding(*target)) for target in set(targets.values())}
        self._standings = {name: by_target[target] for name, target in targets.items()}
        # Nothing is kept or stopped without flags, as in a run that only exports: the next run with them goes on.
        self._kept = {} if targets else {name: content[name] for name in _FLAGS if name in content}

    def __getitem__(self, flag: str) -> MetricStanding:
        return self._standings[flag]

    def count(self, values: Mapping[str, float], step: int) -> list[MetricStanding]:
        """Counts an evaluation once for each metric and direction; returns those in which it is the best so far.

        Args:
          values: name -> value of each metric; without a value it is neither better nor worse.
        """
        self.last_step = step
        standings = {id(standing): standing for standing in self._standings.values()}.values()
        return [standing for standing in standings
                if standing.metric in values and standing.count(values[standing.metric], step)]

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:
                content = json.load(file)
        except FileNotFoundError:
            return {}
        except ValueError as error:
            _log.warning("cannot read %s: %s; starting a new record", self._path, error)
            return {}
        return content if isinstance(content, dict) else {}

    def write(self) -> bool:
        """Writes the record, and returns whether it could; only warns if that fails."""
        content = {"last_step": self.last_step, **self._kept,
                   **{name: dataclasses.asdict(standing) for name, standing in self._standings.items()}}
        temporary_path = f"{self._path}.tmp"
        try:
            with open(temporary_path, "w", encoding="utf-8") as file:
                file.write(json.dumps(content, indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())  # otherwise it could be empty after a loss of power
            os.replace(temporary_path, self._path)
        except OSError as error:
            _log.warning("cannot write %s: %s; a restart would not remember the best value", self._path, error.strerror)
            return False
        return True


def _parsed(content: Any) -> MetricStanding | None:
    try:
        return MetricStanding(**content)
    except TypeError:  # none, or of another version
        return None


def go_back(train_dir: str, step: int | None) -> None:
    """Takes evaluations of steps that will be trained again for undone; only warns if that fails.

    Otherwise the record would suppress the evaluations up to its last step, or end the training.

    Args:
      step: that of the checkpoint from which training will continue; None without one, when the record is removed.
    """
    path = os.path.join(train_dir, SELECTION_RECORD)
    try:
        if step is None:
            os.remove(path)
            _log.info("removed %s, whose checkpoints were removed: evaluations start from the beginning", path)
            return
        record = SelectionRecord(train_dir, {})
        if record.last_step > step:
            _log.info("%s has an evaluation of step %d, but the newest checkpoint is of step %d: evaluations continue "
                      "from there", path, record.last_step, step)
            record.last_step = step
            record.write()
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("cannot change %s, whose checkpoints were removed: %s", path, error.strerror)
