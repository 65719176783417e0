"""What numpy and pandas had when TF1 code was written, and how a name of a library is set or replaced."""

from __future__ import annotations

import functools
import math
import sys
import types
from typing import Any, Callable

import numpy as np

NINF, PZERO, NZERO = -math.inf, 0.0, -0.0


def set_missing(owner: Any, name: str, value: Any) -> None:
    """Sets a name that its owner no longer has."""
    if not hasattr(owner, name):
        setattr(owner, name, value)


def wrap(name: str, wrapper: Callable, *owners: Any) -> None:
    """Replaces a function of the first owner, everywhere, by a wrapper that takes it as the first argument."""
    original = getattr(owners[0], name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)
    for owner in owners:
        setattr(owner, name, call)


def ragged_array(original: Callable, value: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """Makes an array of objects of rows that differ in length, as numpy did before 1.24."""
    try:
        return original(value, *args, **kwargs)
    except ValueError as error:
        if args or kwargs.get("dtype") is not None or "inhomogeneous" not in str(error):
            raise
        return original(value, dtype=object)


def reshape(original: Callable, a: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """`np.reshape`, whose argument `shape` was called `newshape`; numpy 2.4 refuses that."""
    return original(a, *([kwargs.pop("newshape")] if "newshape" in kwargs else []), *args, **kwargs)


def print_all(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Takes threshold=np.nan for an array of any size, as numpy did before 1.14."""
    if _is_nan(kwargs.get("threshold")):
        kwargs["threshold"] = sys.maxsize
    if original.__name__ != "array2string" and len(args) > 1 and _is_nan(args[1]):
        args = (args[0], sys.maxsize, *args[2:])
    return original(*args, **kwargs)


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


def restore_pandas(pandas: types.ModuleType) -> None:
    """Sets the methods and names that pandas has removed since 0.23."""
    frame, series = pandas.DataFrame, pandas.Series
    for kind in (frame, series):
        set_missing(
            kind, "as_matrix", lambda self, columns=None: (self if columns is None else self[columns]).to_numpy())
        set_missing(kind, "iteritems", lambda self: self.items())
        set_missing(
            kind, "append", lambda self, other, ignore_index=False, **_: _append(pandas, self, other, ignore_index))
    set_missing(frame, "get_value", lambda self, index, column: self.at[index, column])
    set_missing(series, "get_value", lambda self, label: self.at[label])
    set_missing(pandas, "np", np)
    wrap("read_csv", _read_csv, pandas)


def _append(pandas: types.ModuleType, first: Any, other: Any, ignore_index: bool) -> Any:
    others = list(other) if isinstance(other, (list, tuple)) else [other]
    if isinstance(first, pandas.DataFrame):  # a Series or a dictionary is one more row
        others = [item if isinstance(item, pandas.DataFrame) else pandas.DataFrame([item]) for item in others]
    return pandas.concat([first, *others], ignore_index=ignore_index)


def _read_csv(original: Callable, *args: Any, **kwargs: Any) -> Any:
    is_error, is_warning = kwargs.pop("error_bad_lines", None), kwargs.pop("warn_bad_lines", True)
    if is_error is not None and "on_bad_lines" not in kwargs:
        kwargs["on_bad_lines"] = "error" if is_error else "warn" if is_warning else "skip"
    if kwargs.pop("delim_whitespace", False):
        kwargs["sep"] = r"\s+"
    for name in ("squeeze", "mangle_dupe_cols", "tupleize_cols"):
        if not kwargs.get(name):
            kwargs.pop(name, None)
    return original(*args, **kwargs)
