"""pandas, as code of TensorFlow 1's time uses it: columns of its own types, and methods that were taken away.

    pandas is imported by the script --> its methods are there again
    an array's dtype is one of pandas' own --> TensorFlow's dtype for it

pandas takes a second to import, so nothing here imports it.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Callable

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf1
from tensorflow.python.framework import dtypes


def take_column_types() -> None:
    """Lets TensorFlow take the dtype of a column of strings or categories, or of numbers with gaps. Call it once."""
    as_dtype = _takes_pandas_types(dtypes.as_dtype)
    for module in (dtypes, tf1, tf1.dtypes, tf2, tf2.dtypes, tf2.compat.v1, tf2.compat.v1.dtypes, tf2.compat.v2,
                   tf2.compat.v2.dtypes):
        module.as_dtype = as_dtype


def _takes_pandas_types(function: Callable) -> Callable:
    @functools.wraps(function)
    def as_dtype(type_value: Any) -> Any:
        # pandas_input_fn and numpy_input_fn ask for the dtype of each array that they will feed.
        if any(base.__name__ == "ExtensionDtype" for base in type(type_value).__mro__):
            if hasattr(type_value, "categories"):
                return as_dtype(type_value.categories.dtype)
            if type_value.type is str:
                return tf1.string
            if issubclass(type_value.type, np.generic):
                return function(np.dtype(type_value.type))
        return function(type_value)
    return as_dtype


def restore_pandas(pandas: types.ModuleType) -> None:
    """Sets the methods and names that pandas has taken away since 0.23."""
    frame, series = pandas.DataFrame, pandas.Series
    for kind in (frame, series):
        _set(kind, "as_matrix", lambda self, columns=None: (self if columns is None else self[columns]).to_numpy())
        _set(kind, "iteritems", lambda self: self.items())
        _set(kind, "append", lambda self, other, ignore_index=False, **_: _append(pandas, self, other, ignore_index))
    _set(frame, "get_value", lambda self, index, column: self.at[index, column])
    _set(series, "get_value", lambda self, label: self.at[label])
    _set(pandas, "np", np)
    pandas.read_csv = _takes_old_arguments(pandas.read_csv)


def _set(owner: Any, name: str, value: Any) -> None:
    if not hasattr(owner, name):
        setattr(owner, name, value)


def _append(pandas: types.ModuleType, first: Any, other: Any, ignore_index: bool) -> Any:
    others = list(other) if isinstance(other, (list, tuple)) else [other]
    if isinstance(first, pandas.DataFrame):  # a Series or a dictionary is one more row
        others = [one if isinstance(one, pandas.DataFrame) else pandas.DataFrame([one]) for one in others]
    return pandas.concat([first, *others], ignore_index=ignore_index)


def _takes_old_arguments(function: Callable) -> Callable:
    @functools.wraps(function)
    def read_csv(*args: Any, **kwargs: Any) -> Any:
        is_error, is_warning = kwargs.pop("error_bad_lines", None), kwargs.pop("warn_bad_lines", True)
        if is_error is not None and "on_bad_lines" not in kwargs:
            kwargs["on_bad_lines"] = "error" if is_error else "warn" if is_warning else "skip"
        if kwargs.pop("delim_whitespace", False):
            kwargs["sep"] = r"\s+"
        for name in ("squeeze", "mangle_dupe_cols", "tupleize_cols"):
            if not kwargs.get(name):
                kwargs.pop(name, None)
        return function(*args, **kwargs)
    return read_csv
