"""Tells when a periodic action is due."""

from __future__ import annotations


class Periodic:
    """Tells when a periodic action is due: whenever a count reaches the next multiple of its period."""

    def __init__(self, period_steps: int, at_once: bool = False) -> None:
        """Prepares it; with a period of 0 it is never due."""
        self._period_steps = period_steps
        self._due_step = 0 if at_once else period_steps

    def is_due(self, step: int) -> bool:
        """Tells whether the action is due at this count; if so, it is due next at a later multiple."""
        if not self._period_steps or step < self._due_step:
            return False
        self._due_step = (step // self._period_steps + 1) * self._period_steps
        return True
