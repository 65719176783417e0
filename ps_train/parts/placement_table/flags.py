"""The flag of the table of variables."""

from __future__ import annotations

import dataclasses
from typing import Any

from ps_train.config.fields import field
from ps_train.config.groups import SAVING
from ps_train.errors import Problem


@dataclasses.dataclass(frozen=True)
class PlacementTableFlags:
    """Whether the table is printed."""

    log_placement: bool = field(False, SAVING, "Print each variable with its ps and its size in bytes.")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns no problem: the flag fits all others."""
        return []
