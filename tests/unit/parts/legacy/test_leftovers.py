"""What remains of Python 2 in code that Python 3 can read."""

from __future__ import annotations

import ast
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from ps_train.parts.legacy import leftovers, python2_library


def value_of(expression, **names):
    """Returns what an expression is when it is changed; `names` are those that it may use."""
    return values_of(f"value = {expression}\n", **names)["value"]


def values_of(text, **names):
    """Runs a changed text, and returns its names."""
    leftovers.install_changes()
    assert leftovers.may_be_in(text)
    tree = ast.parse(text)
    leftovers.change_leftovers(tree)
    scope = {"np": np, **names}
    exec(compile(tree, "script.py", "exec"), scope)
    return scope


def is_changed(text):
    """Returns whether anything of a text changes."""
    return leftovers.change_leftovers(ast.parse(text))


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


@pytest.mark.parametrize(("expression", "expected"), [
    ("rows == []", False), ("rows != []", True), ("rows == [1, 2]", False), ("(rows == [1, 2, 3]).tolist()",
     [[True, True, True], [False, False, False]]), ("[] == []", True), ("[1] != [2]", True), ("None == []", False)])
def test_an_array_equals_no_list_whose_shape_does_not_fit(expression, expected):
    """Issue: `if pretrained == []` was refused by NumPy 1.25 and later."""
    assert value_of(expression, rows=np.array([[1, 2, 3], [4, 5, 6]])) == expected
    assert is_changed("x == []") and not is_changed("x == y") and not is_changed("x == [y]")


def test_values_of_an_array_are_set():
    """At a place of one or several axes, and of an array of one number."""
    names = values_of("a.itemset(1, 5)\nb.itemset((0, 1), 6)\nb.itemset(0, 0, 7)\nc.itemset(8)\n", a=np.zeros(2, int),
                      b=np.zeros((1, 2), int), c=np.array(0))
    assert (names["a"].tolist(), names["b"].tolist(), names["c"].item()) == ([0, 5], [[7, 6]], 8)


def test_the_children_of_xml_are_there():
    """Python 3.9 has removed both methods; a list, as it was until 3.8."""
    tree = ElementTree.ElementTree(ElementTree.fromstring("<a><b/><c><b/></c></a>"))
    assert [child.tag for child in value_of("tree.getroot().getchildren()", tree=tree)] == ["b", "c"]
    assert len(value_of("tree.getiterator('b')", tree=tree)) == 2
    assert [part.tag for part in value_of("tree.getroot().getiterator()", tree=tree)] == ["a", "b", "c", "b"]
    with pytest.raises(AttributeError, match="getchildren"):
        value_of("5 .getchildren()")


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
    """In a module that has a text and imports from __future__ before its code."""
    names = values_of('"""Text."""\nfrom __future__ import division\nvalues = [i for i in xrange(2)]\n'
                      "def f(x): return unicode(reduce(max, x))\ntext = f([1, 2])\n")
    assert (names["values"], names["text"], names["__doc__"]) == ([0, 1], "2", "Text.") and "cmp" not in names
    assert value_of("cmp(1, 2), reload(sys) is sys, xrange(3)[1], {}.keys() + []", sys=sys) == (-1, True, 1, [])


@pytest.mark.parametrize("text", [
    "try:\n    unicode\nexcept NameError:\n    unicode = str\nelse:\n    bytes = str\n",
    "try:\n    text = unicode\nexcept Exception:\n    text = bytes\n",
    "try:\n    text = unicode\nexcept:\n    text = bytes\n",
    "def f():\n    try:\n        for i in [1]: return xrange\n    except (KeyError, NameError):\n"
    "        return xrange\n",
    "import sys\nif sys.version_info[0] > 2:\n    unicode = str\nx = unicode\n",
    "from six.moves import xrange, reduce\nfor i in xrange(2): reduce\n",
    "def cmp(a, b): return 5\nx = cmp(1, 2)\n",
    "def f(long, *xrange, unicode=1, **cmp): return long, unicode, xrange, cmp\n",
    "f = lambda long: long\n", "class A:\n    long = 1\n    x = long\n", "def f():\n    global cmp\n    cmp = 1\ncmp\n",
    "# xrange, unicode\nx = 'reduce'\nx.long\n"])
def test_names_that_a_module_binds_or_expects_to_be_missing_stay_missing(text):
    """Otherwise `else: bytes = str` would make Python 2 of a module that runs in both."""
    assert not is_changed(text)


def test_a_training_loop_that_catches_any_error_has_the_names():
    """`except Exception` around much more than a name expects no NameError."""
    names = values_of("steps = []\ntry:\n    for i in xrange(2):\n        steps.append(i)\n"
                      "except Exception as error:\n    steps = error\n")
    assert names["steps"] == [0, 1]


@pytest.mark.parametrize("text", [
    # One function's variable is not another's.
    "def f(file):\n    lines = map(str.strip, file)\n    return lines\ndef g():\n    lines = []\n    lines.append(1)\n",
    "def f(x):\n    pairs = zip(x, x)\n    for p in pairs: pass\n    for p in pairs: pass\n",
    "def f(x):\n    pairs = zip(x, x)\n    first = next(pairs)\n    return pairs[0]\n",
    "def f(x):\n    pairs = zip(x, x)\n    first = pairs.__next__()\n    return pairs[0]\n",
    "def f(x):\n    values = map(str, x)\n    values = list(values)\n    values.sort()\n",
    "def f(x, keys):\n    keys = x.keys()\n    return keys[0]\n",
    "numbers = range(10 ** 9)\nlast = numbers[-1], len(numbers)\n", "x = len(range(10 ** 9)), range(9)[1]\n",
    "keys = {}.keys()\nx = len(keys)\n", "import itertools\nnumbers = map(str, itertools.count())\n",
    "import numpy as np, itertools\nx = np.fromiter(map(float, itertools.count()), float, count=10)\n",
    "import numpy as np\nx = range(3)\nx += np.ones(3)\n", "x = range(5)\nfor i in range(9): print(i)\n"])
def test_code_that_is_right_in_python_3_stays(text):
    """Iterators that are read once, or have no end; ranges that are only read."""
    assert not is_changed(text)


def test_variables_that_must_be_lists_are():
    """Of a function, of a module whose function reads it, ranges that are changed, keys that are set more than once."""
    names = values_of("def f():\n    x = map(int, '12')\n    return x[1], len(x)\nread = f()\n"
                      "rows = zip('ab', 'cd')\ndef g():\n    return rows[1]\nrow = g()\n"
                      "a = range(3)\na[0] = 5\nb = range(2)\nb += [7]\nc = range(3)\ndel c[1]\n"
                      "d = range(2)\nd = d + [9]\nfrom random import shuffle\ne = range(5)\nshuffle(e)\n"
                      "keys = {2: 0, 1: 0}.keys()\nkeys.sort()\nfirst = keys\nkeys = {3: 0}.keys()\nlast = keys[0]\n")
    assert (names["read"], names["row"], names["a"], names["b"]) == ((2, 2), ("b", "d"), [5, 1, 2], [0, 1, 7])
    assert (names["c"], names["d"], sorted(names["e"])) == ([0, 2], [0, 1, 9], list(range(5)))
    assert (names["first"], names["last"]) == ([1, 2], 3)


def test_attributes_that_must_be_lists_are():
    """If the class needs a list: in another method, or in a function within one."""
    names = values_of("import random\nclass A:\n    def __init__(self, d):\n        self.order = range(9)\n"
                      "        self.pairs = zip('ab', 'cd')\n        self.keys = d.keys()\n"
                      "    def shuffle(self):\n        random.shuffle(self.order)\n"
                      "        def inner():\n            return self.pairs[1], self.keys[0]\n        return inner()\n"
                      "a = A({7: 8})\nread = a.shuffle()\n")
    assert names["read"] == (("b", "d"), 7) and sorted(names["a"].order) == list(range(9))


@pytest.mark.parametrize("text", [
    "class A:\n    def f(self):\n        self.x = range(9)\n        return self.x[2]\n",
    "class A:\n    def f(self):\n        self.x = range(9)\nclass B:\n    def f(self):\n        self.x.append(1)\n",
    "class A:\n    def f(self, y):\n        self.x = map(str, y)\n        next(self.x)\n        return self.x[0]\n",
    "def f(self):\n    self.x = zip(self.y)\n    return self.x[0]\n"])
def test_attributes_that_may_be_what_python_3_makes_stay(text):
    """Of another class, of no class, iterators, and ranges that are only read."""
    assert not is_changed(text)


@pytest.mark.parametrize("text", [
    "try:\n    import cPickle\nexcept ImportError:\n    cPickle = None\n",
    "try:\n    from StringIO import StringIO\nexcept ImportError:\n    from io import BytesIO as StringIO\n",
    "try:\n    import Queue\nexcept:\n    Queue = 5\n", "from .commands import x\n",
    "def f():\n    try:\n        import urllib2\n    except (ImportError, AttributeError):\n        pass\n"])
def test_modules_that_a_script_expects_to_be_missing_stay_missing(text):
    """So the branch for Python 3 runs."""
    assert not is_changed(text)


def test_modules_of_python_2_are_imported(monkeypatch):
    """By the name that the script gives them; beside others, and of their names."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, python2_library.LibraryFinder()])
    names = values_of("import os, cPickle, urllib2 as web\nfrom StringIO import StringIO as Text\n"
                      "from Queue import Queue\nx = cPickle.loads(cPickle.dumps(5))\ndef f():\n    import commands\n"
                      "    return commands.getoutput('echo hi')\ny = f()\nz = Text('a').read(), Queue().empty()\n")
    assert (names["x"], names["y"], names["z"], names["web"].__name__) == (5, "hi", ("a", True), "urllib.request")


def test_long_expressions_and_chains_are_read():
    """Of more terms and branches than Python makes calls within each other."""
    terms = " + ".join(["'a'"] * 900)
    chain = "if x == 0: y = 0\n" + "".join(f"elif x == {i}: y = {i}\n" for i in range(1, 300))
    assert is_changed(f"x = {terms} + {{}}.keys()[0]\n") and is_changed("x = [1].has_key(1)\n" + chain)


def test_lines_stay():
    """A call over several lines, too."""
    text = "values = map(\n    int,\n    '12')[0]\nwrong = {}.iteritems(\n    1 / 0)\n"
    with pytest.raises(ZeroDivisionError) as caught:
        values_of(text)
    assert caught.traceback[-1].lineno + 1 == 5
