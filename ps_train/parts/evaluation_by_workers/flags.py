"""The flag of the evaluation by all workers."""

from __future__ import annotations

import dataclasses
from typing import Any

from ps_train.config import fields
from ps_train.config.groups import SAVING
from ps_train.errors import Problem

# Flags of another part, which may be missing (parts/selection/flags.py).
_EVALUATE_DURING_TRAINING = ("eval_steps", "eval_secs", "keep_best", "early_stopping")


@dataclasses.dataclass(frozen=True)
class EvaluationFlags:
    """Which tasks evaluate the last checkpoint."""

    evaluate_with: str = fields.field(
        "chief", SAVING, "Who evaluates at the end: the chief, with all parameters in its own memory, or all workers, "
        "each a share of the held-out data, with the parameters on the ps.", choices=("chief", "workers"),
        is_shared=True)

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a line for each flag that asks for evaluations during training, which only the chief can do."""
        if self.evaluate_with != "workers":
            return []
        during = [name for name in _EVALUATE_DURING_TRAINING if getattr(config, name, None)]
        exporters = getattr(config, "exporters", "").replace(" ", "").split(",")
        during += ["exporters"] if {"latest", "live"} & set(exporters) else []
        return [Problem("flags_conflict", f"--{name}: given with --evaluate_with=workers, which evaluates only at the "
                        "end; leave one of them out") for name in during]
