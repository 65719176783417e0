"""Compares the losses of two trainings, and prints a row for each step or window of steps that both have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ps_train.errors import DataError, UserCodeError
from ps_train.parts.compare.flags import CompareConfig
from ps_train.parts.compare.losses import read_losses
from ps_train.runtime import logs


class LossRow(NamedTuple):
    """The losses of a window of steps.

    Attributes:
      step: the first step of the window.
      before, after: the mean losses.
    """

    step: int
    before: float
    after: float

    @property
    def difference(self) -> float:
        """After - before; infinity if one of the two is no finite number and the other is something else."""
        if self.before == self.after or math.isnan(self.before) and math.isnan(self.after):
            return 0.0
        difference = self.after - self.before
        return difference if math.isfinite(difference) else math.inf

    def is_close(self, config: CompareConfig) -> bool:
        """Returns whether the difference is within the tolerances."""
        allowed = config.absolute_tolerance + config.relative_tolerance * abs(self.before)
        # Where the loss before is infinite, so is what is allowed.
        return not self.difference or math.isfinite(self.difference) and abs(self.difference) <= allowed


def print_comparison(before: str, after: str, config: CompareConfig) -> None:
    """Prints the table.

    Raises:
      DataError: a place has no losses, or the two have no window in common.
      UserCodeError: the losses differ by more than the tolerances.
    """
    rows = common_rows(read_losses(before, config), read_losses(after, config), config.window_steps)
    if not rows:
        raise DataError("no_common_steps", f"{before} and {after} have a loss at no common step; "
                        "compare means over N steps with --window_steps=N")
    for line in lines_of(rows, config):
        logs.show(line)
    if far := [row for row in rows if not row.is_close(config)]:
        raise UserCodeError("losses_differ", (
            f"the losses differ by more than --relative_tolerance={config.relative_tolerance:g} and "
            f"--absolute_tolerance={config.absolute_tolerance:g} allow in {len(far)} of {len(rows)} rows, first at "
            f"step {far[0].step}"))


def common_rows(before: Mapping[int, float], after: Mapping[int, float], window_steps: int) -> list[LossRow]:
    """Returns a row for each window of steps in which both have a loss."""
    windows = [_means(losses, window_steps) for losses in (before, after)]
    return [LossRow(window * window_steps, windows[0][window], windows[1][window])
            for window in sorted(windows[0].keys() & windows[1].keys())]


def _means(losses: Mapping[int, float], window_steps: int) -> dict[int, float]:
    by_window: dict[int, list[float]] = {}
    for step, loss in losses.items():
        by_window.setdefault(step // window_steps, []).append(loss)
    # Not `fmean`, which refuses infinity beside minus infinity.
    return {window: sum(found) / len(found) for window, found in by_window.items()}


def lines_of(rows: Sequence[LossRow], config: CompareConfig) -> list[str]:
    """Returns the lines of the table: some of the rows, evenly spread, the one that differs most, and what that is."""
    most = max(rows, key=lambda row: abs(row.difference))
    count = min(len(rows), config.max_rows)
    spread = {round(index * (len(rows) - 1) / max(1, count - 1)) for index in range(count)}
    shown = sorted({rows[index] for index in spread} | {most})
    lines = [f"{'step':>10} {'before':>12} {'after':>12} {'difference':>12}"]
    lines += [f"{row.step:>10} {row.before:>12.6g} {row.after:>12.6g} {row.difference:>12.3g}"
              f"{'' if row.is_close(config) else ' *'}" for row in shown]
    what = "steps" if config.window_steps == 1 else f"windows of {config.window_steps} steps"
    return [*lines, f"{len(rows)} {what} compared; largest difference {abs(most.difference):.3g}, at step {most.step}"]
