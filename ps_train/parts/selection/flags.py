"""The flags of evaluations during training and what follows: the best checkpoint, early stopping, exports."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, NamedTuple

from ps_train.config import fields
from ps_train.errors import ConfigError, Problem
from ps_train.runtime import tensorflow_errors

EXPORTERS = ("latest", "best", "final", "live")
OF_EACH_EVALUATION = {"latest", "live"}

_SELECTION = "Evaluating during training"
_TARGET = re.compile(r"([^:\s]+)(?::(min|max))?")
_STOPPING = re.compile(r"([^:\s]+)(?::(min|max))?:([0-9]{1,9})")
_SMALLER_IS_BETTER = re.compile(r"loss|error|perplexity|mse|mae", re.IGNORECASE)
_field = fields.field


class Target(NamedTuple):
    """A metric that should improve.

    Attributes:
      metric: `loss`, or the name of one of the model's eval_metric_ops.
      is_max: whether larger is better.
    """

    metric: str
    is_max: bool


def parse_target(flag: str, text: str) -> Target | None:
    """Returns the target of METRIC[:min|max], None for ""; raises ConfigError for another form."""
    match = _TARGET.fullmatch(text)
    if text and not match:
        raise ConfigError("flag_malformed",
                          f"{flag}: got {text!r}; allowed: METRIC, METRIC:min or METRIC:max, as in accuracy:max")
    return _target(match[1], match[2]) if match else None


def parse_stopping(flag: str, text: str) -> tuple[Target, int] | None:
    """Returns target and patience of METRIC[:min|max]:PATIENCE, None for ""; raises ConfigError for another form."""
    match = _STOPPING.fullmatch(text)
    if text and not (match and int(match[3])):
        raise ConfigError("flag_malformed",
                          f"{flag}: got {text!r}; allowed: METRIC:PATIENCE or METRIC:min|max:PATIENCE, with a patience "
                          "of at least 1 evaluation, as in accuracy:5")
    return (_target(match[1], match[2]), int(match[3])) if match else None


def parse_exporters(flag: str, text: str) -> tuple[str, ...]:
    """Returns the exporters of a list; raises ConfigError for another name."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in EXPORTERS:
            raise ConfigError("flag_out_of_range", f"{flag}: got {name!r}; allowed: {', '.join(EXPORTERS)}")
    return names


def _target(metric: str, direction: str | None) -> Target:
    return Target(metric, direction == "max" if direction else not _SMALLER_IS_BETTER.search(metric))


@dataclasses.dataclass(frozen=True)
class SelectionFlags:
    """Evaluations during training, by the evaluator or, in a cluster without one, by the chief."""

    eval_steps: int = _field(
        0, _SELECTION, "Global steps between evaluations; checkpoints are saved as often. 0: not by steps.",
        unit="global steps", minimum=0)
    eval_secs: float = _field(
        0.0, _SELECTION, "Time between evaluations; checkpoints are saved as often. 0: not by time.", unit="seconds",
        minimum=0, maximum=10**9)
    keep_best: str = _field(
        "", _SELECTION, "Keep the checkpoint with the best value of this metric in train_dir/best.",
        unit="METRIC[:min|max]", form=parse_target, unset="none; loss, error, perplexity, mse or mae in the name: min")
    early_stopping: str = _field(
        "", _SELECTION, "End training after so many evaluations in a row in which this metric was not better than "
        "before; the best checkpoint is kept as by --keep_best.", unit="METRIC[:min|max]:PATIENCE",
        form=parse_stopping, unset="none")
    export_dir: str = _field(
        "", _SELECTION, "Folder for SavedModels: DIR/final/STEP, DIR/best/STEP, DIR/latest/STEP, DIR/live/STEP.",
        unit="path", unset="none")
    exporters: str = _field(
        "", _SELECTION, "What to export: the last checkpoint, the best, and that of each evaluation; live: that "
        "of each evaluation as a live model, as `ps_train export --live` does.",
        unit="final,best,latest,live", form=parse_exporters,
        unset="final, and best with --keep_best or --early_stopping")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a line for each way in which the flags do not fit the others."""
        exporters = parse_exporters("--exporters", self.exporters)
        problems: list[Problem] = []
        if problem := tensorflow_errors.problem_of_path(self.export_dir):
            problems.append(Problem("path_is_pattern", f"--export_dir: got {self.export_dir!r}; {problem}"))
        if exporters and not self.export_dir:
            problems.append(Problem("flag_missing", f"--exporters: got {self.exporters!r} without --export_dir; give "
                                    "the folder, too"))
        if "best" in exporters and not (self.keep_best or self.early_stopping):
            problems.append(Problem("flag_missing", "--exporters: got 'best' without --keep_best or --early_stopping; "
                                    "say which metric is to be best"))
        return problems
