"""The flag of panes."""

from __future__ import annotations

import dataclasses
from typing import Any

from ps_train.config.fields import field
from ps_train.config.groups import LAUNCH


@dataclasses.dataclass(frozen=True)
class TmuxFlags:
    """Where the output of the tasks is shown."""

    tmux: bool = field(False, LAUNCH, "Show each task in its own tmux pane instead of merging the output.")

    def part_problems(self, config: Any) -> list[str]:
        """Returns no line: the flag fits all others."""
        return []
