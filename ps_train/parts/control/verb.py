"""The verbs that watch and control a training: `status`, `save`, `stop` and `resume`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Callable

from ps_train.config import fields
from ps_train.parts.control.flags import ControlConfig, StatusConfig, parse_control
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, name_train_dir

_GRACE_SECS = 1.0  # nothing is to be saved


def _run(config: ControlConfig, body: Callable[[Any, threading.Event], None]) -> None:
    """Imports a module that needs TensorFlow, and runs `body(module, stop)` with signals handled."""
    with signals.on_signals() as stop:
        installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
        from ps_train.parts.control import asking  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

        signals.run_until_stopped(lambda: body(asking, stop), stop, _GRACE_SECS)


def _status(argv: Sequence[str]) -> None:
    config = parse_control(name_train_dir(argv, StatusConfig), "status", StatusConfig)
    _run(config, lambda asking, stop: asking.print_status(config, stop))


def _save(argv: Sequence[str]) -> None:
    config = parse_control(name_train_dir(argv, ControlConfig), "save")
    _run(config, lambda asking, stop: asking.save_now(config, stop))


def _stop(argv: Sequence[str]) -> None:
    config = parse_control(name_train_dir(argv, ControlConfig), "stop")
    _run(config, lambda asking, stop: asking.stop_all(config, stop))


def _resume(argv: Sequence[str]) -> None:
    config = parse_control(name_train_dir(argv, ControlConfig), "resume")
    _run(config, lambda asking, stop: asking.print_resume(config))


STATUS = Verb(
    usage="""\
  ps_train status [DIR] [--watch] [--json]
           Show how far a training is, and which of its tasks are alive. Without
           DIR it is the newest run that was launched here.""",
    run=_status, flags_help=lambda _: fields.help_text(StatusConfig))
SAVE = Verb(
    usage="""\
  ps_train save [DIR]
           Let a running training save a checkpoint now.""",
    run=_save, flags_help=lambda _: fields.help_text(ControlConfig))
STOP = Verb(
    usage="""\
  ps_train stop [DIR]
           Let all tasks of a running training save and end.""",
    run=_stop, flags_help=lambda _: fields.help_text(ControlConfig))
RESUME = Verb(
    usage="""\
  ps_train resume [DIR]
           Print the command that continues a training.""",
    run=_resume, flags_help=lambda _: fields.help_text(ControlConfig))
