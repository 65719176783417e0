"""The flag of the engine of synchronous updates."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from ps_train.config import fields
from ps_train.config.groups import TRAINING
from ps_train.errors import Problem

SYNC_ENGINES = ("ps_train", "tensorflow")


@dataclasses.dataclass(frozen=True)
class SyncEngineFlags:
    """What averages the gradients of synchronous updates."""

    sync_engine: Optional[str] = fields.field(
        None, TRAINING, "Implementation of --sync_replicas: ps_train continues when a worker is lost; tensorflow "
        "is TensorFlow's own SyncReplicasOptimizer.", choices=SYNC_ENGINES, unset="ps_train", is_shared=True)

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a problem for each flag that TensorFlow's class does not fit."""
        problems = []
        if self.sync_engine is not None and not config.sync_replicas:
            problems.append(Problem("flag_without_effect", (
                f"--sync_engine: got {self.sync_engine!r}, which has an effect only with --sync_replicas; add that "
                "flag")))
        if self.sync_engine != "tensorflow":
            return problems
        if config.communication_period > 1:
            problems.append(_conflict("communication_period", "but it does not support rounds of several steps"))
        if config.min_replicas_to_aggregate is not None:
            problems.append(_conflict(
                "min_replicas_to_aggregate", "but it always waits for --replicas_to_aggregate gradients"))
        return problems


def _conflict(flag: str, why: str) -> Problem:
    return Problem("flags_conflict", f"--sync_engine=tensorflow: given with --{flag}, {why}; leave one of them out")
