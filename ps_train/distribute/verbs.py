"""What the verbs of the tf.distribute road do: `keras`, `launch keras`, `convert`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ps_train import flagset, launch, logs, stopping
from ps_train.config import Config, LaunchConfig
from ps_train.distribute import convert_options, options, roles


def run_keras(argv: Sequence[str]) -> None:
    """`ps_train keras`: lives the life of one task, or fetches its data."""
    config = options.parse_task(argv)
    if config.download_only:
        options.check_installed()
        _import_task(config, needs_gpu=False).download(config)
        return
    cluster = roles.resolve(config)
    options.check_installed()
    with stopping.on_signals() as stop:
        task = _import_task(config, needs_gpu=cluster is None or cluster.job != "ps")
        stopping.run(lambda: task.run(config, cluster, stop), stop, config.stop_timeout_secs)


def launch_keras(argv: Sequence[str]) -> None:
    """`ps_train launch keras`: runs all tasks of a strategy on this machine."""
    config, launch_config = options.parse_launch(argv)
    options.check_installed()
    launch.run(config, launch_config, roles.crew_of(config, launch_config))


def run_convert(argv: Sequence[str]) -> None:
    """`ps_train convert`: turns a checkpoint of one road into one of the other."""
    config = convert_options.parse(argv)
    options.check_installed()
    _import_task(config, needs_gpu=False).convert(config)


def help_text(verb: str) -> str:
    """Returns the flags of `keras`, `launch` (of `launch keras`) or `convert`."""
    if verb == "convert":
        return flagset.help_text(convert_options.ConvertConfig, omit=convert_options.NOT_HERE)
    if verb == "launch":
        return flagset.help_text(LaunchConfig, options.KerasConfig, omit=options.NOT_HERE | options.PLACED)
    return flagset.help_text(options.KerasConfig, omit=options.NOT_HERE)


def _import_task(config: Config, needs_gpu: bool):
    """Imports what needs TensorFlow, which reads its settings while it is imported."""
    if not needs_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if not config.tf_log:
        logs.import_tensorflow_quietly()
    from ps_train.distribute import task  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    return task
