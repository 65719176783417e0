"""What is in a train_dir of `ps_train keras`, and how a model comes back from it.

    train_dir/
      ckpt-00001000.keras    the model after that global step: weights, optimizer, architecture (ModelCheckpoint)
      backup-500/            while training is unfinished: its state within an epoch of 500 steps (BackupAndRestore)
      train/ validation/     TensorBoard's event files

Keras writes a checkpoint in place: one that a `kill -9` cut off is found by its zip directory and skipped.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import tf_keras

from ps_train.errors import CheckpointError, UserCodeError
from ps_train.plugins import KerasModel

CHECKPOINT = "ckpt-{step:08d}.keras"
_CHECKPOINT = re.compile(r"ckpt-(\d+)\.keras")
_MOST_SHOWN = 8
_log = logging.getLogger(__name__)


def path_of(train_dir: str, step: int) -> str:
    """Returns the path of the checkpoint of a global step."""
    return os.path.join(train_dir, CHECKPOINT.format(step=step))


def backup_dir(train_dir: str, steps_per_epoch: int) -> str:
    """Returns BackupAndRestore's folder; a backup counts epochs, so it is good for epochs of that length only."""
    return os.path.join(train_dir, f"backup-{steps_per_epoch}")


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


def remove_older(train_dir: str, keep: int) -> None:
    """Leaves the newest checkpoints, and removes the others."""
    for path in list(checkpoints(train_dir).values())[:-keep]:
        os.remove(path)


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
        _fill(made, load(path), path)
        made.optimizer.iterations.assign(step)  # it is the step of the file, whatever the optimizer counted
        _log.info("restored %s", path)
    return made


def load(path: str) -> tf_keras.Model:
    """Returns the model of a checkpoint, compiled.

    Raises:
      CheckpointError: it has a layer, loss or metric that Keras does not know.
    """
    try:
        return tf_keras.models.load_model(path)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {str(error).splitlines()[0]}; a layer, loss or "
                              "metric of your own needs @tf_keras.saving.register_keras_serializable()") from error


def _fill(made: tf_keras.Model, saved: tf_keras.Model, path: str) -> None:
    for kind, mine, theirs in (("weights", made.weights, saved.weights),
                               ("optimizer", made.optimizer.variables, saved.optimizer.variables)):
        differing = _differences(mine, theirs)
        if differing:
            more = f" and {len(differing) - _MOST_SHOWN} more" if len(differing) > _MOST_SHOWN else ""
            raise CheckpointError(f"checkpoint {path} is of another model: {kind}: "
                                  f"{'; '.join(differing[:_MOST_SHOWN])}{more}; give another --train_dir, or the "
                                  "--model, --params and --hidden_units that it was trained with")
        for variable, value in zip(mine, theirs):
            variable.assign(value.numpy())


def _differences(mine: list, theirs: list) -> list[str]:
    if len(mine) != len(theirs):
        return [f"{len(theirs)} variables instead of {len(mine)}"]
    return [f"{variable.name} has shape {value.shape.as_list()} instead of {variable.shape.as_list()}"
            for variable, value in zip(mine, theirs) if variable.shape != value.shape]


def state_number(train_dir: str, steps_per_epoch: int) -> int:
    """Returns a number that tells whether two workers would go on from the same state."""
    newest = newest_sound(train_dir)
    chief = os.path.join(backup_dir(train_dir, steps_per_epoch), "chief")
    backups = sorted(name for name in (os.listdir(chief) if os.path.isdir(chief) else []) if name.endswith(".index"))
    return zlib.crc32(f"{newest and newest[0]} {backups}".encode())
