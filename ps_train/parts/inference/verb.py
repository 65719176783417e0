"""The verbs on a checkpoint: `evaluate`, `predict` and `export`. They need no cluster."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Callable

from ps_train.config import flag_help
from ps_train.config.folders import check_data_dir
from ps_train.parts.inference import flags as inference_flags
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, reading_train_dir

_GRACE_SECS = 5.0  # nothing is to be saved


def _run_stoppably(config: inference_flags.CheckpointFlags, body: Callable[[Any, threading.Event], None]) -> None:
    """Imports a module that needs TensorFlow, and runs `body(module, stop)` with signals handled."""
    check_data_dir(config)
    with signals.on_signals() as stop:
        installed.import_tensorflow(needs_gpu=True, tf_log=config.tf_log)
        from ps_train.parts.inference import on_checkpoint  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

        signals.run_until_stopped(lambda: body(on_checkpoint, stop), stop, _GRACE_SECS)


def _evaluate(argv: Sequence[str]) -> None:
    with reading_train_dir(argv, inference_flags.EvaluateConfig, needs="checkpoint") as words:
        config = inference_flags.parse_evaluate(words)
        _run_stoppably(config, lambda on_checkpoint, stop: on_checkpoint.evaluate_checkpoint(config, stop))


def _export(argv: Sequence[str]) -> None:
    with reading_train_dir(argv, inference_flags.ExportConfig, needs="checkpoint") as words:
        config = inference_flags.parse_export(words)
        _run_stoppably(config, lambda on_checkpoint, stop: on_checkpoint.export_checkpoint(config))


def _predict(argv: Sequence[str]) -> None:
    with reading_train_dir(argv, inference_flags.PredictConfig, needs="checkpoint") as words:
        config = inference_flags.parse_predict(words)
        _run_stoppably(config, lambda on_checkpoint, stop: on_checkpoint.predict_examples(config, stop))


EVALUATE = Verb(
    usage="""\
  ps_train evaluate [DIR] [--split=test|train|validation]
           Evaluate a checkpoint.""",
    run=_evaluate, flags_help=lambda _: flag_help.help_text(inference_flags.EvaluateConfig))
PREDICT = Verb(
    usage="""\
  ps_train predict [DIR] --output=FILE [--input=FILE]
           Predict with a checkpoint or a SavedModel.""",
    run=_predict, flags_help=lambda _: flag_help.help_text(inference_flags.PredictConfig))
EXPORT = Verb(
    usage="""\
  ps_train export [DIR] --export_dir=DIR
           Write a SavedModel of a checkpoint, for TensorFlow Serving.""",
    run=_export, flags_help=lambda _: flag_help.help_text(inference_flags.ExportConfig))
