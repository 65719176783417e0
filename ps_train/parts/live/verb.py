"""The verb `export`, also for live models: it takes the place of that of parts/inference."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import flag_help
from ps_train.config.folders import check_data_dir
from ps_train.parts.live.flags import LiveExportConfig, parse_live_export
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, reading_train_dir

_GRACE_SECS = 5.0  # nothing is to be saved


def _export(argv: Sequence[str]) -> None:
    with reading_train_dir(argv, LiveExportConfig, needs="checkpoint") as words, signals.on_signals() as stop:
        config = parse_live_export(words)
        check_data_dir(config)
        installed.import_tensorflow(needs_gpu=True, tf_log=config.tf_log)
        from ps_train.parts.live import exporting  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

        signals.run_until_stopped(lambda: exporting.export_live_or_plain(config), stop, _GRACE_SECS)


EXPORT = Verb(
    usage="""\
  ps_train export [DIR] --export_dir=DIR [--live]
           Write a SavedModel of a checkpoint, for TensorFlow Serving.""",
    run=_export, flags_help=lambda _: flag_help.help_text(LiveExportConfig))
