"""The verb `report`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields
from ps_train.parts.report.flags import ReportConfig, parse_report
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, name_train_dir

_GRACE_SECS = 1.0  # nothing is to be saved


def _report(argv: Sequence[str]) -> None:
    config = parse_report(name_train_dir(argv, ReportConfig))
    with signals.on_signals() as stop:
        installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
        from ps_train.parts.report import writing  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

        signals.run_until_stopped(lambda: writing.write_report(config), stop, _GRACE_SECS)


REPORT = Verb(
    usage="""\
  ps_train report [DIR] [--output=FILE]
           Write what happened in a training as an HTML page.""",
    run=_report, flags_help=lambda _: fields.help_text(ReportConfig))
