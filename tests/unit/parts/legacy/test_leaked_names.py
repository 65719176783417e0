"""Variables of list comprehensions that are read after them, as Python 2 allows."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ps_train.parts.legacy import leaked_names


def ran(code):
    """Runs changed code; returns its names, and whether it was changed."""
    tree = ast.parse(textwrap.dedent(code))
    is_changed = leaked_names.change_leaked_names(tree)
    names = {}
    exec(compile(tree, "script.py", "exec"), names)
    return names, is_changed


@pytest.mark.parametrize(("code", "value"), [
    ("first, last = [int(token) for token in ('1', '23')]; found = token", "23"),
    ("pairs = [a + b for a, b in ((1, 2), (3, 4)) if a]; found = (a, b)", (3, 4)),
    ("nested = [[x for x in row] for row in ((1, 2), (3,))]; found = (row, x)", ((3,), 3)),
    ("def f(texts):\n    n = [int(t) for t in texts if t]\n    return n, t\nfound = f(['', '0'])", ([0], "0")),
    ("def f():\n    def g():\n        [i for i in range(3)]\n        return i\n    return g()\nfound = f()", 2),
    ("class A(object):\n    def f(self):\n        [i for i in range(3)]\n        return i\nfound = A().f()", 2),
    ("products = [a * b for a in (1, 2) for b in (3, a)]; found = (products, a, b)", ([3, 1, 6, 4], 2, 2)),
])
def test_the_name_has_the_last_item(code, value):
    """In a module, in functions, in methods, and in a comprehension of comprehensions."""
    names, is_changed = ran(code)
    assert is_changed and names["found"] == value


@pytest.mark.parametrize("code", [
    "x = 5\nsquares = [x * x for x in range(3)]\nfound = x",  # as `map(lambda x: ...)` is converted
    "x = 5\ndef f():\n    [x for x in range(3)]\n    return x\nfound = f()",
    "def f(x):\n    [x for x in range(3)]\n    return x\nfound = f(5)",
    "def f():\n    x = 5\n    def g():\n        [x for x in range(3)]\n        return x\n    return g()\nfound = f()",
    "[x for x in range(3)]\nfound = 5",
    "from os.path import *\ndef f():\n    return 5\n[join for join in ()]\njoin\nfound = 5",
    "import os as x\n[x for x in range(3)]\nx\nfound = 5",
    "try:\n    1 / 0\nexcept ZeroDivisionError as x:\n    [x for x in range(3)]\n    str(x)\nfound = 5",
    "def f():\n    global x\n    x = 5\nf()\n[x for x in range(3)]\nfound = x",
    "found = len([id for id in range(3)]) + 2\nid(5)",
])
def test_code_that_runs_is_left_alone(code):
    """A name that something else binds may be that of a parameter, which Python 2 did not overwrite."""
    names, is_changed = ran(code)
    assert not is_changed and names["found"] == 5


def test_a_generator_keeps_its_variable():
    """In Python 2, too."""
    tree = ast.parse("total = sum(x for x in range(3))\nprint(x)")
    assert not leaked_names.change_leaked_names(tree)


def test_lines_stay():
    """A traceback shows those of the original file."""
    tree = ast.parse("a = [1 // x\n     for x in (1, 0)]\nprint(x)")
    assert leaked_names.change_leaked_names(tree)
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile(tree, "script.py", "exec"), {})
    assert caught.traceback[-1].lineno + 1 == 1
