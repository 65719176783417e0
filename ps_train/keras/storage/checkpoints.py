"""What is in a train_dir of `ps_train keras`, and how a model comes back from it.

    train_dir/
      ckpt-00001000.keras    the model after that global step: weights, optimizer, architecture; a user reads it with
                             `tf_keras.models.load_model`
      saving.keras           one that is being written; left behind by a `kill -9`, it is overwritten by the next
      backup-500/            while training is unfinished: its state within an epoch of 500 steps (BackupAndRestore)
      train/ validation/     TensorBoard's event files

A checkpoint that is cut off or damaged is found by its zip directory and its sums, and skipped. One is the same however
--variable_partitioner cuts the variables: it has them whole.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import tf_keras

from ps_train.errors import CheckpointError, UserCodeError
from ps_train.keras.flags import KerasConfig
from ps_train.keras.plugins import KerasModel
from ps_train.keras.storage import weights
from ps_train.runtime.calls import Call
from ps_train.storage.folder_lock import FolderLock

CHECKPOINT = "ckpt-{step:08d}.keras"
_CHECKPOINT = re.compile(r"ckpt-(\d+)\.keras")
_UNFINISHED = "saving.keras"
_MOST_CHARACTERS = 200
_REGISTER = ("a layer, loss or metric of your own that does not stand in the model's module needs "
             "@tf_keras.saving.register_keras_serializable()")
_log = logging.getLogger(__name__)


def path_of(train_dir: str, step: int) -> str:
    """Returns the path of the checkpoint of a global step."""
    return os.path.join(train_dir, CHECKPOINT.format(step=step))


def backup_dir(train_dir: str, steps_per_epoch: int) -> str:
    """Returns BackupAndRestore's folder; a backup counts epochs, so it is good for epochs of that length only."""
    return os.path.join(train_dir, f"backup-{steps_per_epoch}")


def has_training(train_dir: str) -> bool:
    """Tells whether there is something in the folder that a training would go on from: a checkpoint or a backup."""
    return bool(checkpoints(train_dir) or glob.glob(os.path.join(glob.escape(train_dir), "backup-*")))


def checkpoints(train_dir: str) -> dict[int, str]:
    """Returns global step -> path of all checkpoints in the folder, sound or not, in order."""
    names = os.listdir(train_dir) if os.path.isdir(train_dir) else []
    found = {int(match[1]): os.path.join(train_dir, match[0]) for match in map(_CHECKPOINT.fullmatch, names) if match}
    return dict(sorted(found.items()))


def newest_sound(train_dir: str) -> tuple[int, str] | None:
    """Returns (global step, path) of the newest checkpoint that can be read, or None; warns of each other one."""
    for step, path in reversed(checkpoints(train_dir).items()):
        problem = _damage(path)
        if not problem:
            return step, path
        _log.warning("checkpoint %s cannot be read: %s; it is skipped", path, problem)
    return None


def _damage(path: str) -> str:
    """Says what is wrong with a checkpoint, "" for nothing: each file in the zip has a crc."""
    try:
        with zipfile.ZipFile(path) as file:
            broken = file.testzip()
    except (zipfile.BadZipFile, OSError, zlib.error) as error:
        return str(error)
    return f"{broken} in it is damaged" if broken else ""


class Keeper:
    """Writes the checkpoints of one training."""

    def __init__(
        self, config: KerasConfig, model: KerasModel, params: Mapping[str, Any], is_chief: bool, lock: FolderLock
    ) -> None:
        """Prepares it; `model` and `params` make the copy with whole variables that is saved where they are cut."""
        self._train_dir = config.train_dir
        self._keep = config.keep_checkpoint_max
        self._make_whole = (lambda: build_model(model, params)) if config.variable_partitioner else None
        self._is_chief = is_chief
        self._lock = lock
        self._saved_step = -1

    def save(self, model: tf_keras.Model, step: int) -> None:
        """Saves the model under its global step, unless it is saved, and removes older ones.

        Every worker saves, because reading may be a collective; all but the chief into a folder that goes away.
        """
        if step == self._saved_step:
            return
        self._saved_step = step
        if not self._is_chief:
            with tempfile.TemporaryDirectory(prefix="ps_train-") as folder:
                _write(model, os.path.join(folder, _UNFINISHED))
            return
        unfinished = os.path.join(self._train_dir, _UNFINISHED)
        _write(self._whole(model), unfinished)
        self._lock.check()
        os.replace(unfinished, path_of(self._train_dir, step))
        remove_older(self._train_dir, self._keep)

    def _whole(self, model: tf_keras.Model) -> tf_keras.Model:
        """Returns the model with variables that are not cut."""
        if self._make_whole is None:
            return model
        building = Call(self._make_whole, "whole model")  # in a thread that is not in the strategy's scope
        building.join()
        whole = building.result()
        weights.fill(whole, model, "what is trained")
        return whole


def _write(model: tf_keras.Model, path: str) -> None:
    # Outside the main thread tf_keras writes `.keras` once, and then HDF5 under that name (a thread-local default in
    # saving/saving_lib.py), unless it is told the format.
    model.save(path, overwrite=True, save_format="keras_v3")


def remove_older(train_dir: str, keep: int) -> None:
    """Leaves the newest checkpoints, and removes the others."""
    for path in list(checkpoints(train_dir).values())[:-keep]:
        os.remove(path)


def has_backup(train_dir: str, steps_per_epoch: int) -> bool:
    """Tells whether there is a backup for epochs of that length."""
    chief = os.path.join(backup_dir(train_dir, steps_per_epoch), "chief")
    return os.path.isdir(chief) and any(name.endswith(".index") for name in os.listdir(chief))


def begin_of_epochs(train_dir: str, steps_per_epoch: int, step: int) -> int:
    """Returns the step from which whole epochs count: that of the checkpoint or, with a backup, its epoch's first."""
    return step - step % steps_per_epoch if has_backup(train_dir, steps_per_epoch) else step


def remove_backup(train_dir: str, steps_per_epoch: int) -> None:
    """Removes what is left of a backup of training that is done."""
    shutil.rmtree(backup_dir(train_dir, steps_per_epoch), ignore_errors=True)


def build_model(model: KerasModel, params: Mapping[str, Any]) -> tf_keras.Model:
    """Returns the plug-in's model, with the variables of its optimizer made.

    Raises:
      UserCodeError: it returned no compiled, built model.
    """
    made = model.build_model(params=params)
    if not isinstance(made, tf_keras.Model):
        raise UserCodeError(f"{model.name}.build_model returned {type(made).__module__}.{type(made).__name__}; it must "
                            "return a tf_keras.Model (of tf_keras, not of Keras 3)")
    if made.optimizer is None or not made.built:
        what = "is not compiled" if made.optimizer is None else "has no input shape yet: begin it with an Input layer"
        raise UserCodeError(f"{model.name}.build_model: the model {what}; it must return a compiled, built model")
    made.optimizer.build(made.trainable_variables)
    return made


def make_or_restore_model(
    model: KerasModel, params: Mapping[str, Any], train_dir: str
) -> tf_keras.Model:
    """Returns the plug-in's model, with weights and optimizer of the newest sound checkpoint where there is one.

    It is built anew and then filled, so that it has the learning rate that the user gives now. Call it in the
    strategy's scope; `model.optimizer.iterations` is the global step.

    Raises:
      UserCodeError: the plug-in breaks its contract.
      CheckpointError: the checkpoint is of another model.
    """
    made = build_model(model, params)
    newest = newest_sound(train_dir)
    if newest is not None:
        step, path = newest
        weights.fill(made, load(path, model.objects), f"checkpoint {path}")
        made.optimizer.iterations.assign(step)  # it is the step of the file, whatever the optimizer counted
        _log.info("restored %s", path)
    return made


def load(path: str, objects: Mapping[str, Any]) -> tf_keras.Model:
    """Returns the model of a checkpoint, compiled.

    Args:
      objects: name -> classes and functions of the plug-in, which Keras would look for under a wrong module name where
        that begins with "keras" (saving/serialization_lib.py), and not at all where they are not registered.

    Raises:
      CheckpointError: it has a layer, loss or metric that Keras does not know.
    """
    try:
        return tf_keras.models.load_model(path, custom_objects=dict(objects))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {_first_line(error)}; {_REGISTER}") from error


def check_readable(made: tf_keras.Model, model: KerasModel) -> None:
    """Looks, before training, whether a checkpoint of the model can be read when training is done.

    Raises:
      UserCodeError: it has a layer, loss or metric that Keras cannot write or would not find.
    """
    try:
        tf_keras.saving.deserialize_keras_object(tf_keras.saving.serialize_keras_object(made),
                                                 custom_objects=dict(model.objects))
    except Exception as error:  # whatever the user's own get_config or from_config raises
        raise UserCodeError(f"{model.name}.build_model: a checkpoint of this model could not be read: "
                            f"{type(error).__name__}: {_first_line(error)}; {_REGISTER}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:_MOST_CHARACTERS]


def state_number(train_dir: str, steps_per_epoch: int) -> int:
    """Returns a number that tells whether two workers would go on from the same state."""
    newest = newest_sound(train_dir)
    chief = os.path.join(backup_dir(train_dir, steps_per_epoch), "chief")
    backups = sorted(name for name in (os.listdir(chief) if os.path.isdir(chief) else []) if name.endswith(".index"))
    return zlib.crc32(f"{newest and newest[0]} {backups}".encode())
