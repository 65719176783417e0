"""Functions and values of numpy that were taken away, and arguments that it refuses now."""

from __future__ import annotations

import functools
import math
import pkgutil
import sys
from collections.abc import Mapping
from typing import Any, Callable

import numpy as np

NINF, PZERO, NZERO = -math.inf, 0.0, -0.0


def restore_numpy(names: Mapping[str, str]) -> None:
    """Sets the names that numpy does not have, and makes it take the arguments of old. Call it once.

    Args:
      names: name in numpy -> what it was, `module:name`.
    """
    for name, today in names.items():
        if name not in np.__dict__:
            setattr(np, name, pkgutil.resolve_name(today))
    for name in ("set_printoptions", "printoptions", "array2string"):
        setattr(np, name, _prints_all(getattr(np, name)))


def _prints_all(function: Callable) -> Callable:
    """Returns the function, which takes threshold=np.nan for an array of any size, as numpy did before 1.14."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _is_nan(kwargs.get("threshold")):
            kwargs["threshold"] = sys.maxsize
        if function.__name__ != "array2string" and len(args) > 1 and _is_nan(args[1]):
            args = (args[0], sys.maxsize, *args[2:])
        return function(*args, **kwargs)
    return call


def _is_nan(value: Any) -> bool:
    # Scripts also write threshold="nan": Python 2 found every text greater than a number.
    return isinstance(value, str) or (isinstance(value, float) and math.isnan(value))


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> np.ndarray:
    """`np.isin`, on flat arrays."""
    return np.isin(np.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def asfarray(a: Any, dtype: Any = np.float64) -> np.ndarray:
    """Returns an array of floats."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def msort(a: Any) -> np.ndarray:
    """Returns a copy that is sorted along the first axis."""
    return np.sort(a, axis=0)
