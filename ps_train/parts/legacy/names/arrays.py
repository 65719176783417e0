"""What numpy and pandas had when TF1 code was written, and how a name of a library is set or replaced."""

from __future__ import annotations

import functools
import io
import math
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import numpy as np

NINF, PZERO, NZERO = -math.inf, 0.0, -0.0
_COPIES_IF_NEEDED = int(np.__version__.partition(".")[0]) >= 2  # numpy 1 refuses copy=None


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


# What `map`, `d.keys()` and the like return, which were lists in Python 2; numpy makes an array of one object of it.
LAZY_TYPES = (map, zip, filter, type({}.keys()), type({}.values()), type({}.items()))


def ragged_array(original: Callable, value: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """Makes an array of objects of rows that differ in length, and takes arrays of one number for the number.

    numpy did the first before 1.24, and the second before 2.4. What `map` and the like return counts as a list.
    """
    if isinstance(value, LAZY_TYPES):
        value = list(value)
    try:
        return original(value, *args, **kwargs)
    except (ValueError, TypeError) as error:
        if not args and kwargs.get("dtype") is None:
            if "inhomogeneous" not in str(error):
                raise
            return original(value, dtype=object)
        objects = original(value, dtype=object)
        numbers = [item.item() if isinstance(item, np.ndarray) and item.size == 1 else item for item in objects.flat]
        if all(number is item for number, item in zip(numbers, objects.flat)):
            raise
        return original(numbers, *args, **kwargs).reshape(objects.shape)


def reshape(original: Callable, a: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """`np.reshape`, whose argument `shape` was called `newshape`; numpy 2.4 refuses that."""
    return of_list(original, a, *([kwargs.pop("newshape")] if "newshape" in kwargs else []), *args, **kwargs)


def of_list(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """A function of arrays, which took lists of rows that differ in length, or of numbers and arrays, too."""
    try:
        return original(*args, **kwargs)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
    return original(*map(_of_objects, args), **{name: _of_objects(value) for name, value in kwargs.items()})


def sum_of(original: Callable, a: Any, *args: Any, **kwargs: Any) -> Any:
    """`np.sum`, which took what a generator yields, too."""
    if isinstance(a, types.GeneratorType):
        return sum(a)
    return of_list(original, a, *args, **kwargs)


_as_array = np.asarray  # before it is wrapped


def _of_objects(value: Any) -> Any:
    """Returns a list that is no array of numbers as an array of objects, and all else as it is."""
    if isinstance(value, (list, tuple)):
        try:
            _as_array(value)
        except ValueError:
            return _as_array(value, dtype=object)
    return value


def expand_dims(original: Callable, a: Any, axis: Any) -> np.ndarray:
    """`np.expand_dims`, which took an axis behind the last one for the last one, before numpy 1.18."""
    is_behind = isinstance(a, np.ndarray) and isinstance(axis, (int, np.integer)) and axis > a.ndim
    return of_list(original, a, a.ndim if is_behind else axis)


# What numpy made of an abstract type as a dtype before 2.4.
_CONCRETE = {np.integer: np.int_, np.signedinteger: np.int_, np.unsignedinteger: np.uint, np.number: np.float64,
             np.inexact: np.float64, np.floating: np.float64, np.complexfloating: np.complex128}


def _takes_abstract_dtypes() -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.zeros(0, np.integer)
    except TypeError:
        return False
    return True


def of_abstract_dtype(original: Callable, *args: Any, **kwargs: Any) -> np.ndarray:
    """A function that makes an array, which took `dtype=np.integer` and the like, too."""
    try:
        return original(*args, **kwargs)
    except TypeError:
        values = [*args, *kwargs.values()]
        concrete = [_CONCRETE.get(value, value) if isinstance(value, type) else value for value in values]
        if all(new is old for new, old in zip(concrete, values)):
            raise
        return original(*concrete[:len(args)], **dict(zip(kwargs, concrete[len(args):])))


# Functions that make arrays, and the place of the argument dtype.
_MAKERS = {"array": 1, "asarray": 1, "full": 2, "full_like": 2}


def with_lowest_bits(original: Callable, *args: Any, **kwargs: Any) -> np.ndarray:
    """A function that makes an array, as `np.array([-1, 300], np.uint8)`, which numpy 2 refuses; here 255 and 44."""
    try:
        return original(*args, **kwargs)
    except OverflowError:
        place = _MAKERS[original.__name__]
        dtype = dict(enumerate(args)).get(place, kwargs.get("dtype"))
        if dtype is None and original.__name__ == "full_like":
            dtype = _as_array(args[0]).dtype
        if dtype is None or len(args) > place + 1:
            raise
    return original(*args[:place], **{**kwargs, "dtype": np.int64}).astype(dtype)


def array(original: Callable, value: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """Makes an array; copy=False means what it did before numpy 2: no copy if none is needed."""
    if kwargs.get("copy") is False and _COPIES_IF_NEEDED:
        kwargs["copy"] = None
    return ragged_array(original, value, *args, **kwargs)


def fromstring(original: Callable, string: Any, dtype: Any = float, count: int = -1, sep: str = "",
               **kwargs: Any) -> np.ndarray:
    """Reads the bytes of an array, too, as before numpy 2.3; such an array can be written to."""
    if sep:
        return original(string, dtype, count, sep, **kwargs)
    data = string.encode("latin-1") if isinstance(string, str) else string
    return np.frombuffer(data, dtype, count).copy()


def load(original: Callable, file: Any, mmap_mode: Any = None, allow_pickle: bool = True, fix_imports: bool = True,
         encoding: str = "latin1", **kwargs: Any) -> Any:
    """`np.load`, which read arrays of objects before 1.16.3; those of Python 2, too, one character for each byte."""
    return original(_bytes_of(file), mmap_mode, allow_pickle, fix_imports, encoding, **kwargs)


def save_array(original: Callable, file: Any, *args: Any, **kwargs: Any) -> Any:
    """`np.save` and the like, which took a file that was opened as text in Python 2."""
    return original(_bytes_of(file), *args, **kwargs)


def _bytes_of(file: Any) -> Any:
    return file.buffer if isinstance(file, io.TextIOWrapper) else file


def stack(original: Callable, *args: Any, **kwargs: Any) -> np.ndarray:
    """Puts arrays together; those of an iterator, too, as `map` and `zip` made lists in Python 2, and ragged lists."""
    if args and isinstance(args[0], Iterator):
        args = (list(args[0]), *args[1:])
    kwargs = {name: list(value) if isinstance(value, Iterator) else value for name, value in kwargs.items()}
    try:
        return original(*args, **kwargs)
    except ValueError as error:
        if not args or "inhomogeneous" not in str(error):
            raise
    return original([_of_objects(each) for each in args[0]], *args[1:], **kwargs)


def histogram(original: Callable, a: Any, bins: Any = 10, *args: Any, **kwargs: Any) -> Any:
    """`np.histogram`, whose argument `density` was called `normed`."""
    if "normed" in kwargs:
        kwargs["density"] = kwargs.pop("normed")
    return original(a, bins, *args, **kwargs)


def percentile_by(original: Callable, a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """`np.percentile` and the like, whose argument `method` was called `interpolation`; numpy 2.4 refuses that."""
    if "interpolation" in kwargs:
        kwargs["method"] = kwargs.pop("interpolation")
    return original(a, q, *args, **kwargs)


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


def show_numbers_as_before() -> None:
    """Lets `repr` of a number of numpy be that number, as before numpy 2: scripts write lists of them into files."""
    if _COPIES_IF_NEEDED:
        np.set_printoptions(legacy="1.25")


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> np.ndarray:
    """`np.isin`, on flat arrays."""
    return np.isin(np.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def asscalar(a: Any) -> Any:
    """Returns the one number of an array, or of a number of numpy's, as Python's."""
    return np.asarray(a).item()


def asfarray(a: Any, dtype: Any = np.float64) -> np.ndarray:
    """Returns an array of floats."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def msort(a: Any) -> np.ndarray:
    """Returns a copy that is sorted along the first axis."""
    return np.sort(a, axis=0)


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> np.ndarray:
    """`np.pad`, at its former place `np.lib.pad`."""
    return np.pad(array, pad_width, mode, **kwargs)


def find_common_type(array_types: Sequence[Any], scalar_types: Sequence[Any]) -> np.dtype:
    """Returns the dtype that holds all; scalars count if they are of a higher kind than the arrays."""
    arrays = np.result_type(*array_types) if len(array_types) else None
    scalars = np.result_type(*scalar_types) if len(scalar_types) else None
    if arrays is None or scalars is None:
        return arrays if scalars is None else scalars
    return scalars if "biufc".find(scalars.kind) > "biufc".find(arrays.kind) else arrays


class _Casts(dict):
    """dtype -> a function that makes arrays of it."""

    def __missing__(self, dtype: Any) -> Callable[[Any], np.ndarray]:
        return lambda value: np.asarray(value).astype(dtype)


class _Sizes(dict):
    """dtype -> its bytes."""

    def __missing__(self, dtype: Any) -> int:
        return np.dtype(dtype).itemsize


cast, nbytes = _Casts(), _Sizes()
sctypes = {
    "int": [np.int8, np.int16, np.int32, np.int64], "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
    "complex": [np.complex64, np.complex128, np.clongdouble], "others": [bool, object, bytes, str, np.void]}


# A wrapper -> the functions of numpy that it wraps.
WRAPPERS = {
    of_abstract_dtype: () if _takes_abstract_dtypes() else (
        "array", "asarray", "arange", "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like",
        "full_like"),
    with_lowest_bits: tuple(_MAKERS) if _COPIES_IF_NEEDED else (),
    print_all: ("set_printoptions", "printoptions", "array2string"), array: ("array",), ragged_array: ("asarray",),
    reshape: ("reshape",), of_list: (
        "resize", "ravel", "squeeze", "transpose", "repeat", "tile", "asanyarray", "atleast_1d", "atleast_2d", "append",
        "delete", "insert", "take", "split", "array_split", "flip", "roll", "swapaxes", "moveaxis", "where", "nonzero",
        "unique", "size", "shape", "ndim", "mean", "std", "var", "prod", "min", "max", "amin", "amax", "argmin",
        "argmax", "any", "all", "sort", "argsort", "cumsum", "zeros_like", "ones_like", "save", "savez",
        "savez_compressed"),
    sum_of: ("sum",), expand_dims: ("expand_dims",),
    fromstring: ("fromstring",), histogram: ("histogram",),
    percentile_by: ("percentile", "quantile", "nanpercentile", "nanquantile"),
    load: ("load",), save_array: ("save", "savez", "savez_compressed"),
    stack: ("vstack", "hstack", "dstack", "column_stack", "stack", "concatenate"),
}


def restore_pandas(pandas: types.ModuleType) -> None:
    """Sets the methods and names that pandas has removed since 0.23."""
    frame, series = pandas.DataFrame, pandas.Series
    for kind in (frame, series):
        set_missing(
            kind, "as_matrix", lambda self, columns=None: writable(self if columns is None else self[columns]))
        set_missing(kind, "iteritems", lambda self: self.items())
        set_missing(
            kind, "append", lambda self, other, ignore_index=False, **_: _append(pandas, self, other, ignore_index))
    set_missing(frame, "get_value", lambda self, index, column: self.at[index, column])
    set_missing(series, "get_value", lambda self, label: self.at[label])
    for kind in (frame, series):
        set_missing(kind, "ix", property(_Mixed))
    set_missing(frame, "sort", lambda self, columns=None, **kwargs: (
        self.sort_index(**kwargs) if columns is None else self.sort_values(columns, **kwargs)))
    set_missing(frame, "from_csv", staticmethod(_from_csv))
    set_missing(pandas, "np", np)
    wrap("read_csv", _read_csv, pandas)


def writable(table: Any) -> np.ndarray:
    """Returns the values of a table, in pandas 3 a copy: its arrays are read-only, and scripts change what they get."""
    values = table.to_numpy()
    return values if values.flags.writeable else values.copy()


class _Mixed:
    """`.ix`: rows and columns by label, and whole numbers by position where the labels are none."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getitem__(self, key: Any) -> Any:
        return self._owner.iloc[self._places(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._owner.iloc[self._places(key)] = value

    def _places(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        return tuple(_place(axis, part) for axis, part in zip(self._owner.axes, keys))


def _place(labels: Any, key: Any) -> Any:
    """Returns positions for what `.ix` took: labels, a slice of them, a mask, or positions."""
    is_list = isinstance(key, (list, np.ndarray)) or hasattr(key, "values")
    parts = (key.start, key.stop) if isinstance(key, slice) else key if is_list else [key]
    if is_list and np.asarray(key).dtype == bool:
        return np.asarray(key)
    if labels.dtype.kind not in "iub" and not any(isinstance(part, str) for part in parts):
        return np.asarray(key) if is_list else key
    if isinstance(key, slice):
        return labels.slice_indexer(key.start, key.stop, key.step)
    return labels.get_indexer_for(np.asarray(key)) if is_list else labels.get_loc(key)


def _from_csv(path: Any, header: Any = 0, sep: str = ",", index_col: Any = 0, **kwargs: Any) -> Any:
    pandas = sys.modules["pandas"]
    return pandas.read_csv(path, header=header, sep=sep, index_col=index_col, **kwargs)


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
