"""The part of tmux in a launch."""

from __future__ import annotations

from typing import Any

from ps_train.part import LaunchPart
from ps_train.parts.tmux.panes import Panes


class TmuxPart(LaunchPart):
    """Shows the tasks in panes, with --tmux."""

    def display(self, launch_config: Any, stream: Any) -> Panes | None:
        """Returns the panes; raises ConfigError if tmux is not installed."""
        return Panes(stream) if launch_config.tmux else None
