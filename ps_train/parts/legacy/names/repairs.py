"""What TF1 code expects of TensorFlow, numpy, pandas and absl themselves: they are changed in place.

    TensorFlow   functions that stayed, but no longer do what TF1 code expects, for compat.v1 as well
    numpy        functions and values that were taken away, and arguments that it refuses now
    pandas       columns of its own types, and methods that were taken away; nothing here imports it
    absl         `tf.app.flags` began empty, and took any default
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
import pkgutil
import sys
import types
from typing import Any, Callable

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from absl import flags
from tensorflow.python.framework import dtypes
from tensorflow.python.ops import resource_variable_ops, variables
from tensorflow.python.training import training_util

from ps_train.parts.legacy.classic.sessions import note_global_step
from ps_train.parts.legacy.names import tables


def repair() -> None:
    """Changes TensorFlow, numpy and absl for TF1 code. Call it once."""
    _restore_numpy()
    _take_column_types()
    _restore_flags()
    # In TF1 every variable was an instance of tf.Variable.
    tf.Variable.register(resource_variable_ops.BaseResourceVariable)
    tf.train.string_input_producer = _takes_variables(tf.train.string_input_producer)
    tf.train.get_global_step = training_util.get_global_step = _notes_global_step(training_util.get_global_step)
    tf.Graph.get_collection = _evaluates_losses(tf.Graph.get_collection)
    tf.constant = _takes_ranges(tf.constant)
    tf.data.Dataset.map = _takes_old_map_arguments(tf.data.Dataset.map)
    _move_back()


def _move_back() -> None:
    """Puts names inside TensorFlow where they were in 1.15, and TF1's classes instead of TensorFlow 2's."""
    for module_name, names in tables.MOVED.items():
        module = importlib.import_module(module_name)
        for name, today in names.items():
            if not hasattr(module, name):
                setattr(module, name, pkgutil.resolve_name(today))
    for module_name, names in tables.REPLACED.items():
        for name, today in names.items():
            setattr(importlib.import_module(module_name), name, pkgutil.resolve_name(today))


def _takes_variables(function: Any) -> Any:
    @functools.wraps(function)
    def string_input_producer(string_tensor: Any, *args: Any, **kwargs: Any) -> Any:
        # It asks `not string_tensor`, which a resource variable refuses.
        if isinstance(string_tensor, variables.Variable):  # tf.Variable, of compat.v1, is no base of it
            string_tensor = tf.convert_to_tensor(string_tensor)
        return function(string_tensor, *args, **kwargs)
    return string_input_producer


def _takes_ranges(function: Any) -> Any:
    @functools.wraps(function)
    def constant(value: Any, *args: Any, **kwargs: Any) -> Any:
        # In Python 2, for which such code was written, `range` returned a list.
        return function(list(value) if isinstance(value, range) else value, *args, **kwargs)
    return constant


def _notes_global_step(function: Any) -> Any:
    @functools.wraps(function)
    def get_global_step(graph: tf.Graph | None = None) -> Any:
        note_global_step(graph)
        return function(graph)
    return get_global_step


def _evaluates_losses(function: Any) -> Any:
    @functools.wraps(function)
    def get_collection(self: tf.Graph, name: str, scope: str | None = None) -> list:
        # A wrapper replaces each regularizer's loss, and makes a new tensor whenever it is converted.
        if name == tf.GraphKeys.REGULARIZATION_LOSSES:
            losses = self.get_collection_ref(name)
            losses[:] = [getattr(loss, "_master_tensor", loss) for loss in losses]
        return function(self, name, scope)
    return get_collection


def _takes_old_map_arguments(function: Any) -> Any:
    @functools.wraps(function)
    def map_dataset(self: tf.data.Dataset, map_func: Any, num_parallel_calls: Any = None, *args: Any,
                    num_threads: Any = None, output_buffer_size: Any = None, **kwargs: Any) -> tf.data.Dataset:
        # The last two are those of tf.contrib.data in 1.2 and 1.3.
        mapped = function(self, map_func, num_parallel_calls or num_threads, *args, **kwargs)
        return mapped.prefetch(output_buffer_size) if output_buffer_size else mapped
    return map_dataset


NINF, PZERO, NZERO = -math.inf, 0.0, -0.0


def _restore_numpy() -> None:
    """Sets the names that numpy does not have, and makes it take the arguments of old."""
    for name, today in tables.NUMPY.items():
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


def _take_column_types() -> None:
    """Lets TensorFlow take the dtype of a column of strings or categories, or of numbers with gaps."""
    as_dtype = _takes_pandas_types(dtypes.as_dtype)
    for module in (dtypes, tf, tf.dtypes, tf2, tf2.dtypes, tf2.compat.v1, tf2.compat.v1.dtypes, tf2.compat.v2,
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
                return tf.string
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


def _restore_flags() -> None:
    # TF1's flags began empty; absl has some of its own, such as --log_dir and --v, which scripts define too.
    for name in flags.FLAGS:
        flags.FLAGS[name].allow_override = True
    # Before 1.5 scripts parsed the flags themselves by this private name.
    if not hasattr(flags.FlagValues, "_parse_flags"):
        flags.FlagValues._parse_flags = _parse_flags  # noqa: SLF001
    flags.Flag._set_default = _takes_any_default(flags.Flag._set_default)  # noqa: SLF001 (it has no public name)


def _parse_flags(self: flags.FlagValues, args: list[str] | None = None) -> None:
    if not self.is_parsed():
        self(sys.argv if args is None else [sys.argv[0], *args], known_only=True)


def _takes_any_default(function: Callable) -> Callable:
    """Returns a method that keeps a default that the flag's parser refuses, as argparse did before 1.5."""
    @functools.wraps(function)
    def set_default(self: flags.Flag, value: Any) -> None:
        try:
            function(self, value)
        except (flags.IllegalFlagValueError, AttributeError, TypeError):  # a list's parser calls methods of a text
            self.default = _as_int(value) if isinstance(self.parser, flags.IntegerParser) else value
            self.default_as_str = repr(str(self.default))
            if self.using_default_value:
                self.value = self.default
    return set_default


def _as_int(value: Any) -> Any:
    """Returns the int that numpy's integers and floats such as 1e6 stand for; any other value as it is."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    try:
        return operator.index(value)
    except TypeError:
        return value
