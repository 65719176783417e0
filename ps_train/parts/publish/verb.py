"""The verb `publish`, a process of its own that reads the train_dir: training never waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import flag_help
from ps_train.config.folders import check_data_dir
from ps_train.parts.publish import flags as publish_flags
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, name_train_dir

_GRACE_SECS = 20.0  # for the push at hand; what is cut off, the next publisher writes again


def _publish(argv: Sequence[str]) -> None:
    config = publish_flags.parse_publish(name_train_dir(argv, publish_flags.PublishConfig))
    check_data_dir(config)
    with signals.on_signals() as stop:
        installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
        from ps_train.parts.publish import following  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

        signals.run_until_stopped(lambda: following.publish_until_done(config, stop), stop, _GRACE_SECS)


PUBLISH = Verb(
    usage="""\
  ps_train publish [DIR] --publish_dir=DIR [--targets=TARGET,...]
           Publish changed rows for servers while training goes on.""",
    run=_publish, flags_help=lambda _: flag_help.help_text(publish_flags.PublishConfig))
