"""Reads and writes `selection.json`, which remembers the best value and the evaluations without a better one.

    {"last_step": 900,
     "keep_best": {"metric": "accuracy", "is_max": true, "value": 0.97, "step": 600, "num_worse": 3},
     "early_stopping": {...the same...}}
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
from typing import Any

from ps_train.config.selection import Target

SELECTION_RECORD = "selection.json"
_log = logging.getLogger(__name__)


@dataclasses.dataclass
class MetricStanding:
    """How a metric stands.

    Attributes:
      metric, is_max: what is to become better.
      value: the best so far, None before the first evaluation.
      step: the global step at which it was reached.
      num_worse: the evaluations since then.
    """

    metric: str
    is_max: bool
    value: float | None = None
    step: int = 0
    num_worse: int = 0

    def count(self, value: float, step: int) -> bool:
        """Counts an evaluation; returns whether it is the best so far. NaN never is."""
        is_better = not math.isnan(value) and (
            self.value is None or (value > self.value if self.is_max else value < self.value))
        if is_better:
            self.value, self.step, self.num_worse = value, step, 0
        else:
            self.num_worse += 1
        return is_better


class SelectionRecord:
    """The record of one train_dir.

    Attributes:
      last_step: the global step of the last evaluation, -1 before the first.
    """

    def __init__(self, train_dir: str, targets: dict[str, Target]) -> None:
        """Reads the record; a flag with another metric than in the file starts anew.

        Args:
          targets: name of a flag -> what is to become better.
        """
        self._path = os.path.join(train_dir, SELECTION_RECORD)
        found = self._read()
        self.last_step = int(found.get("last_step", -1))
        self._standings = {name: _standing(found.get(name), target) for name, target in targets.items()}

    def __getitem__(self, flag: str) -> MetricStanding:
        return self._standings[flag]

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read and starts anew: %s", self._path, error)
            return {}
        return found if isinstance(found, dict) else {}

    def write(self) -> None:
        """Writes the record; only warns if that fails."""
        text = {"last_step": self.last_step,
                **{name: dataclasses.asdict(one) for name, one in self._standings.items()}}
        beside = f"{self._path}.tmp"
        try:
            with open(beside, "w", encoding="utf-8") as file:
                json.dump(text, file, indent=2)
                file.write("\n")
            os.replace(beside, self._path)
        except OSError as error:
            _log.warning("cannot write %s: %s; a restart would not remember the best value", self._path, error.strerror)


def forget_selection(train_dir: str) -> None:
    """Removes the record of a folder without a checkpoint, in which a training starts anew; only warns if that fails.

    It is of checkpoints that were removed. It would suppress the evaluations up to its last step, or end the training.
    """
    path = os.path.join(train_dir, SELECTION_RECORD)
    try:
        os.remove(path)
    except FileNotFoundError:
        return
    except OSError as error:
        _log.warning("cannot remove %s, whose checkpoints are gone: %s", path, error.strerror)
        return
    _log.info("removed %s, whose checkpoints are gone: evaluations and the choice of the best start anew", path)


def _standing(found: Any, target: Target) -> MetricStanding:
    new = MetricStanding(target.metric, target.is_max)
    try:
        old = MetricStanding(**found)
    except TypeError:  # none, or of another version
        return new
    return old if (old.metric, old.is_max) == tuple(target) else new
