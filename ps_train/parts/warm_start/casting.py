"""Whether the values of a checkpoint can be those of variables of another type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError

Wanted = Sequence[tuple[str, tf.DType, str]]  # (variable or table of the model, its type, name in the checkpoint)


def problems_of_kinds(wanted: Wanted, dtypes: Mapping[str, tf.DType]) -> list[str]:
    """Returns a line for each type that is of another kind there: a fraction would be cut off, a text be no number.

    Args:
      dtypes: those of the checkpoint, by name.
    """
    return [f"{name} is {dtype.name} here, {dtypes[saved].name} there" for name, dtype, saved in wanted
            if _kind(dtype) != _kind(dtypes[saved])]


def check_values(wanted: Wanted, dtypes: Mapping[str, tf.DType], reader: Any) -> None:
    """Reads the values whose type differs.

    Args:
      dtypes: those of the checkpoint, by name; of the same kinds.
      reader: of the checkpoint.

    Raises:
      ConfigError: the type here cannot have a value: it would be infinite, or another whole number.
    """
    for name, dtype, saved in wanted:
        if dtype == dtypes[saved]:
            continue
        lost = _lost(reader.get_tensor(saved), dtype)
        if lost.size:
            raise ConfigError("checkpoint_value_too_large", f"--init_checkpoint: {saved} has the {dtypes[saved].name} "
                              f"{lost[0]!s} there, and {name} is {dtype.name} here, which has no such number; make it "
                              f"{dtypes[saved].name} in the model, or name the other variables with --init_map")


def _kind(dtype: tf.DType) -> Any:
    kinds = (dtype.is_floating, dtype.is_integer, dtype.is_complex)
    return kinds if any(kinds) else dtype


def _lost(values: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """Returns the values that a type of the same kind cannot have, other than by rounding."""
    values = np.ravel(values)
    if dtype.is_integer:  # not by comparing arrays, which makes int64 and uint64 fractions
        least, most = dtype.min, dtype.max
        ends = [values.min(), values.max()] if values.size else []
        return np.array([end for end in ends if not least <= int(end) <= most])
    with np.errstate(over="ignore"):
        return values[np.isfinite(values) & ~np.isfinite(values.astype(dtype.as_numpy_dtype))]
