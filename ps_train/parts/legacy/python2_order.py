"""The order of Python 2, for code that becomes Python 3: values of different types can be compared.

    None < numbers < the other types, by the names that they had
"""

from __future__ import annotations

import ast
import builtins
import numbers
import operator
from typing import Any

_COMPARE = "__ps_train_compare__"  # among the built-ins, where the changed code finds it
_OPERATORS = {"Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge}
# Of the types whose order it was; that of a tensor or an array and something else is an error in Python 2, too.
_NAMES = {dict: "dict", list: "list", str: "str", bytes: "str", tuple: "tuple", type(None): ""}


def install_order() -> None:
    """Makes the comparisons available to the changed code."""
    setattr(builtins, _COMPARE, compare_as_python2)


def change_order(tree: ast.Module) -> ast.Module:
    """Gives code the order of Python 2; comparisons in a row, `a < b < c`, stay as they are."""
    return ast.fix_missing_locations(_Comparisons().visit(tree))


class _Comparisons(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        kind = type(node.ops[0]).__name__
        if len(node.ops) > 1 or kind not in _OPERATORS:
            return node
        arguments = [node.left, ast.Constant(kind), node.comparators[0]]
        return ast.copy_location(ast.Call(ast.Name(_COMPARE, ast.Load()), arguments, []), node)


def compare_as_python2(left: Any, kind: str, right: Any) -> Any:
    """Returns what Python 3 says; where it refuses, what Python 2 said.

    Raises:
      TypeError: it is about other types than Python's own.
    """
    try:
        return _OPERATORS[kind](left, right)
    except TypeError:
        ranks = [_rank(value) for value in (left, right)]
        if None in ranks or ranks[0] == ranks[1]:
            raise
        return _OPERATORS[kind](*ranks)


def _rank(value: Any) -> tuple[int, str] | None:
    """Returns what stands for a value's type in the order, or None for a type that has no place there."""
    if isinstance(value, numbers.Number):
        return 1, ""
    name = _NAMES.get(type(value))
    return None if name is None else (0 if value is None else 2, name)
