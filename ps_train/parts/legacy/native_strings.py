"""Strings of Python 2 in what TensorFlow hands to a script of Python 2: `--python2`.

    session.run, tf.py_func --> bytes --> NativeString --> line.split("\\t"), line == "end", "%s" % line, ...

In Python 2, bytes were text. A `NativeString` is bytes, so it can be written, parsed and fed, and it takes text where
bytes take bytes. What takes nothing but text, such as "".join, refuses it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.classic import sessions

_METHODS = (
    "capitalize", "center", "count", "endswith", "expandtabs", "find", "index", "ljust", "lower", "lstrip", "partition",
    "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
    "strip", "swapcase", "title", "upper", "zfill",
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__add__",
)


class NativeString(bytes):
    """Bytes that take text as well; text stands for its UTF-8."""

    __hash__ = bytes.__hash__  # that of the same text, if it is ASCII

    def __str__(self) -> str:
        return self.decode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __getitem__(self, key: Any) -> NativeString:
        if isinstance(key, slice):
            return NativeString(super().__getitem__(key))
        return NativeString([super().__getitem__(key)])

    def __iter__(self) -> Iterator[NativeString]:
        return (NativeString([number]) for number in super().__iter__())

    def __radd__(self, other: Any) -> Any:
        return NativeString(as_bytes(other) + bytes(self)) if isinstance(other, (str, bytes)) else NotImplemented

    def __mul__(self, times: Any) -> NativeString:
        return NativeString(super().__mul__(times))

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> NativeString:
        return NativeString(as_bytes(str(self) % values))

    def join(self, parts: Iterable[str | bytes]) -> NativeString:
        """Returns the parts with this string between them."""
        return NativeString(super().join(map(as_bytes, parts)))

    def format(self, *args: Any, **kwargs: Any) -> NativeString:
        """Returns this string with values for its braces, as that of text does."""
        return NativeString(as_bytes(str(self).format(*args, **kwargs)))

    def encode(self, encoding: str = "ascii", errors: str = "strict") -> NativeString:
        """Returns this text in an encoding: Python 2 decoded it as ASCII first."""
        return NativeString(self.decode("ascii").encode(encoding, errors))


def _taking_text(name: str) -> Callable[..., Any]:
    method = getattr(bytes, name)

    @functools.wraps(method)
    def call(self: NativeString, *args: Any, **kwargs: Any) -> Any:
        return native(method(self, *map(as_bytes, args), **{key: as_bytes(value) for key, value in kwargs.items()}))

    return call


for _name in _METHODS:
    setattr(NativeString, _name, _taking_text(_name))


def as_bytes(value: Any) -> Any:
    """Returns text as bytes, also inside a tuple; all else as it is."""
    if isinstance(value, tuple):
        return tuple(map(as_bytes, value))
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def native(value: Any) -> Any:
    """Returns bytes as a NativeString, also inside a list, a tuple or an array; all else as it is."""
    if isinstance(value, bytes):
        return NativeString(value)
    if type(value) in (list, tuple):
        return type(value)(map(native, value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return np.frompyfunc(native, 1, 1)(value)
    return value


def install() -> None:
    """Lets sessions return, and `tf.py_func` give to its function, the strings of Python 2."""
    for owner in (sessions.Session, sessions.InteractiveSession):
        owner.run = _returning_native(owner.run)
    py_func = tf.py_func

    @functools.wraps(py_func)
    def native_py_func(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return py_func(functools.wraps(func)(lambda *values: func(*map(native, values))), *args, **kwargs)

    tf.py_func = native_py_func


def _returning_native(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def native_run(*args: Any, **kwargs: Any) -> Any:
        return tf.nest.map_structure(native, run(*args, **kwargs))

    return native_run
