"""The verbs of the tf.distribute road: `keras`, `launch keras`, `convert`."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.groups import ModelFlags
from ps_train.config.launch import LaunchConfig
from ps_train.errors import ConfigError
from ps_train.keras import flags
from ps_train.keras.strategies import roles
from ps_train.launch import launcher
from ps_train.runtime import installed, signals


def run_keras(argv: Sequence[str]) -> None:
    """`ps_train keras`: runs one task, or fetches its data."""
    config = flags.parse_keras_task(argv)
    if config.download_only:
        _import_task(config, needs_gpu=False).download_data(config)
        return
    cluster = roles.resolve_cluster(config)
    with signals.on_signals() as stop:
        task = _import_task(config, needs_gpu=cluster is None or cluster.job != "ps")
        signals.run_until_stopped(lambda: task.run_keras_task(config, cluster, stop), stop, config.stop_timeout_secs)


def launch_keras(argv: Sequence[str]) -> None:
    """`ps_train launch keras`: runs all tasks of a strategy on this machine."""
    config, launch_config = flags.parse_keras_launch(argv)
    check_installed()
    launcher.run(config, launch_config, roles.strategy_tasks(config, launch_config))


def run_convert(argv: Sequence[str]) -> None:
    """`ps_train convert`: turns a checkpoint of one road into one of the other."""
    config = flags.parse_convert(argv)
    _import_task(config, needs_gpu=False).convert(config)


def keras_help(verb: str) -> str:
    """Returns the flags of `keras`, `launch` (of `launch keras`) or `convert`."""
    if verb == "convert":
        return fields.help_text(flags.ConvertConfig)
    if verb == "launch":
        return fields.help_text(LaunchConfig, flags.KerasConfig, omit=flags.PLACED)
    return fields.help_text(flags.KerasConfig)


def _import_task(config: ModelFlags, needs_gpu: bool):
    """Imports what needs TensorFlow."""
    check_installed()
    installed.prepare_import(needs_gpu, config.tf_log)
    from ps_train.keras import task  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    return task


def check_installed() -> None:
    """Checks that tf_keras is installed, in TensorFlow's minor version, without importing either.

    Raises:
      ConfigError: it is not; the text says what to install.
    """
    # Keras 3 does not train under MultiWorkerMirroredStrategy (3.15 on TensorFlow 2.21); tf_keras does.
    versions = {}
    for package in ("tensorflow", "tf_keras"):  # TensorFlow may be there under another name
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    minors = {package: ".".join(version.split(".")[:2]) for package, version in versions.items()}
    advice = "`pip install 'tf_keras" + (f"=={minors['tensorflow']}.*" if "tensorflow" in minors else "") + "'`"
    if "tf_keras" not in versions:
        raise ConfigError(f"`ps_train keras` and `ps_train convert` need tf_keras, which is not installed: {advice}, "
                          "or ps_train with its extra: `pip install 'ps_train[keras]'`")
    if len(set(minors.values())) > 1:
        raise ConfigError(f"tf_keras is {versions['tf_keras']} and TensorFlow {versions['tensorflow']}; both must be "
                          f"of the same minor version: {advice}")
