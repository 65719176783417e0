"""The verb `report` and its flags."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from ps_train.config import fields, flag_help
from ps_train.errors import ConfigError, refuse
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, reading_train_dir

_GRACE_SECS = 1.0  # there is nothing to save
_field = functools.partial(fields.field, group="The report")


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """The folder to report on, and the file to write; raises ConfigError if a value is not allowed or missing."""

    train_dir: str = _field("", help="Folder of the training; it may stand without its name: `ps_train report DIR`.",
                            unit="path", unset="none; required")
    output: str = _field("", help="The file to write.", unit="path", unset="report.html in the folder")
    tf_log: bool = _field(False, help="Show the start-up messages of TensorFlow.")

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), type(self)))
        if not self.train_dir:
            raise ConfigError("flag_missing", "--train_dir: not given; give the folder of the training, as in "
                              "`ps_train report DIR`")


def parse_report(argv: Sequence[str]) -> ReportConfig:
    """Returns the flags of a command line; raises ConfigError if it is wrong."""
    values, _ = fields.parse_flags(argv, ReportConfig, help_command="ps_train report --help")
    return ReportConfig(**values)


def _report(argv: Sequence[str]) -> None:
    with reading_train_dir(argv, ReportConfig, needs="curves") as words, signals.on_signals() as stop:
        config = parse_report(words)
        installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
        from ps_train.parts.report import writing  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

        signals.run_until_stopped(lambda: writing.write_report(config.train_dir, config.output), stop, _GRACE_SECS)


REPORT = Verb(
    usage="""\
  ps_train report [DIR] [--output=FILE]
           Write what happened in a training as an HTML page.""",
    run=_report, flags_help=lambda _: flag_help.help_text(ReportConfig))
