"""What the verbs of the tf.distribute road do: `keras`, `launch keras`, `convert`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.keras import convert_flags, flags
from ps_train.keras.strategies import roles
from ps_train.launch import launcher
from ps_train.runtime import installed, legacy_keras, logs, signals


def run_keras(argv: Sequence[str]) -> None:
    """`ps_train keras`: lives the life of one task, or fetches its data."""
    config = flags.parse_task(argv)
    if config.download_only:
        flags.check_installed()
        _import_task(config, needs_gpu=False).download(config)
        return
    cluster = roles.resolve(config)
    flags.check_installed()
    with signals.on_signals() as stop:
        task = _import_task(config, needs_gpu=cluster is None or cluster.job != "ps")
        signals.run(lambda: task.run(config, cluster, stop), stop, config.stop_timeout_secs)


def launch_keras(argv: Sequence[str]) -> None:
    """`ps_train launch keras`: runs all tasks of a strategy on this machine."""
    config, launch_config = flags.parse_launch(argv)
    flags.check_installed()
    launcher.run(config, launch_config, roles.crew_of(config, launch_config))


def run_convert(argv: Sequence[str]) -> None:
    """`ps_train convert`: turns a checkpoint of one road into one of the other."""
    config = convert_flags.parse(argv)
    flags.check_installed()
    _import_task(config, needs_gpu=False).convert(config)


def help_text(verb: str) -> str:
    """Returns the flags of `keras`, `launch` (of `launch keras`) or `convert`."""
    if verb == "convert":
        return fields.help_text(convert_flags.ConvertConfig, omit=convert_flags.NOT_HERE)
    if verb == "launch":
        return fields.help_text(LaunchConfig, flags.KerasConfig, omit=flags.NOT_HERE | flags.PLACED)
    return fields.help_text(flags.KerasConfig, omit=flags.NOT_HERE)


def _import_task(config: Config, needs_gpu: bool):
    """Imports what needs TensorFlow, which reads its settings while it is imported."""
    installed.check_tensorflow()
    if not needs_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    legacy_keras.prefer()
    if not config.tf_log:
        logs.import_tensorflow_quietly()
    from ps_train.keras import task  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    return task
