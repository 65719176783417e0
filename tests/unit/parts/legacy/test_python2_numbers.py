"""Functions that return other numbers in Python 2; the expected values are those of CPython 2.7.18, 64-bit."""

from __future__ import annotations

import ast
import math
import pickle

import numpy as np
import pytest
import six

from ps_train.parts.legacy import division, python2_numbers


def values_of(text, **names):
    """Runs a text that Python 3 can read as code of Python 2, and returns its names."""
    division.install_division()
    python2_numbers.install_functions()
    tree = division.change_division(python2_numbers.change_functions(ast.parse(text)), text)
    exec(compile(tree, "script.py", "exec"), names)
    return names


@pytest.mark.parametrize(("expression", "expected"), [
    ("math.floor(7.9) / 2", 3.5), ("math.ceil(6.2) / 2", 3.5), ("round(7) / 2", 3.5), ("-floor(7.5) / 2", -3.5),
    ("(rounded_up(2.5) + 4) / 2", 3.5), ("math.floor(25 / 10.0) / math.ceil(103 / 10.0)", 2 / 11), ("7 / 2", 3),
    ("round(0.5)", 1.0), ("round(2.5)", 3.0), ("round(-2.5)", -3.0), ("round(1.4)", 1.0), ("round(0.125, 2)", 0.13),
    ("round(2.675, 2)", 2.67), ("round(2.675, np.int64(2))", 2.67), ("round(1250, -2)", 1300.0),
    ("round(1e22, 10)", 1e22), ("list(map(round, [1.5]))", [2.0]),
    ("math.floor(float('inf'))", math.inf), ("round(float('-inf'))", -math.inf),
    ("round(x=5)", "own")])
def test_whole_numbers_divide_as_floats(expression, expected):
    """Issue: a rate that decayed by floor(step / n) / steps never did, and round(2.5) was 2."""
    own = "def round(x): return 'own'" if "x=" in expression else "import math"
    text = f"from math import floor, ceil as rounded_up\n{own}"
    value = values_of(f"{text}\nvalue = {expression}\n", np=np)["value"]
    assert value == expected and type(value) in (type(expected), python2_numbers.WholeFloat)


def test_whole_numbers_are_sizes_still():
    """As whole numbers of Python 3 are: also sums of them, and what is read by another process."""
    names = values_of("import math\nn = math.ceil(2.2)\n"
                      "rows = np.zeros((n, n * 2 - 1))[:n - 1]\nnumbers = list(range(n))\n"
                      "power = 2 ** n\nitem = [5, 6, 7, 8][n]\nhalf = n + 0.5\nshown = '%d %s' % (n, n)\n", np=np)
    assert names["rows"].shape == (2, 5) and names["numbers"] == [0, 1, 2] and names["item"] == 8
    assert names["shown"] == "3 3.0" and type(names["half"]) is float and list(range(names["power"]))[-1] == 7
    assert type(pickle.loads(pickle.dumps(names["n"]))) is float
    with pytest.raises(TypeError, match="real number, not str"):
        values_of("import math\nmath.floor('7')\n")


@pytest.mark.parametrize(("value", "expected"), [
    ("", 0), ("a", 12416037344), ("abc", 1453079729188098211), (b"abc", 1453079729188098211),
    (np.str_("abc"), 1453079729188098211), ("user_42", 7309639220409486565), ("\xe4", 24960149699224367),
    ((), 3527539), ((1, 2), 3713081631934410656), (("a", (1, 0.5)), -1802833838155746299),
    (7, 7), (-1, -2), (2.0, 2), (0.5, 1073741824),
    (-0.3, -3006509772), (1e-9, 2455165344), (True, 1)])
def test_hashes_are_those_of_python_2(value, expected):
    """Issue: the bucket of a word differed from task to task, and from run to run."""
    assert values_of("value = hash(key)\n", key=value)["value"] == expected


def test_an_object_has_its_own_hash():
    """Also one that is a text."""
    class Word(str):
        def __hash__(self):
            return 5

    assert values_of("value = hash(key)\n", key=Word("a"))["value"] == 5
    assert values_of("value = hash(key)\n", key=frozenset([1]))["value"] == hash(frozenset([1]))


@pytest.mark.parametrize(("expression", "expected"), [
    ("isinstance(np.int64(3), int)", True), ("isinstance(np.prod([2, 3]), (str, int))", True),
    ("isinstance(np.int64(3), six.integer_types)", True), ("isinstance(np.int64(3), float)", False),
    ("isinstance(np.int32(3), int)", False), ("isinstance(3, int)", True), ("isinstance('3', int)", False)])
def test_numbers_of_numpy_are_whole_numbers(expression, expected, monkeypatch):
    """Issue: a product of sizes by numpy was no number of outputs for TF-Slim."""
    monkeypatch.setattr(six, "integer_types", six.integer_types)
    assert values_of(f"value = {expression}\n", np=np, six=six)["value"] is expected
