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
from ps_train.storage.checkpoints import BEST

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
          targets: name of a flag -> what is to become better.
        """
        self._path = os.path.join(train_dir, SELECTION_RECORD)
        content = _with_checkpoint(self._read(), os.path.join(train_dir, BEST))
        self.last_step = int(content.get("last_step", -1))
        by_target = {target: _standing(content, target) for target in set(targets.values())}
        self._standings = {name: by_target[target] for name, target in targets.items()}

    def __getitem__(self, flag: str) -> MetricStanding:
        return self._standings[flag]

    def count(self, values: Mapping[str, float], step: int) -> list[MetricStanding]:
        """Counts an evaluation once for each metric and direction; returns those in which it is the best so far."""
        self.last_step = step
        standings = {id(standing): standing for standing in self._standings.values()}.values()
        return [standing for standing in standings if standing.count(values.get(standing.metric, float("nan")), step)]

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:
                content = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read and starts anew: %s", self._path, error)
            return {}
        return content if isinstance(content, dict) else {}

    def write(self) -> None:
        """Writes the record; only warns if that fails."""
        text = {"last_step": self.last_step,
                **{name: dataclasses.asdict(standing) for name, standing in self._standings.items()}}
        temporary_path = f"{self._path}.tmp"
        try:
            with open(temporary_path, "w", encoding="utf-8") as file:
                json.dump(text, file, indent=2)
                file.write("\n")
            os.replace(temporary_path, self._path)
        except OSError as error:
            _log.warning("cannot write %s: %s; a restart would not remember the best value", self._path, error.strerror)


def forget_selection(train_dir: str) -> None:
    """Removes the record of a folder without a checkpoint, where training starts from step 0; only warns if that fails.

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


def _with_checkpoint(content: dict[str, Any], best_dir: str) -> dict[str, Any]:
    """Returns a record in which `keep_best` names its checkpoint; an older version kept it, but did not name it."""
    standing = content.get("keep_best")
    if not isinstance(standing, dict) or "checkpoint" in standing or not os.path.isdir(best_dir):
        return content
    names = [name.removesuffix(".index") for name in os.listdir(best_dir) if name.endswith(".index")]
    return {**content, "keep_best": {**standing, "checkpoint": os.path.join(BEST, names[0]) if names else ""}}


def _standing(content: Mapping[str, Any], target: Target) -> MetricStanding:
    """Returns how a metric stands by all entries of a file that have it."""
    parsed = map(_parsed, (content.get("keep_best"), content.get("early_stopping")))
    known = [standing for standing in parsed
             if standing is not None and (standing.metric, standing.is_max) == tuple(target)]
    with_value = [standing for standing in known if standing.value is not None]
    if not with_value:
        return known[-1] if known else MetricStanding(target.metric, target.is_max)
    # Entries of an older version may differ. The patience is that of early stopping.
    best = (max if target.is_max else min)(with_value, key=lambda standing: standing.value)
    return dataclasses.replace(best, num_worse=known[-1].num_worse)


def _parsed(content: Any) -> MetricStanding | None:
    try:
        return MetricStanding(**content)
    except TypeError:  # none, or of another version
        return None
