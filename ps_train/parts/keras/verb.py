"""The verbs `keras` and `convert`, and `launch keras`."""

from __future__ import annotations

import contextlib
import importlib.metadata
import types
from collections.abc import Sequence
from typing import cast

from absl import logging as absl_logging

from ps_train.config import flag_help
from ps_train.config.folders import check_data_dir, readable_words
from ps_train.config.groups import ModelFlags
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.launch.training import ParsedTraining
from ps_train.parts.keras import flags
from ps_train.runtime import installed, logs, signals
from ps_train.verbs.verb import Verb


def _run(argv: Sequence[str]) -> None:
    config = flags.parse_keras_task(argv)
    cluster = None if config.download_only else flags.resolve_cluster(config)
    if config.log_format == "json":
        logs.setup_json(cluster.task.name if cluster else "keras")
    if config.strategy != "parameter_server" or cluster is None or cluster.is_chief:  # its other tasks read no data
        check_data_dir(config)
    if config.download_only:
        _import_task(config, needs_gpu=False).download_data(config)
        return
    with signals.on_signals() as stop:
        task = _import_task(config, needs_gpu=cluster is None or cluster.job != "ps")
        signals.run_until_stopped(lambda: task.run_keras_task(config, cluster, stop), stop, config.stop_timeout_secs)


def _import_task(config: flags.KerasConfig, needs_gpu: bool) -> types.ModuleType:
    _import_tensorflow(config, needs_gpu)
    from ps_train.parts.keras import task  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    return task


def _launch(argv: Sequence[str]) -> None:
    """`ps_train launch keras`: runs all tasks of a strategy on this machine."""
    config, launch_config = flags.parse_keras_launch(argv)
    check_installed()
    # A KerasConfig has every flag that the launcher reads.
    ParsedTraining(cast(Config, config), launch_config, flags.strategy_tasks(config, launch_config)).run()


def _convert(argv: Sequence[str]) -> None:
    with readable_words(argv, "checkpoint") as words:
        config = flags.parse_convert(words)
        _import_tensorflow(config, needs_gpu=False)
        from ps_train.parts.keras import conversion  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

        conversion.convert_checkpoint(config)


def _import_tensorflow(config: ModelFlags, needs_gpu: bool) -> None:
    check_installed()
    installed.import_tensorflow(needs_gpu=needs_gpu, tf_log=config.tf_log, needs_keras=True)
    if not config.tf_log:
        absl_logging.set_verbosity(absl_logging.ERROR)  # Keras logs there


def check_installed() -> None:
    """Raises ConfigError if tf_keras is not installed in TensorFlow's minor version; imports neither."""
    # Keras 3 does not train under MultiWorkerMirroredStrategy (3.15 on TensorFlow 2.21); tf_keras does.
    versions = {}
    for package in ("tensorflow", "tensorflow-cpu", "tf_keras"):  # TensorFlow may be there under another name
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    minors = {package: ".".join(version.split(".")[:2]) for package, version in versions.items()}
    tensorflow = next((package for package in versions if package != "tf_keras"), "")
    wanted = f"tf_keras=={minors[tensorflow]}.*" if tensorflow else "tf_keras"
    # tf_keras requires the package `tensorflow`, which pip would install beside another one that has the same files.
    advice, extra = (f"`pip install '{wanted}'`", ", or ps_train with its extra: `pip install 'ps_train[keras]'`"
                     ) if tensorflow == "tensorflow" else (f"`pip install --no-deps '{wanted}'`", "")
    if "tf_keras" not in versions:
        raise ConfigError("package_missing", "`ps_train keras` and `ps_train convert` need tf_keras, which is not "
                          f"installed: {advice}{extra}")
    if tensorflow and minors["tf_keras"] != minors[tensorflow]:
        raise ConfigError("tf_keras_version",
                          f"tf_keras is {versions['tf_keras']} and TensorFlow {versions[tensorflow]}; both must be "
                          f"of the same minor version: {advice}")


KERAS = Verb(
    usage="""\
  ps_train keras --strategy=NAME
           Train a Keras model under a tf.distribute strategy, or run one task
           of such a training.""",
    run=_run, flags_help=lambda _: flag_help.help_text(flags.KerasConfig), has_log=True)
LAUNCH_KERAS = Verb(
    usage="""\
  ps_train launch keras --strategy=NAME
           Run all tasks of a Keras training in the same way.""",
    run=_launch, flags_help=lambda _: flag_help.help_text(LaunchConfig, flags.KerasConfig, omit=flags.PLACED),
    has_log=True)
CONVERT = Verb(
    usage="""\
  ps_train convert --to=keras|graph --train_dir=DIR --output_dir=DIR
           Convert a checkpoint of `train` into one of `keras`, or back.""",
    run=_convert, flags_help=lambda _: flag_help.help_text(flags.ConvertConfig))
