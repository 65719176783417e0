"""What remains of Python 2 in code that Python 3 can read."""

from __future__ import annotations

import ast
import csv
import io
import pickle
import sys

import numpy as np
import pytest

from ps_train.parts.legacy import leftovers


def value_of(expression, **names):
    """Returns what an expression is when it is changed; `names` are those that it may use."""
    return values_of(f"value = {expression}\n", **names)["value"]


def values_of(text, **names):
    """Runs a changed text, and returns its names."""
    leftovers.install_changes()
    assert leftovers.may_be_in(text)
    tree = ast.parse(text)
    scope = {"np": np, **leftovers.python2_names_in(text), **names}
    exec(compile(leftovers.Leftovers(tree).visit(tree), "script.py", "exec"), scope)
    return scope


@pytest.mark.parametrize(("expression", "expected"), [
    ("list({1: 2}.iteritems())", [(1, 2)]), ("list({1: 2}.iterkeys())", [1]), ("list({1: 2}.itervalues())", [2]),
    ("{1: 2}.has_key(1), {1: 2}.has_key(2)", (True, False)), ("(x for x in [5]).next()", 5),
    ("{1: 2}.keys()[0], {1: 2}.values()[0], {1: 2}.items()[0]", (1, 2, (1, 2))), ("map(str, [7])[0]", "7"),
    ("len(zip([1, 2], [3, 4]))", 2), ("len(filter(None, [0, 1]))", 1), ("range(2) + [5]", [0, 1, 5]),
    ("[5] + {1: 2}.keys()", [5, 1]), ("np.array(map(int, '12')).tolist()", [1, 2]),
    ("np.mean(zip([1], [3]))", 2.0), ("np.arange(3, dtype=np.uint8).tostring()", b"\0\1\2"),
    ("np.array([3, 8]).ptp()", 5), ("7 / 2 if range(1) + [] else 0", 3.5)])
def test_old_calls_give_what_they_gave(expression, expected):
    """Lists where `map` and the like are indexed, measured or added; the division stays."""
    value = value_of(expression)
    assert value == expected and isinstance(value, list) is isinstance(expected, list)


def test_values_of_an_array_are_set():
    """At a place of one or several axes, and of an array of one number."""
    names = values_of("a.itemset(1, 5)\nb.itemset((0, 1), 6)\nb.itemset(0, 0, 7)\nc.itemset(8)\n", a=np.zeros(2, int),
                      b=np.zeros((1, 2), int), c=np.array(0))
    assert (names["a"].tolist(), names["b"].tolist(), names["c"].item()) == ([0, 5], [[7, 6]], 8)


def test_a_name_that_is_used_as_a_list_is_one():
    """Keys that are sorted, a range that is shuffled, a map that is indexed; not an iterator that `next` advances."""
    names = values_of("keys = {2: 0, 1: 0}.keys()\nkeys.sort()\nnumbers = map(int, '12')\nfirst = numbers[0]\n"
                      "import random\norder = range(9)\nrandom.shuffle(order)\npairs = zip('a', 'b')\n"
                      "pair = next(pairs)\n")
    assert (names["keys"], names["first"], sorted(names["order"])) == ([1, 2], 1, list(range(9)))
    assert names["pair"] == ("a", "b")


def test_an_object_keeps_its_own_methods():
    """Even of these names."""
    class Reader:
        def next(self):
            return "a batch"

        def keys(self):
            return {"a": 1}
    assert value_of("reader.next(), reader.keys()['a']", reader=Reader()) == ("a batch", 1)


def test_a_method_that_is_nowhere_is_the_error_that_python_makes():
    """With the name that the script wrote."""
    with pytest.raises(AttributeError, match="'int' object has no attribute 'iteritems'"):
        value_of("(5).iteritems()")


def test_built_in_functions_of_python_2():
    """Only those that the text names."""
    names = leftovers.python2_names_in("for i in xrange(3): print(unicode(reduce(f, [])))")
    assert set(names) == {"xrange", "unicode", "reduce"}
    assert value_of("cmp(1, 2), reload(sys) is sys, xrange(3)[1], {}.keys() + []", sys=sys) == (-1, True, 1, [])


@pytest.fixture
def _python2_files(monkeypatch):
    for owner, names in ((pickle, ("load", "loads", "dump")), (csv, ("reader", "writer"))):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    leftovers.read_files_of_python2()


@pytest.mark.usefixtures("_python2_files")
def test_pickles_of_python_2_are_read(tmp_path):
    """Text that is not ASCII, which Python 3 refuses; files of text; an encoding that the script gives counts."""
    of_python2 = b"U\x02\xff\x00q\x00."  # pickle.dumps("\xff\0", 2)
    assert pickle.loads(of_python2) == pickle.load(io.BytesIO(of_python2)) == "\xff\0"
    assert pickle.loads(of_python2, encoding="bytes") == b"\xff\0"
    assert pickle.loads(pickle.dumps(["\u20ac", 1])) == ["\u20ac", 1]
    with open(tmp_path / "text", "w") as file:
        pickle.dump({"a": 1}, file, 2)
    with open(tmp_path / "text") as file:
        assert pickle.load(file) == {"a": 1}


@pytest.mark.usefixtures("_python2_files")
def test_tables_are_read_and_written_in_files_of_bytes(tmp_path):
    """As Python 2 demanded; in files of text as today."""
    with open(tmp_path / "table", "wb") as file:
        csv.writer(file).writerow(["a", "b\u00e4"])
    with open(tmp_path / "table", "rb") as file:
        assert list(csv.reader(file)) == [["a", "b\u00e4"]]
    with open(tmp_path / "table", encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file, ["x", "y"])) == [{"x": "a", "y": "b\u00e4"}]


def test_lines_stay():
    """A call over several lines, too."""
    text = "values = map(\n    int,\n    '12')[0]\nwrong = {}.iteritems(\n    1 / 0)\n"
    with pytest.raises(ZeroDivisionError) as caught:
        values_of(text)
    assert caught.traceback[-1].lineno + 1 == 5
