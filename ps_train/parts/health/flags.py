"""Declares the flags of the health server."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from ps_train.config.fields import field
from ps_train.config.groups import SAVING
from ps_train.errors import Problem


@dataclasses.dataclass(frozen=True)
class HealthFlags:
    """Where a task serves its health and its metrics.

    Attributes:
      health: in a task that serves them, its `part.TaskHealth`; otherwise None.
    """

    health_port: Optional[int] = field(
        None, SAVING, "Port on which the task serves /healthz, /readyz and Prometheus' /metrics; of several tasks on a "
        "machine each takes the next one.", minimum=1, maximum=65535, unset="none")
    health_host: str = field(
        "localhost", SAVING, "Address at which --health_port listens; 0.0.0.0 for every interface of IPv4.",
        unit="host")
    health: Any = None

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a line for each way in which the flags do not fit each other."""
        if "health_host" in config.given and self.health_port is None:
            return [Problem("flag_without_effect", "--health_host: has an effect only with --health_port; add that "
                            "flag, or leave this one out")]
        return []
