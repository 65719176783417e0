"""Values of different types in the order of Python 2."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from ps_train.parts.legacy import python2_order


def value_of(expression, **names):
    """Returns what an expression of Python 2 is."""
    python2_order.install_order()
    tree = python2_order.change_order(ast.parse(expression, mode="eval"))
    return eval(compile(tree, "script.py", "eval"), {"np": np, **names})


@pytest.mark.parametrize(("expression", "expected"), [
    ("None < 0.5", True), ("[] > 3", True), ("'a' < (1,)", True), ("(1, None) < (1, 2)", True),
    ("[1, None, 3] >= [1, None]", True), ("(1, None) > (1, None)", False), ("[[1, 'a']] < [[1, 2]]", False),
    ("max(None, 0.5)", 0.5), ("max(0.5, None, 'a')", "a"), ("min([3, 'a'])", 3), ("min(None, -1)", None),
    ("sorted([3, None, 'a', 1])", [None, 1, 3, "a"]),
    ("sorted([(1, None), (1, 2), (0, 3)])", [(0, 3), (1, None), (1, 2)]),
    ("sorted((x for x in [3, None]), reverse=True)", [3, None]), ("max(x for x in [None, 2, 1])", 2),
    ("sorted([{'a': 2}, {'a': None}], key=lambda row: row['a'])", [{"a": None}, {"a": 2}]),
    ("max('ab', 'c', key=len)", "ab"), ("sorted('ba')", ["a", "b"]), ("max([1, 5], [2])", [2])])
def test_values_of_different_types_have_an_order(expression, expected):
    """Issue: `best = None`, then `best = max(best, accuracy)`, and rows with None that are sorted."""
    assert value_of(expression) == expected


def test_a_list_is_sorted_in_place():
    """An array has another `sort`."""
    values, rows = [3, None, 1], np.array([[2, 1]])
    assert value_of("values.sort(reverse=True)", values=values) is None and values == [3, 1, None]
    assert value_of("rows.sort(axis=1)", rows=rows) is None and rows.tolist() == [[1, 2]]


class _Backwards(list):
    def sort(self):
        super().sort(reverse=True)


def test_a_list_of_a_class_is_sorted_as_its_class_does():
    """By the order of Python 2 where that calls the `sort` of `list`."""
    rows = _Backwards([1, 3, 2])
    value_of("rows.sort()", rows=rows)
    assert rows == [3, 2, 1]
    mixed = _Backwards([1, None, 2])
    value_of("super(kind, rows).sort(reverse=True)", rows=mixed, kind=_Backwards)
    assert mixed == [2, 1, None] and type(mixed) is _Backwards


def test_a_function_of_the_script_stays():
    """Here one that is called as the built-in one; `np.max` is another."""
    assert value_of("max(1, 2)", max=lambda left, right: left) == 1 and value_of("np.max([1, 2])") == 2


@pytest.mark.parametrize("expression", ["max(object(), 1)", "sorted([1j, 2j])", "max()", "sorted([1], key=len)"])
def test_what_python_2_refuses_is_refused(expression):
    """Objects of types whose order is not known, too."""
    with pytest.raises(TypeError):
        value_of(expression)
