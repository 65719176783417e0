"""Functions of Python 2 that return other numbers in Python 3, for code that becomes Python 3.

    round, math.floor, math.ceil    a float: math.ceil(7 / 2.) / 8 is 0.5; round(0.5) is 1.0, and round(2.5) is 3.0
    hash                            the same in every process, of text, numbers and tuples of them
    isinstance                      a numpy.int64 is an int, also for `six.integer_types`

The functions are exchanged where the code reads their names, so `map(round, x)` changes as well, and a function of the
script's own that has such a name does not.
"""

from __future__ import annotations

import ast
import builtins
import decimal
import math
import numbers
import operator
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import six

from ps_train.parts.legacy.python2_calls import call_node

_EXCHANGED = "__ps_train_exchanged__"  # among the built-ins, where the changed code finds it
_IN_MATH = ("floor", "ceil")
_NAMES = ("round", "hash", "isinstance", *_IN_MATH)
_MOST_DIGITS = 330  # a float has none behind them
_EXACT = decimal.Context(prec=2000)
_MASK = 2**64 - 1
_HASHES_OF_TEXT = (str.__hash__, bytes.__hash__, np.str_.__hash__, np.bytes_.__hash__)


def install_functions() -> None:
    """Makes the functions available to the changed code."""
    setattr(builtins, _EXCHANGED, exchanged)
    six.integer_types = (int, np.int64, int)  # TF-Slim asks it; other code takes the last one as `long`


def change_functions(tree: ast.Module) -> ast.Module:
    """Gives code the functions of Python 2."""
    renamed = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "math"
               for alias in node.names if alias.name in _IN_MATH and alias.asname}
    return ast.fix_missing_locations(_Functions({*_NAMES, *renamed}).visit(tree))


class _Functions(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        is_read = node.id in self._names and isinstance(node.ctx, ast.Load)
        return call_node(_EXCHANGED, node, node) if is_read else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        is_read = node.attr in _IN_MATH and isinstance(node.ctx, ast.Load)
        return call_node(_EXCHANGED, node, node) if is_read else node


class WholeFloat(float):
    """A whole number as a float, which is still a size, an index or a `range`, as whole numbers of Python 3 are.

    It remains one in sums, products and the like with whole numbers.
    """

    def __index__(self) -> int:
        """Returns the number."""
        return int(self)

    def __reduce__(self) -> tuple[type, tuple[float]]:
        """Is pickled as a float, for a process that does not know this class."""
        return float, (float(self),)


def _keeping_whole(name: str) -> Callable[..., Any]:
    compute = getattr(float, name)

    def method(self: WholeFloat, *others: Any) -> Any:
        value = compute(self, *others)
        is_whole = all(isinstance(other, (int, WholeFloat)) for other in others) and float(value).is_integer()
        return WholeFloat(value) if is_whole else value
    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
    for _side in ("", "r"):
        setattr(WholeFloat, f"__{_side}{_name}__", _keeping_whole(f"__{_side}{_name}__"))
for _name in ("neg", "abs", "pos"):
    setattr(WholeFloat, f"__{_name}__", _keeping_whole(f"__{_name}__"))


def _to_whole(function: Callable[[float], int]) -> Callable[[Any], float]:
    def to_whole(number: Any) -> float:
        value = math.copysign(number, number)  # a float; unlike `float`, it refuses text
        return WholeFloat(function(value)) if math.isfinite(value) else value
    return to_whole


def round_as_python2(number: Any, ndigits: int = 0) -> Any:
    """Rounds halves away from zero, to a float; what is no number by its own method."""
    if not isinstance(number, (numbers.Real, decimal.Decimal)):
        return round(number, ndigits)
    value, ndigits = float(number), operator.index(ndigits)  # which may be a number of numpy
    if not math.isfinite(value) or ndigits > _MOST_DIGITS:
        return value
    step = decimal.Decimal(1).scaleb(-ndigits)
    rounded = float(decimal.Decimal(value).quantize(step, decimal.ROUND_HALF_UP, _EXACT))
    return WholeFloat(rounded) if ndigits <= 0 else rounded


def is_instance_as_python2(value: Any, classes: Any) -> bool:
    """Returns whether a value is of one of the classes; a numpy.int64 is an int, too."""
    return isinstance(value, classes) or (isinstance(value, np.int64) and isinstance(0, classes))


def hash_as_python2(value: Any) -> int:
    """Returns the hash of 64-bit Python 2 for text, as UTF-8, numbers and tuples; of anything else its own."""
    if isinstance(value, (str, bytes)) and type(value).__hash__ in _HASHES_OF_TEXT:
        return _hash_of_bytes(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    if type(value) is tuple:
        return _hash_of_tuple(value)
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        return _hash_of_fraction(value)
    is_short = isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 2**63
    return _signed(int(value)) if is_short and type(value).__hash__ in (int.__hash__, float.__hash__) else hash(value)


def _hash_of_bytes(data: bytes) -> int:
    # `string_hash` in CPython 2.7, Objects/stringobject.c.
    if not data:
        return 0
    value = data[0] << 7
    for byte in data:
        value = (1000003 * value ^ byte) & _MASK
    return _signed(value ^ len(data))


def _hash_of_tuple(items: tuple) -> int:
    # `tuplehash` in Objects/tupleobject.c.
    value, factor = 0x345678, 1000003
    for others in range(len(items) - 1, -1, -1):
        value = (value ^ hash_as_python2(items[-1 - others])) * factor & _MASK
        factor += 82520 + 2 * others
    return _signed(value + 97531)


def _hash_of_fraction(value: float) -> int:
    # `_Py_HashDouble` in Objects/object.c.
    fraction, exponent = math.frexp(value)
    high = math.trunc(fraction * 2.0**31)
    return _signed(high + math.trunc((fraction * 2.0**31 - high) * 2.0**31) + (exponent << 15))


def _signed(value: int) -> int:
    [signed] = struct.unpack("<q", struct.pack("<Q", value & _MASK))
    return -2 if signed == -1 else signed


_FUNCTIONS: list[tuple[Any, Callable[..., Any]]] = [
    (round, round_as_python2), (hash, hash_as_python2), (isinstance, is_instance_as_python2),
    (math.floor, _to_whole(math.floor)), (math.ceil, _to_whole(math.ceil))]


def exchanged(function: Any) -> Any:
    """Returns the function of Python 2 for one of Python's own; anything else as it is."""
    return next((old for new, old in _FUNCTIONS if function is new), function)
