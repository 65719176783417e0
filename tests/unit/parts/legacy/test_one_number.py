"""Arrays of one number where Python wants the number."""

from __future__ import annotations

import ast
import math
import types

import numpy as np
import pytest

from ps_train.parts.legacy import one_number


def value_of(expression):
    """Returns what an expression is when it is changed."""
    one_number.install_number()
    tree = ast.parse(f"value = {expression}\n")
    one_number.change_numbers(tree)
    scope = {"np": np, "math": math, "one": np.array([7.5]), "row": np.array([[3]]), "two": np.ones(2),
             "zero": np.array(4.0), "numpy": types.SimpleNamespace(float=float, int=int)}  # numpy 1.24 has neither
    exec(compile(tree, "script.py", "exec"), scope)
    return scope["value"]


@pytest.mark.parametrize(("expression", "expected"), [
    ("int(row), float(one), int(zero), int('5'), float()", (3, 7.5, 4, 5, 0.0)),
    ("'%d of %.2f' % (row, one)", "3 of 7.50"), ("'%5.1f|' % one", "  7.5|"), ("'%s %d%%' % (row, one)", "[[3]] 7%"),
    ("'%s' % one", "[7.5]"), ("'%(a)s' % {'a': one}", "[7.5]"), ("'%d %d' % tuple([1, 2])", "1 2"),
    ("'%*d' % (3, 5)", "  5"), ("7 % 4, 'a' in '%d' % one", (3, False)), ("int('ff', 16)", 255),
    ("[float(x) for x in (one, 2)]", [7.5, 2.0]), ("math.floor(one)", 7),
    ("numpy.float(one) + numpy.int(row)", 10.5), ("int(int(row) + float(one))", 10)])
def test_an_array_of_one_number_is_the_number(expression, expected):
    """In conversions and in texts that show numbers; everything else stays."""
    assert value_of(expression) == expected


@pytest.mark.skipif(not one_number.IS_REFUSED, reason="this numpy takes arrays of one number")
def test_an_array_of_one_number_is_set_at_a_place():
    """The value is computed once, in whatever kind of scope, and what cannot be set is still an error."""
    one_number.install_number()
    text = ("calls = []\ndef value():\n    calls.append(1)\n    return one\n"
            "def fill():\n    found = np.zeros(3)\n    found[0] = last = value()\n    found[1], rows['a'] = 5, one\n"
            "    found[int(2)] = 4\n    return found.tolist(), last\n"
            "class Buffer:\n    kept = np.zeros(1)\n    kept[0] = one\n"
            "rows = {}\nrows['b'] = one\ntotal, last = fill()\n")
    tree = ast.parse(text)
    assert one_number.change_numbers(tree)
    scope = {"np": np, "math": math, "one": np.array([7.5])}
    exec(compile(tree, "script.py", "exec"), scope)
    assert scope["total"] == [7.5, 5.0, 4.0] and scope["calls"] == [1] and scope["last"] is scope["one"]
    assert scope["Buffer"].kept.tolist() == [7.5] and scope["rows"]["b"] is scope["rows"]["a"] is scope["one"]
    tree = ast.parse("row = np.zeros(2)\nrow[0] = np.ones(2)\n")
    one_number.change_numbers(tree)
    with pytest.raises(ValueError, match="sequence") as error:
        exec(compile(tree, "script.py", "exec"), {"np": np})
    assert error.traceback[-1].lineno == 1


@pytest.mark.parametrize("expression", ["float(two)", "'%d' % two", "int(None)"])
def test_what_is_no_number_is_still_an_error(expression):
    """Arrays of several numbers, and None."""
    with pytest.raises(TypeError):
        value_of(expression)


def test_code_changes_only_if_numpy_refuses_such_arrays():
    """Which it does since 2.4."""
    assert one_number.IS_REFUSED is (tuple(map(int, np.__version__.split(".")[:2])) >= (2, 4))
    assert one_number.may_take_number("x = int(y)") is one_number.IS_REFUSED and not one_number.may_take_number("x = y")
