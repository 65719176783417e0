"""Exports SavedModels during training: DIR/NAME/STEP, as Estimator's exporters do."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection

import tensorflow.compat.v1 as tf

from ps_train.errors import PsTrainError, SaveError
from ps_train.parts.inference import serving
from ps_train.storage import checkpoints
from ps_train.tasks.setup import LoadedPlugins

_KEPT = 5  # exports of each exporter but `final`, as in Estimator
_log = logging.getLogger(__name__)


class Exporters:
    """The exporters of one training."""

    def __init__(self, export_dir: str, names: Collection[str], plugins: LoadedPlugins) -> None:
        """Prepares them; exports nothing yet."""
        self._export_dir, self._names, self._plugins = export_dir, names, plugins

    def check(self) -> None:
        """Builds what will be exported.

        Raises:
          UserCodeError: the model cannot be exported.
        """
        if self._names:
            model, params, *_ = self._plugins
            serving.check_exportable(model, params, serving.serving_input_maker(*self._plugins))

    def export(self, name: str, path: str) -> None:
        """Exports a checkpoint, if there is an exporter of that name; during training a failure is only a warning.

        Raises:
          SaveError: the exporter is `final`, and failed.
        """
        if name not in self._names:
            return
        folder = output_dir = os.path.join(self._export_dir, name)
        try:
            output_dir = os.path.join(folder, str(checkpoints.step_of(path)))  # it may have been removed meanwhile
            if _is_newer(output_dir, path):  # of an earlier run
                _log.info("%s is there already", output_dir)
                return
            is_old = os.path.exists(output_dir)
            model, params, *_ = self._plugins
            serving.export_model(path, output_dir, model, params, serving.serving_input_maker(*self._plugins),
                                 replaces=True)
        except (PsTrainError, OSError, tf.errors.OpError) as error:
            if name == "final":
                raise SaveError(f"cannot export {path} to {output_dir}: {error}; the checkpoint is sound; then "
                                "run `ps_train export`") from error
            _log.warning("cannot export %s to %s: %s; training goes on", path, output_dir, error)
            return
        _log.info("exported %s to %s%s", path, output_dir,
                  ", in place of an older model; restart a server that has loaded that one" if is_old else "")
        if name != "final":
            _prune(folder)


def _is_newer(export: str, path: str) -> bool:
    """Tells whether there is an export that was written after a checkpoint."""
    try:
        return os.stat(os.path.join(export, "saved_model.pb")).st_mtime_ns >= os.stat(f"{path}.index").st_mtime_ns
    except FileNotFoundError:
        return False


def _prune(folder: str) -> None:
    versions = sorted((name for name in os.listdir(folder) if name.isdigit()), key=int)
    for old in versions[:-_KEPT]:
        shutil.rmtree(os.path.join(folder, old), ignore_errors=True)
