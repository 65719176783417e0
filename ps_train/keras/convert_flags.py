"""The flags of `ps_train convert`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Optional

from ps_train.config import fields
from ps_train.config.task import Config
from ps_train.errors import refuse

_SHARED = frozenset({"model", "params", "hidden_units", "learning_rate", "optimizer", "train_dir", "tf_log"})
_GROUP = "Converting checkpoints"
NOT_HERE = frozenset(fields.rules(Config)) - _SHARED


@dataclasses.dataclass(frozen=True)
class ConvertConfig(Config):
    """What `ps_train convert` is to do.

    Raises:
      ConfigError: a value is not allowed, or a flag is missing or does not apply here; the message names each one.
    """

    to: Optional[str] = fields.field(None, _GROUP, "Kind of checkpoint to write.", choices=("keras", "graph"),
                                      unset="none; required")
    output_dir: str = fields.field("", _GROUP, "Folder to write the checkpoint to; it is read from --train_dir.",
                                    unit="path", unset="none; required")

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), ConvertConfig)
        problems += [f"--{name}: has no effect in `ps_train convert`; leave it out"
                     for name in sorted(self.given & NOT_HERE)]
        if self.to is None:
            problems.append("--to: not given; allowed: keras, graph")
        if "train_dir" not in self.given:
            problems.append("--train_dir: not given; set it to the folder of the checkpoint to convert")
        if not self.output_dir:
            problems.append("--output_dir: not given; set it to the folder for the new checkpoint")
        refuse(problems)
        super().__post_init__()


def parse(argv: Sequence[str]) -> ConvertConfig:
    """Returns what a command line (without program and verb) says.

    Raises:
      ConfigError: it is wrong; the text says how.
    """
    values, given = fields.parse(argv, ConvertConfig)
    return ConvertConfig(**values, given=given)
