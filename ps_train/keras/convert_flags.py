"""The flags of `ps_train convert`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Optional

from ps_train.config import fields
from ps_train.config.groups import ModelFlags, OptimizerFlags
from ps_train.config.task import Config
from ps_train.errors import refuse

_GROUP = "Converting checkpoints"


@dataclasses.dataclass(frozen=True)
class ConvertConfig(ModelFlags, OptimizerFlags):
    """The flags of `ps_train convert`, checked.

    Raises:
      ConfigError: a value is not allowed, a flag is missing, or means nothing here; the text names each one.
    """

    to: Optional[str] = fields.field(None, _GROUP, "The road whose checkpoint is made.", choices=("keras", "graph"),
                                      unset="none: give it")
    output_dir: str = fields.field("", _GROUP, "Folder of the checkpoint that is made; that of --train_dir is read.",
                                    unit="path", unset="none: give it")

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), ConvertConfig)
        problems += fields.foreign(self.given, "convert", ConvertConfig)
        if self.to is None:
            problems.append("--to: not given; allowed: keras, graph")
        if not self.train_dir:
            problems.append("--train_dir: not given; it is the folder of the checkpoint that is to be converted")
        if not self.output_dir:
            problems.append("--output_dir: not given; it is the folder for the checkpoint that is made")
        refuse(problems)


def parse_convert(argv: Sequence[str]) -> ConvertConfig:
    """Returns the ConvertConfig of a command line, without program and verb.

    Raises:
      ConfigError: the command line is wrong; the text says how.
    """
    values, given = fields.parse(argv, ConvertConfig, others=[Config])
    return ConvertConfig(**values, given=given)
