"""What remained of Python 2 in code that Python 3 can read, as it often does in TensorFlow 1 code.

    names      xrange, unicode, reduce, ... in the modules of the user's own
    methods    `d.iteritems()`, `d.has_key(k)`, `iterator.next()`, and what numpy's arrays had: `array.tostring()`
    lists      `map(f, x)[0]`, `len(zip(x, y))`, `d.keys()[0]`, `range(3) + [1]`, `np.array(map(f, x))`

Code that uses them fails in Python 3, so nothing else changes: the division stays that of Python 3.
"""

from __future__ import annotations

import ast
import builtins
import csv
import functools
import importlib
import io
import pickle
import re
import sys
import types
from typing import Any, Callable

import numpy as np

# Functions that the changed code calls; they are among the built-ins, where every module finds them.
_METHOD, _LISTED = "__ps_train_method__", "__ps_train_listed__"


def _reload(module: types.ModuleType) -> types.ModuleType:
    # Scripts load `sys` again for its `setdefaultencoding` only.
    return module if module is sys else importlib.reload(module)


# The built-in functions of Python 2.
NAMES: dict[str, Any] = {
    "xrange": range, "unicode": str, "basestring": str, "long": int, "unichr": chr, "raw_input": input,
    "reduce": functools.reduce, "reload": _reload, "cmp": lambda left, right: (left > right) - (left < right),
}


def _array_item_setter(array: np.ndarray) -> Callable[..., None]:
    def itemset(*arguments: Any) -> None:
        *index, value = arguments
        if index:
            array[index[0] if len(index) == 1 and isinstance(index[0], tuple) else tuple(index)] = value
        else:
            array[...] = value
    return itemset


# Method -> what it is today, of the same object.
_METHODS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "iteritems": lambda owner: lambda: iter(owner.items()),
    "iterkeys": lambda owner: lambda: iter(owner.keys()),
    "itervalues": lambda owner: lambda: iter(owner.values()),
    "has_key": lambda owner: lambda key: key in owner,
    "next": lambda owner: lambda: next(owner),
    "tostring": lambda owner: owner.tobytes,
    "itemset": _array_item_setter,
    "ptp": lambda owner: lambda *args, **kwargs: np.ptp(owner, *args, **kwargs),
}
_VIEWS = ("keys", "values", "items")
_LAZY = ("map", "zip", "filter")
_LAZY_TYPES = (map, zip, filter, range, type({}.keys()), type({}.values()), type({}.items()))
_USED = re.compile(rf"\.\s*({'|'.join(_METHODS)})\s*\(|\b({'|'.join(_LAZY)}|range)\s*\(|\.({'|'.join(_VIEWS)})\(\s*\)")
# Modules whose functions take a list, or what can be made one, but not an iterator.
_TAKE_LISTS = ("np", "numpy", "tf", "random")


def may_be_in(text: str) -> bool:
    """Returns whether a text has something that `Leftovers` may change."""
    return bool(_USED.search(text))


def python2_names_in(text: str) -> dict[str, Any]:
    """Returns the built-in functions of Python 2 that a text may use."""
    return {name: NAMES[name] for name in re.findall(r"[A-Za-z_]\w*", text) if name in NAMES}


def install_changes() -> None:
    """Makes what the changed code calls available."""
    setattr(builtins, _METHOD, _method)
    setattr(builtins, _LISTED, _listed)


def read_files_of_python2() -> None:
    """Lets `pickle` and `csv` take files of either mode, and pickles of Python 2, for this whole process.

    Text of Python 2, such as that of CIFAR-10's pickles, is read as Latin-1: one character for each byte.
    """
    for name in ("load", "loads", "dump"):
        setattr(pickle, name, _of_bytes(getattr(pickle, name)))
    for name in ("reader", "writer"):
        setattr(csv, name, _of_text(getattr(csv, name)))


def _of_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    options = {} if function.__name__ == "dump" else {"encoding": "latin1"}

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        files = [value.buffer if isinstance(value, io.TextIOWrapper) else value for value in args]
        return function(*files, **{**options, **given})
    return call


def _of_text(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(file: Any, *args: Any, **given: Any) -> Any:
        if isinstance(file, (io.BufferedIOBase, io.RawIOBase)):
            file = io.TextIOWrapper(file, newline="", write_through=True)
        return function(file, *args, **given)
    return call


def _method(owner: Any, name: str) -> Callable[..., Any]:
    """Returns a method of an object; what it is today if the object has none of that name."""
    method = getattr(owner, name, None)
    if method is not None:
        return method
    # An object with neither gets Python's own error about the name that the script wrote.
    fits = {"tostring": "tobytes", "itemset": "dtype", "ptp": "dtype", "next": "__next__", "has_key": "__contains__",
            "iterkeys": "keys", "itervalues": "values"}.get(name, "items")
    return _METHODS[name](owner) if hasattr(owner, fits) else getattr(owner, name)


def _listed(value: Any) -> Any:
    """Returns the list that Python 2 would have made; any other value as it is."""
    return list(value) if isinstance(value, _LAZY_TYPES) else value


class Leftovers(ast.NodeTransformer):
    """Changes the calls of old methods, and makes lists where only a list will do."""

    def __init__(self, tree: ast.AST) -> None:
        self._lists = _names_used_as_lists(tree)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _METHODS and not _is_super(function.value):
            if function.attr != "next" or not (node.args or node.keywords):
                node.func = _call(_METHOD, function, function.value, ast.Constant(function.attr))
        elif _takes_lists(function):
            node.args = [_list_of(argument, also_range=_leaf(function) == "shuffle") for argument in node.args]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        node.value = _list_of(node.value)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add):
            node.left, node.right = _list_of(node.left, also_range=True), _list_of(node.right, also_range=True)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(target, ast.Name) and target.id in self._lists for target in node.targets):
            node.value = _list_of(node.value, also_range=True)
        return node


def _names_used_as_lists(tree: ast.AST) -> set[str]:
    """Returns the names that are sorted, added to, indexed or measured, and never given to `next`."""
    lists, iterators = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            lists.add(node.value.id)
        elif isinstance(node, ast.Attribute) and node.attr in ("sort", "append", "remove", "insert", "pop", "extend"):
            lists.update([node.value.id] if isinstance(node.value, ast.Name) else [])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if isinstance(node.args[0], ast.Name) and node.func.id in ("len", "next"):
                (lists if node.func.id == "len" else iterators).add(node.args[0].id)
        elif isinstance(node, ast.Call) and _leaf(node.func) == "shuffle":
            lists.update(argument.id for argument in node.args if isinstance(argument, ast.Name))
    return lists - iterators


def _takes_lists(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "len"
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and function.id in _TAKE_LISTS


def _leaf(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ""


def _is_super(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"


def _list_of(value: ast.expr, *, also_range: bool = False) -> ast.expr:
    """Returns the expression of a list, if the value is a call that made one in Python 2."""
    if not isinstance(value, ast.Call):
        return value
    function = value.func
    is_lazy = isinstance(function, ast.Name) and function.id in (*_LAZY, *(("range",) if also_range else ()))
    is_view = _leaf(function) in _VIEWS and not value.args and not value.keywords
    return _call(_LISTED, value, value) if is_lazy or is_view else value


def _call(name: str, place: ast.expr, *arguments: ast.expr) -> ast.expr:
    call = ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), place)
    return ast.fix_missing_locations(call)
