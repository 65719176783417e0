"""Which checkpoint there is in a train_dir, and whether it fits a model."""

from __future__ import annotations

import os
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError, ConfigError

_MOST_SHOWN = 8


def latest(train_dir: str) -> str | None:
    """Returns the path prefix of the newest checkpoint in the folder, or None."""
    return tf.train.latest_checkpoint(train_dir)


def check_writable(train_dir: str) -> None:
    """Makes the folder where it is missing.

    Raises:
      ConfigError: it cannot be made, or written to.
    """
    try:
        os.makedirs(train_dir, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--train_dir: cannot make {train_dir!r}: {error.strerror}; give a folder that this user "
                          "may write to") from None
    if not os.access(train_dir, os.W_OK | os.X_OK):
        raise ConfigError(f"--train_dir: may not write to {train_dir!r}; give a folder that this user may write to")


def check_fits(path: str, variables: Sequence[tf.Variable]) -> None:
    """Compares the variables of a graph with those in a checkpoint.

    Variables that only the checkpoint has (another optimizer's slots) are fine.

    Raises:
      CheckpointError: a variable is missing there, or has another shape or dtype; the text lists them.
    """
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    differing = []
    for name, (shape, dtype) in sorted(_wanted(variables).items()):
        if name not in shapes:
            differing.append(f"{name} is missing")
        elif shapes[name] != shape:
            differing.append(f"{name} has shape {shapes[name]} instead of {shape}")
        elif dtypes[name] != dtype:
            differing.append(f"{name} is {dtypes[name].name} instead of {dtype.name}")
    if differing:
        more = f" and {len(differing) - _MOST_SHOWN} more" if len(differing) > _MOST_SHOWN else ""
        raise CheckpointError(f"checkpoint {path} is of another model or optimizer: "
                              f"{'; '.join(differing[:_MOST_SHOWN])}{more}; give another --train_dir, or the --model, "
                              "--params and --optimizer that it was trained with")


def _wanted(variables: Sequence[tf.Variable]) -> dict[str, tuple[list[int], tf.DType]]:
    """Returns name -> (shape, dtype) as they stand in a checkpoint: a partitioned variable is one there."""
    wanted = {}
    for variable in variables:
        part = variable._get_save_slice_info()  # noqa: SLF001 (the Saver's own source; there is no public one)
        name, shape = (part.full_name, part.full_shape) if part else (variable.op.name, variable.shape.as_list())
        wanted[name] = (list(shape), variable.dtype.base_dtype)
    return wanted
