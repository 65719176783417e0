"""The order of Python 2, for code that becomes Python 3: values of different types can be compared.

    None < numbers < the other types, by the names that they had

Tuples and lists are compared by their first values that differ. `sorted`, `max`, `min` and `rows.sort()` have this
order, too.
"""

from __future__ import annotations

import ast
import builtins
import functools
import numbers
import operator
from collections.abc import Callable
from typing import Any

# Among the built-ins, where the changed code finds them.
_COMPARE, _IN_ORDER = "__ps_train_compare__", "__ps_train_in_order__"
_ORDERING = (sorted, max, min)
_OPERATORS = {"Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge}
# Of the types whose order it was; that of a tensor or an array and something else is an error in Python 2, too.
_NAMES = {dict: "dict", list: "list", str: "str", bytes: "str", tuple: "tuple", type(None): ""}


def install_order() -> None:
    """Makes the comparisons available to the changed code."""
    setattr(builtins, _COMPARE, compare_as_python2)
    setattr(builtins, _IN_ORDER, in_order_of_python2)


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

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        name = function.id if isinstance(function, ast.Name) else ""
        is_sort = isinstance(function, ast.Attribute) and function.attr == "sort"
        if is_sort or name in [ordering.__name__ for ordering in _ORDERING]:
            node.func = ast.copy_location(ast.Call(ast.Name(_IN_ORDER, ast.Load()), [function], []), function)
        return node


def in_order_of_python2(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that sorts or chooses, with the order of Python 2; another of that name as it is."""
    if any(function is ordering for ordering in _ORDERING):
        return functools.partial(_in_order, function)
    values = getattr(function, "__self__", None)
    if isinstance(values, list) and function == list.sort.__get__(values):  # not one of a class made from `list`
        return functools.partial(_sort_in_order, values)
    return function


def _sort_in_order(values: list, **options: Any) -> None:
    values[:] = _in_order(sorted, values, **options)


def _in_order(function: Callable[..., Any], *values: Any, **options: Any) -> Any:
    if len(values) == 1 and hasattr(values[0], "__next__"):
        values = ([*values[0]],)  # which may be read twice
    try:
        return function(*values, **options)
    except TypeError as error:
        if "not supported between" not in str(error):
            raise
        order, key = functools.cmp_to_key(_difference), options.get("key")
        options["key"] = order if key is None else lambda value: order(key(value))
        return function(*values, **options)


def _difference(left: Any, right: Any) -> int:
    return -1 if compare_as_python2(left, "Lt", right) else int(bool(compare_as_python2(left, "Gt", right)))


def compare_as_python2(left: Any, kind: str, right: Any) -> Any:
    """Returns what Python 3 says; where it refuses, what Python 2 said.

    Raises:
      TypeError: it is about other types than Python's own.
    """
    try:
        return _OPERATORS[kind](left, right)
    except TypeError:
        if isinstance(left, (list, tuple)) and type(left) is type(right):
            pairs = (pair for pair in zip(left, right) if pair[0] != pair[1])
            left_value, right_value = next(pairs, (len(left), len(right)))
            return compare_as_python2(left_value, kind, right_value)
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
