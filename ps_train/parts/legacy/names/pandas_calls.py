"""Calls that pandas took when TF1 code was written: arguments by position, and methods that were removed.

    frame.mean(1)   frame.drop("label", 1)   pandas.read_csv(path, ";")   frame.x.str.split(",", 1)
    frame.applymap(f)   frame.fillna(method="ffill")   pandas.get_dummies(frame), which are numbers
    frame.loc[0, "floats"] = ""                   which makes the column one of objects
    frame.corr()   frame.groupby("key").mean()    of the columns with numbers, whatever others there are
    frame.groupby("key").sum()                    of these, too, if there is one
    frame.x.agg(np.std)                           the method of pandas, with n - 1, not the function of numpy
    pandas.read_csv(path)                         "None" is a text there
    row[0]   row[0] = 1                           by position, if the labels are no numbers
    frame.set_value(0, "x", 1)   pandas.to_datetime(texts), of several formats   frame.to_csv(path, line_terminator="")

Text is of the dtype `object`, as before pandas 3. Chained assignment: chained_pandas.py, which changes the code.
"""

from __future__ import annotations

import builtins
import contextlib
import datetime
import functools
import importlib
import inspect
import re
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ps_train.parts.legacy.names.arrays import set_missing, wrap, writable

# Methods whose arguments had another order than today's.
_ORDERS = {"pivot": ("index", "columns", "values"), "pivot_table": ("values", "index", "columns", "aggfunc")}
# Methods that left out the columns without numbers, and until 2.0 did so by default.
_OF_NUMBERS = ("mean", "median", "std", "var", "sem", "skew", "kurt", "prod", "corr", "cov", "quantile")
# Kinds of labels among which no number is one.
_UNNUMBERED = frozenset(("string", "mixed", "bytes", "datetime64", "datetime", "date", "time", "timedelta64"))
_REDUCTIONS = ("sum", "prod", "mean", "median", "std", "var", "min", "max")
_OF_GROUPS = ("mean", "median", "std", "var", "sem", "prod")


def restore_calls(pandas: types.ModuleType) -> None:
    """Changes pandas for this whole process."""
    frame, series = pandas.DataFrame, pandas.Series
    for owner in (pandas, frame, series, series.str):
        _take_positions(owner)
    _keep_text_as_objects(pandas)
    for kind in (frame, series):
        wrap("fillna", _fillna, kind)
        set_missing(kind, "get_values", writable)
    if hasattr(frame, "map"):
        set_missing(frame, "applymap", frame.map)
    for name in _OF_NUMBERS:
        wrap(name, _of_numbers, frame)
    _restore_aggregations(frame, series)
    importlib.import_module("pandas._libs.parsers").STR_NA_VALUES.discard("None")  # since pandas 2
    for name in ("__getitem__", "__setitem__"):
        wrap(name, _by_place, series)
    wrap("replace", _replace_text, series.str)
    wrap("to_csv", _to_csv, frame, series)
    wrap("to_datetime", _to_datetime, pandas)
    set_missing(frame, "set_value", lambda self, index, col, value: _set(self, (index, col), value))
    set_missing(series, "set_value", lambda self, label, value: _set(self, label, value))
    set_missing(pandas, "datetime", datetime.datetime)
    wrap("get_dummies", _get_dummies, pandas)
    set_missing(pandas, "value_counts", lambda values, *args, **kwargs: series(values).value_counts(*args, **kwargs))
    for name in ("set_option", "get_option", "reset_option"):
        wrap(name, _of_display, pandas)
    block = importlib.import_module("pandas.core.internals.blocks").Block  # no public place decides on dtypes
    if "raise_on_upcast" in inspect.signature(block.coerce_to_target_dtype).parameters:  # since pandas 3
        wrap("coerce_to_target_dtype", _with_another_dtype, block)
    if hasattr(pandas, "json_normalize"):
        set_missing(pandas.io.json, "json_normalize", pandas.json_normalize)


def _restore_aggregations(frame: type, series: type) -> None:
    groups, groups_of_one = type(frame({"key": [0]}).groupby("key")), type(series([0]).groupby([0]))
    for name in _OF_GROUPS:
        wrap(name, _of_groups, groups)
    wrap("sum", _sum_of_groups, groups)
    for owner in (frame, series, groups, groups_of_one):
        wrap("agg", _by_name, owner)
        wrap("aggregate", _by_name, owner)
    for owner in (groups, groups_of_one):
        wrap("transform", _by_name, owner)


def _with_another_dtype(original: Callable, block: Any, other: Any, raise_on_upcast: bool = False) -> Any:
    """Gives a column another dtype when a value is set that its own does not have, such as "" among floats."""
    return original(block, other, raise_on_upcast=False)


def _of_display(original: Callable, key: Any, *args: Any, **kwargs: Any) -> Any:
    """Takes `max_columns` and the like for the option of the display, as when the styler had none of that name."""
    try:
        return original(key, *args, **kwargs)
    except KeyError:  # pandas' OptionError: it fits several options
        with contextlib.suppress(KeyError):
            return original(f"display.{key}", *args, **kwargs)
        raise


def _keep_text_as_objects(pandas: types.ModuleType) -> None:
    if int(pandas.__version__.partition(".")[0]) >= 3:
        with warnings.catch_warnings():  # the option is deprecated
            warnings.simplefilter("ignore")
            pandas.set_option("future.infer_string", False)


def _take_positions(owner: Any) -> None:
    """Lets the public functions of an object take what they take by name only by position, too."""
    for name in dir(owner):
        function = inspect.getattr_static(owner, name, None)
        if name.startswith("_") or not isinstance(function, types.FunctionType):
            continue
        parameters = inspect.signature(function).parameters.values()
        first = [part.name for part in parameters if part.kind is part.POSITIONAL_OR_KEYWORD]
        others = [part.name for part in parameters if part.kind is part.KEYWORD_ONLY]
        if others and not any(part.kind is part.VAR_POSITIONAL for part in parameters):
            setattr(owner, name, _by_position(function, first, _ORDERS.get(name, others)))


def _by_position(function: Callable, first: Sequence[str], others: Sequence[str]) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        extra = args[len(first):]
        if len(extra) > len(others):
            return function(*args, **kwargs)  # its own error
        return function(*args[:len(first)], **dict(zip(others, extra)), **kwargs)
    return call


def _fillna(original: Callable, owner: Any, value: Any = None, method: str | None = None, *args: Any,
            **kwargs: Any) -> Any:
    """`fillna`, which took the value before or behind, too: by a `method`."""
    if method is None:
        return original(owner, value, *args, **kwargs)
    fill = owner.ffill if method in ("ffill", "pad") else owner.bfill
    return fill(*args, **kwargs)


def _of_numbers(original: Callable, frame: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) < 3 and "numeric_only" not in kwargs and _has_others(frame):
        kwargs["numeric_only"] = True
    return original(frame, *args, **kwargs)


def _of_groups(original: Callable, groups: Any, *args: Any, **kwargs: Any) -> Any:
    if not args and "numeric_only" not in kwargs and _has_others(groups.obj):
        kwargs["numeric_only"] = True
    return original(groups, *args, **kwargs)


def _sum_of_groups(original: Callable, groups: Any, *args: Any, **kwargs: Any) -> Any:
    """`sum`, which joins text only if there are no numbers."""
    values = groups._obj_with_exclusions  # noqa: SLF001 (without the keys; no public place)
    if not args and "numeric_only" not in kwargs and _has_others(values):
        kwargs["numeric_only"] = values.select_dtypes(include=["number", "bool"]).shape[1] > 0
    return original(groups, *args, **kwargs)


def _by_name(original: Callable, owner: Any, func: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`agg` and the like, which took functions of numpy and Python for the methods of these names until pandas 3."""
    return original(owner, _named(func), *args, **kwargs)


def _named(function: Any) -> Any:
    if isinstance(function, dict):
        return {key: _named(each) for key, each in function.items()}
    if isinstance(function, list):
        return [_named(each) for each in function]
    name = getattr(function, "__name__", "")
    is_known = name in _REDUCTIONS and any(function is getattr(module, name, None) for module in (np, builtins))
    return name if is_known else function


def _has_others(frame: Any) -> bool:
    """Returns whether a table has columns of other things than numbers."""
    return frame.select_dtypes(exclude=["number", "bool"]).shape[1] > 0


def _by_place(original: Callable, series: Any, key: Any, *value: Any) -> Any:
    """`series[0]`: until pandas 3 the element at that place, where the labels are no numbers; others were added."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        labels = getattr(series.index, "categories", series.index)
        if labels.inferred_type in _UNNUMBERED and labels.nlevels == 1 and key not in series.index:
            if not value:
                return series.iloc[key]
            if -len(series) <= key < len(series):
                return series.iloc.__setitem__(key, *value)
    return original(series, key, *value)


def _set(owner: Any, key: Any, value: Any) -> Any:
    owner.at[key] = value
    return owner


def _to_csv(original: Callable, owner: Any, *args: Any, **kwargs: Any) -> Any:
    if "line_terminator" in kwargs:
        kwargs["lineterminator"] = kwargs.pop("line_terminator")
    return original(owner, *args, **kwargs)


def _to_datetime(original: Callable, arg: Any, *args: Any, infer_datetime_format: bool = False, **kwargs: Any) -> Any:
    """Reads each text by a format of its own, as until 2.0, where they do not share that of the first."""
    if len(args) > 3 or any(kwargs.get(name) is not None for name in ("format", "unit")):
        return original(arg, *args, **kwargs)  # more arguments than errors, dayfirst, yearfirst: utc and the format
    mixed = functools.partial(original, arg, *args, **{**kwargs, "format": "mixed"})
    try:
        dates = original(arg, *args, **kwargs)
    except ValueError:
        with contextlib.suppress(ValueError):
            return mixed()
        raise
    if (args or [kwargs.get("errors")])[0] != "coerce" or not _missing(dates):
        return dates
    others = mixed()
    return others if _missing(others) < _missing(dates) else dates


def _missing(dates: Any) -> int:
    """Returns how many of the dates are NaT."""
    return int(np.sum(sys.modules["pandas"].isna(dates)))


def _replace_text(original: Callable, text: Any, pat: Any, repl: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`str.replace`: until 2.0 a pattern of several characters was a regular expression by default."""
    if len(args) < 4 and "regex" not in kwargs:  # n, case, flags, regex
        kwargs["regex"] = isinstance(pat, re.Pattern) or callable(repl) or (isinstance(pat, str) and len(pat) > 1)
    return original(text, pat, repl, *args, **kwargs)


def _get_dummies(original: Callable, *args: Any, **kwargs: Any) -> Any:
    kwargs.setdefault("dtype", "uint8")
    return original(*args, **kwargs)
