"""Declares the flags of dynamic sharding, and checks them against the others."""

from __future__ import annotations

import dataclasses
from typing import Optional

from ps_train.config import fields
from ps_train.config.groups import DATA, TRAINING


@dataclasses.dataclass(frozen=True)
class ShardingFlags:
    """How the workers of graph training share the data."""

    dynamic_sharding: bool = fields.field(
        False, DATA, "Hand out ranges of the input files from a queue on ps 0: each example is trained on once an "
        "epoch, even if workers die, and a slow worker gets fewer.")
    num_epochs: Optional[int] = fields.field(
        None, TRAINING, "Epochs after which training ends (with --dynamic_sharding); without --train_steps there is "
        "no other end then.", unit="epochs", minimum=1, unset="no end but --train_steps")


def sharding_problems(flags: ShardingFlags, sync_engine: str | None) -> list[str]:
    """Returns a line for each flag that does not fit the others."""
    found = []
    if flags.num_epochs is not None and not flags.dynamic_sharding:
        found.append(f"--num_epochs: got {flags.num_epochs!r}, which has an effect only with --dynamic_sharding; add "
                     "that flag, or use --train_steps")
    if flags.dynamic_sharding and sync_engine == "tensorflow":
        found.append("--dynamic_sharding: given with --sync_engine=tensorflow, whose updates wait for workers that "
                     "have no range left; leave one of them out")
    return found
