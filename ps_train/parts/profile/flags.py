"""The flag of a profile."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ps_train.config import fields
from ps_train.config.groups import SAVING
from ps_train.errors import ConfigError, Problem

_MAX_PROFILED_STEPS = 1000  # a step has hundreds of events, thousands for a large model


def parse_steps(flag: str, text: str) -> range:
    """Returns the steps A to B - 1 for "A:B", or no steps for an empty text.

    Raises:
      ConfigError: the text has another form, or gives no steps or too many; the error names `flag`.
    """
    match = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", text)
    steps = range(int(match[1]), int(match[2])) if match else range(0)
    if text and not 0 < len(steps) <= _MAX_PROFILED_STEPS:
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: A:B with 0 <= A < B, as in 200:220, and "
                          f"at most {_MAX_PROFILED_STEPS} steps")
    return steps


@dataclasses.dataclass(frozen=True)
class ProfileFlags:
    """Which steps are traced."""

    profile_steps: str = fields.field(
        "", SAVING, "Trace the steps that begin at global steps A to B - 1, and report where their time goes, as "
        "a table and a timeline.", unit="A:B", form=parse_steps, unset="none")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a problem for each way in which the flag does not fit the others."""
        problems = []
        if parse_steps("--profile_steps", config.profile_steps).start >= config.train_steps:
            problems.append(Problem(
                "flags_conflict", f"--profile_steps: got {config.profile_steps!r}, but training ends at "
                f"--train_steps={config.train_steps}; start earlier"))
        if config.profile_steps and config.steps_per_execution > 1:
            problems.append(Problem(
                "flags_conflict", f"--steps_per_execution: got {config.steps_per_execution!r} with --profile_steps, "
                "which reports where the time of a single step goes; omit one of them"))
        return problems
