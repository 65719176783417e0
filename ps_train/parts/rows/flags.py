"""The flags of the verb `rows`."""

from __future__ import annotations

import dataclasses
import functools

from ps_train.config import fields
from ps_train.errors import ConfigError, refuse

_field = functools.partial(fields.field, group="Rows of a table")


@dataclasses.dataclass(frozen=True)
class RowsConfig:
    """Which checkpoints to look at, and what to show; raises ConfigError if a value is not allowed or missing."""

    train_dir: str = _field("", help="Folder of the training.", unit="path", unset="none; required")
    checkpoint: str = _field(
        "", help="The checkpoint: its global step, a path such as DIR/model.ckpt-1000, or `best`.",
        unit="STEP, PATH or best", unset="the newest, with its newest delta")
    since: str = _field("", help="Compare with this earlier checkpoint: the rows that moved most.",
                        unit="STEP or PATH", unset="none")
    top: int = _field(20, help="Rows to show with --since.", minimum=1, maximum=100_000)
    strings: bool = _field(False, help="Treat ids of digits as strings.")
    json: bool = _field(False, help="Print one line of JSON.")
    tf_log: bool = _field(False, help="Show the start-up messages of TensorFlow.")

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), type(self)))
        if not self.train_dir:
            raise ConfigError("flag_missing", "--train_dir: not given; give the folder of the training, as in "
                              "`ps_train rows TABLE ID --train_dir=DIR`")
