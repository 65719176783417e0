"""The flags of `ps_train report`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.errors import ConfigError, refuse

_field = functools.partial(fields.field, group="The report")


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """The folder to report on, and the file to write.

    Raises:
      ConfigError: a value is not allowed or missing.
    """

    train_dir: str = _field("", help="Folder of the training; it may stand without its name: `ps_train report DIR`.",
                            unit="path", unset="none; required")
    output: str = _field("", help="The file to write.", unit="path", unset="report.html in the folder")
    tf_log: bool = _field(False, help="Show the start-up messages of TensorFlow.")

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), type(self)))
        if not self.train_dir:
            raise ConfigError("--train_dir: not given; give the folder of the training, as in `ps_train report DIR`")


def parse_report(argv: Sequence[str]) -> ReportConfig:
    """Returns the flags of a command line; raises ConfigError if it is wrong."""
    values, _ = fields.parse_flags(argv, ReportConfig, help_command="ps_train report --help")
    return ReportConfig(**values)
