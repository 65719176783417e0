"""The division of Python 2, for code that becomes Python 3: whole numbers divide into whole numbers."""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

_TRUE_DIVISION = re.compile(r"^\s*from\s+__future__\s+import\b[^#\n]*(\([^)]*)?\bdivision\b", re.MULTILINE)
# Functions that the changed code calls; they are among the built-ins, where every module finds them.
_DIVIDE, _DIVIDE_IN_PLACE = "__ps_train_divide__", "__ps_train_divide_in_place__"
_DIVIDED_PART = "__ps_train_divided_part__"


def install_division() -> None:
    """Makes the division of Python 2 available to the changed code."""
    setattr(builtins, _DIVIDE, divide)
    setattr(builtins, _DIVIDE_IN_PLACE, _divide_in_place)
    setattr(builtins, _DIVIDED_PART, _DividedPart)


def change_division(tree: ast.Module, text: str) -> ast.Module:
    """Gives code the division of Python 2, unless its text imports Python 3's from __future__."""
    return tree if _TRUE_DIVISION.search(text) else ast.fix_missing_locations(_Divisions().visit(tree))


class _Divisions(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _call(_DIVIDE, node, node.left, node.right) if isinstance(node.op, ast.Div) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div):
            return node
        if any(isinstance(inner, (ast.Call, ast.Yield)) for inner in ast.walk(node.target)):
            return ast.copy_location(ast.Expr(ast.Call(_part_of(node.target), [node.value], [])), node)
        value = ast.parse(ast.unparse(node.target), mode="eval").body
        for part in ast.walk(value):
            ast.copy_location(part, node)
        return ast.copy_location(
            ast.Assign([node.target], _call(_DIVIDE_IN_PLACE, node, value, node.value)), node)


def _call(name: str, node: ast.AST, *arguments: ast.expr) -> ast.expr:
    function = ast.copy_location(ast.Name(name, ast.Load()), node)
    return ast.copy_location(ast.Call(function, list(arguments), []), node)


def _part_of(target: Any) -> ast.expr:
    """Returns `_DividedPart(x)[place]` for x[place], and `_DividedPart(x).name` for x.name."""
    target.value, target.ctx = _call(_DIVIDED_PART, target, target.value), ast.Load()
    return target


class _DividedPart:
    """Divides a part of an object, as `x[f()] /= y` becomes `_DividedPart(x)[f()](y)`, where f is called once."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getitem__(self, place: Any) -> Callable[[Any], None]:
        """Returns what divides the item at a place."""
        owner = object.__getattribute__(self, "_owner")
        part = owner[place]  # before what it is divided by is known, as in Python
        return lambda value: operator.setitem(owner, place, _divide_in_place(part, value))

    def __getattribute__(self, name: str) -> Callable[[Any], None]:
        """Returns what divides an attribute, of any name."""
        owner = object.__getattribute__(self, "_owner")
        part = getattr(owner, name)
        return lambda value: setattr(owner, name, _divide_in_place(part, value))


def divide(left: Any, right: Any) -> Any:
    """7 / 2 is 3 in Python 2, and so are whole numbers of numpy and TensorFlow divided."""
    if _is_whole(left) and _is_whole(right):
        return left // right
    for owner, other, name in ((left, right, "__div__"), (right, left, "__rdiv__")):
        # Tensors and classes of Python 2 have it; the numbers of Python 3 do not.
        method = getattr(type(owner), name, None)
        if method is not None:
            result = method(owner, other)
            if result is not NotImplemented:
                return result
    return left / right


def _divide_in_place(left: Any, right: Any) -> Any:
    if isinstance(left, np.ndarray):
        if _is_whole(left) and _is_whole(right):
            left //= right
        elif _is_whole(left):
            left[...] = left / right  # numpy would not convert the result
        else:
            left /= right
        return left
    return divide(left, right)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) or (
        isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.integer))
