"""Prints a table of the variables on each ps, before the chief's server starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.graph import devices, placement
from ps_train.part import Part

_MAX_SHOWN = 40
_log = logging.getLogger(__name__)


class PlacementTablePart(Part):
    """The table, in the log of the chief."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether this is the chief, and the flag asks for it."""
        return config.log_placement and cluster.is_chief

    def before_server(self, task: Any) -> None:
        """Prints the table."""
        for line in variable_table(task.graph.savers.variables):
            _log.info("%s", line)


def variable_table(variables: Sequence[tf.Variable]) -> list[str]:
    """Returns the lines of a table of variable, ps and bytes, with a total per ps; of many, the largest only."""
    rows = [(variable.op.name, devices.task_of(variable.device)[1] or 0,
             placement.shape_bytes(variable.shape, variable.dtype.base_dtype)) for variable in variables]
    totals: dict[int, int] = {}
    for _, ps, size in rows:
        totals[ps] = totals.get(ps, 0) + size
    smallest_shown = sorted((size for _, _, size in rows), reverse=True)[:_MAX_SHOWN][-1:]
    shown = [row for row in rows if [row[2]] >= smallest_shown][:_MAX_SHOWN]
    if len(shown) < len(rows):
        shown.append((f"and {len(rows) - len(shown)} smaller ones", "", ""))
    shown += [("all", ps, totals[ps]) for ps in sorted(totals)]
    width = max(len(str(name)) for name, _, _ in shown)
    return [f"{'variable':{width}}  {'ps':>4}  {'bytes':>14}",
            *(f"{name:{width}}  {ps:>4}  {size:>14{',' if size else ''}}" for name, ps, size in shown)]
