"""The flags of dynamic sharding."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from ps_train.config import fields
from ps_train.config.groups import DATA, TRAINING
from ps_train.errors import Problem
from ps_train.runtime.reports import NO_STEP_LIMIT


@dataclasses.dataclass(frozen=True)
class ShardingFlags:
    """How the workers of graph training share the data."""

    dynamic_sharding: bool = fields.field(
        False, DATA, "Hand out ranges of the input files from a queue on ps 0: each example is trained on once an "
        "epoch, even if workers die, and a slow worker gets fewer.", is_shared=True)
    follow: bool = fields.field(
        False, DATA, "With --dynamic_sharding, the files grow: new ones, and lines that are appended, are trained on "
        "once, as they come.", is_shared=True)
    follow_idle_secs: Optional[float] = fields.field(
        None, DATA, "With --follow, training ends when nothing new has come for so long.", unit="seconds", minimum=1,
        unset="never")
    num_epochs: Optional[int] = fields.field(
        None, TRAINING, "Epochs after which training ends (with --dynamic_sharding); without --train_steps there is "
        "no other end then.", unit="epochs", minimum=1, unset="no end but --train_steps", is_shared=True)

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a line for each conflict with another flag."""
        problems = []
        if self.num_epochs is not None and not self.dynamic_sharding:
            problems.append(Problem("flag_without_effect", (
                f"--num_epochs: got {self.num_epochs!r}, which has an effect only with --dynamic_sharding; add that "
                "flag, or use --train_steps")))
        problems += self._problems_of_follow(config)
        if self.dynamic_sharding and getattr(config, "sync_engine", None) == "tensorflow":
            problems.append(Problem("flags_conflict", (
                "--dynamic_sharding: given with --sync_engine=tensorflow, whose updates wait for workers that have no "
                "range left; leave one of them out")))
        schedule = getattr(config, "learning_rate_schedule", "")
        if self._ends_by_epochs(config) and schedule in ("cosine", "polynomial") and config.decay_steps is None:
            problems.append(Problem("flag_missing", (
                f"--decay_steps: not given; --learning_rate_schedule={schedule} needs it with --num_epochs or "
                "--follow, as the last global step is not known")))
        return problems

    def _problems_of_follow(self, config: Any) -> list[Problem]:
        problems = []
        if self.follow and not self.dynamic_sharding:
            problems.append(Problem("flag_missing", "--dynamic_sharding: not given; --follow needs it"))
        if self.follow and self.num_epochs is not None:
            problems.append(Problem("flags_conflict", (
                f"--num_epochs: got {self.num_epochs!r} with --follow, which trains on each line once; leave it out")))
        if self.follow and config.existing_servers:
            problems.append(Problem("flags_conflict", (
                "--follow: given with --existing_servers, which cannot read files that grow; leave one of them out")))
        if self.follow and config.sync_replicas and (config.min_replicas_to_aggregate or 1) > 1:
            problems.append(Problem("flags_conflict", (
                f"--min_replicas_to_aggregate: got {config.min_replicas_to_aggregate} with --follow; training would "
                "end when fewer workers have data, which may come later; leave it out")))
        if self.follow_idle_secs is not None and not self.follow:
            problems.append(Problem("flag_without_effect", (
                f"--follow_idle_secs: got {self.follow_idle_secs!r}, which has an effect only with --follow; add that "
                "flag, or leave this one out")))
        return problems

    def part_defaults(self) -> dict[str, Any]:
        """Returns name -> value of the flags of others whose default follows from those of the part."""
        return {"train_steps": NO_STEP_LIMIT} if self._ends_by_epochs(self) else {}

    def _ends_by_epochs(self, config: Any) -> bool:
        return (config.num_epochs is not None or config.follow) and "train_steps" not in config.given
