"""The flags of `ps_train export` for live models."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Optional

from ps_train.config import fields
from ps_train.config.task import Config
from ps_train.errors import Problem, refuse
from ps_train.parts.inference.flags import ExportConfig

_field = functools.partial(fields.field, group="Live models")


@dataclasses.dataclass(frozen=True)
class LiveExportConfig(ExportConfig):
    """The flags of `ps_train export`, with those of live models; raises ConfigError as `ExportConfig` does."""

    live: bool = _field(False, help="Write a model whose rows and variables can be replaced while it is served.")
    live_head_room: Optional[float] = _field(
        None, help="Rows that each table of a live model has room for, in multiples of its rows.", minimum=1.0,
        maximum=1000.0, unset="1.5, and at least as many as 500 MB hold")

    def __post_init__(self) -> None:
        problems = self._common_problems("export", "train_dir", "export_dir")
        if "live_head_room" in self.given and not self.live:
            problems.append(Problem("flag_without_effect", "--live_head_room: given without --live; leave it out, or "
                                    "add --live"))
        refuse(problems)


def parse_live_export(argv: Sequence[str]) -> LiveExportConfig:
    """Returns the flags of a command line; raises ConfigError if they are wrong."""
    values, given = fields.parse_flags(argv, LiveExportConfig, others=[Config], help_command="ps_train export --help")
    return LiveExportConfig(**values, given=given)
