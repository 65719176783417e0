"""Calls and statements of Python 2 that Python 3 reads, and refuses when it comes to them."""

from __future__ import annotations

import gzip
import io
import sys

import numpy as np
import pytest

from ps_train.parts.legacy import conversion, leftovers, python2_calls, python2_order
from tests.unit.parts.legacy.test_leftovers import is_changed, value_of, values_of


@pytest.mark.parametrize(("text", "printed"), [
    ("print ('%d of %d') % (1, 2)\n", "1 of 2\n"), ("print ('a {}').format(5)\n", "a 5\n"),
    ("print ('a') + 'b'\n", "ab\n"), ("print ('abc')[1]\n", "b\n"), ("print ('a', 'b')[1]\n", "b\n"),
    ("print ('a').upper().lower() * 2\n", "aa\n"), ("print ('%d') % 3, 'steps'\n", "3 steps\n"),
    ("print >>sys.stdout, 'a', 5\n", "a 5\n"), ("print >>sys.stdout, 'a %d' % 5\n", "a 5\n"),
    ("print >>sys.stdout\n", "\n"), ("print ('a %d' %\n       5).upper()\n", "A 5\n"),
    ("def f():\n    if 1: print ('%d') % 3\nf()\n", "3\n")])
def test_print_statements_print(text, printed, capsys):
    """Those that Python 3 takes for a sum with its None, a method of it, or a shift of its function."""
    values_of(text, sys=sys)
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("text", [
    "print('a'), 5\n", "print('a') or 5\n", "print('a') if 1 else 5\n", "x = print('a')\n", "print('a', end='')\n",
    "def print(x): return 'b'\nprint('a') + 'b'\n", "print('a', sep='') % 5\n", "print(*[1]) + 5\n", "5 >> 2\n"])
def test_a_print_function_stays(text):
    """Also one of the module's own."""
    assert not is_changed(text)


def test_lists_are_sorted_by_a_function_that_compares():
    """By position and by name, beside a key, in place; of rows that have no order of their own."""
    def backwards(left, right):
        return right - left

    names = {"f": backwards, "rows": [{"a": 1}, {"a": 2}]}
    assert value_of("sorted([1, 3, 2], f)", **names) == value_of("sorted([1, 3, 2], cmp=f)", **names) == [3, 2, 1]
    assert value_of("sorted([1, 3, 2], f, reverse=True)", **names) == [1, 2, 3]
    assert value_of("sorted(rows, f, lambda row: row['a'])", **names) == [{"a": 2}, {"a": 1}]
    assert value_of("sorted([1, -2], None, abs, True)", **names) == [-2, 1]
    assert value_of("sorted([2, 1], lambda x, y: cmp(x, y))", **names) == [1, 2]
    values = values_of("x = [1, 3, 2]\nx.sort(f)\ny = [1, 3, 2]\ny.sort(cmp=f, reverse=True)\n", **names)
    assert (values["x"], values["y"]) == ([3, 2, 1], [1, 2, 3])


def test_what_sorts_otherwise_does():
    """Arrays have an axis; a script may have a `sorted` of its own, and classes made from lists and text."""
    values = values_of("x = np.array([[2, 1], [1, 2]])\nx.sort(0)\n")
    assert values["x"].tolist() == [[1, 1], [2, 2]]
    values = values_of("class Rows(list):\n    def sort(self, by): list.sort(self, key=lambda row: row[by])\n"
                       "x = Rows([[1, 2], [2, 1]])\nx.sort(1)\n"
                       "class Text(str):\n    def translate(self, table, language): return language\n"
                       "y = Text('a').translate(None, 'fr')\n")
    assert (values["x"], values["y"]) == ([[2, 1], [1, 2]], "fr")
    assert not is_changed("def sorted(x, y): return y\nx = sorted(1, 2)\n")
    assert not is_changed("x = sorted([1], key=abs, reverse=True)\nx.sort(key=abs)\nx.sort()\n")


@pytest.mark.parametrize(("expression", "expected"), [
    ("'a\\xe4'.decode('utf-8')", "a\xe4"), ("'a'.decode()", "a"), ("'a'.decode('utf8', 'ignore')", "a"),
    ("b'\\xc3\\xa4'.decode('utf-8')", "\xe4"), ("'6869'.decode('hex')", "hi"),
    ("'\\\\u00e4'.decode('unicode_escape')", "\xe4"), ("'a\\\\n'.decode('string_escape')", "a\n")])
def test_text_is_decoded(expression, expected):
    """It is text already; bytes are decoded as ever."""
    assert value_of(expression) == expected


@pytest.mark.parametrize(("expression", "expected"), [
    ("unicode('a\\xe4', 'utf-8')", "a\xe4"), ("unicode('a', errors='ignore')", "a"), ("unicode()", ""),
    ("unicode(b'\\xc3\\xa4', encoding='utf-8')", "\xe4"), ("unicode(b'a')", "a"), ("unicode(3)", "3"),
    ("unicode('a').upper(), str('a', 'utf-8'), str(b'a', errors='ignore'), str(b'a')", ("A", "a", "a", "b'a'")),
    ("isinstance('a', unicode)", True)])
def test_unicode_takes_text_with_its_encoding(expression, expected):
    """Issue: "decoding str is not supported". fissix makes `str` of it."""
    assert value_of(f"[({expression}), {{}}.has_key(1)][0]") == expected


@pytest.mark.parametrize("value", [None, ["a"], 5])
def test_what_is_neither_text_nor_bytes_has_no_encoding(value):
    """Code that catches this error takes such a value in another way."""
    for call in ("unicode(x, 'utf-8')", "str(x, encoding='utf-8')", "unicode(x, errors='ignore')"):
        with pytest.raises(TypeError):
            value_of(f"[{call}, {{}}.has_key(1)][0]", x=value)


def test_the_text_of_a_buffer_is_decoded():
    """Here of an array; also by the name of the argument."""
    array = np.frombuffer(b"abc", np.uint8)
    assert value_of("str(x, 'utf-8'), str(object=x, encoding='utf-8'), unicode(x, 'ascii')", x=array) == ("abc",) * 3


def test_an_expected_error_about_text_comes():
    """In code of Python 3, where it tells text from bytes."""
    text = "try:\n    x = str('a', 'utf-8')\nexcept {}:\n    x = 'text'\n"
    assert not is_changed(text.format("TypeError")) and not is_changed(text.format("Exception"))
    assert is_changed(text.format("ValueError"))


def test_a_script_may_have_a_unicode_of_its_own():
    """Also one that it sets where Python has none."""
    assert not is_changed("def unicode(x, y): return y\nx = unicode('a', 'utf-8')\n")
    assert not is_changed("try:\n    x = unicode('a')\nexcept NameError:\n    x = str('a')\n")


@pytest.mark.parametrize(("expression", "expected"), [
    ("'a, b!'.translate(None, ',!')", "a b"), ("'ab'.translate(None)", "ab"),
    ("'a,b'.translate(str.maketrans('ab', 'xy'), ',')", "xy"), ("b'a,b'.translate(None, b',')", b"ab")])
def test_characters_are_deleted(expression, expected):
    """By the second argument of `translate`, or with a table, too; bytes as ever."""
    assert value_of(expression) == expected
    assert not is_changed("x = 'ab'.translate({97: 'b'})\n")


def test_a_text_that_may_be_bytes_is_asked_as_before():
    """A script asks with `except AttributeError`."""
    assert not is_changed("try:\n    x = y.decode()\nexcept AttributeError:\n    x = 'text'\n")


def test_files_take_text_and_bytes(tmp_path):
    """Of either mode, compressed ones, and the terminal; lines, too."""
    path = str(tmp_path / "file")
    for mode in ("w", "wb"):
        values_of(f"f = open(path, '{mode}')\nf.write('a\\xe4')\nf.write(b'\\xc3\\xa4')\nf.writelines(['b', b'c'])\n"
                  "f.close()\n", path=path)
        with open(path, "rb") as file:
            assert file.read() == "a\xe4\xe4bc".encode()
    values_of("f = gzip.open(path, 'wb')\nf.write('a')\nf.close()\n", gzip=gzip, path=path)
    with gzip.open(path) as file:
        assert file.read() == b"a"
    memory = io.StringIO()
    values_of("f.write(b'a')\n", f=memory)
    assert memory.getvalue() == "a"


def test_what_is_no_file_writes_as_it_does():
    """A writer of records takes what it is given."""
    class Writer:
        written = None

        def write(self, record):
            self.written = record

    writer = Writer()
    values_of("w.write(b'a')\n", w=writer)
    assert writer.written == b"a"


def test_errors_have_their_message():
    """The only argument; errors of TensorFlow have one of their own; other objects are asked as before."""
    text = "try:\n    raise ValueError({})\nexcept ValueError as error:\n    message = error.message\n"
    assert values_of(text.format("'wrong'"))["message"] == "wrong"
    assert values_of(text.format("1, 2"))["message"] == ""

    class OwnError(ValueError):
        message = "own"

    assert values_of("try:\n    raise Own('x')\nexcept Own as e:\n    m = e.message\n", Own=OwnError)["m"] == "own"
    assert not is_changed("x = record.message\n")


def test_built_in_names_of_python_2(tmp_path):
    """`file`, `execfile` and so on, and errors."""
    path = str(tmp_path / "script.py")
    values = values_of(
        "f = file(path, 'w')\nf.write('a = 5\\n')\nf.close()\nlines = file(path, 'rU').read()\nexecfile(path)\n"
        "own = {}\nexecfile(path, own)\ntry:\n    raise StandardError('x')\nexcept StandardError:\n    b = 6\n"
        "c = apply(max, (1, 2)), intern('x'), bytes(buffer(b'y'))\nkeys = list({1: 2}.viewkeys())\n", path=path)
    assert (values["lines"], values["a"], values["own"]["a"], values["b"]) == ("a = 5\n", 5, 5, 6)
    assert (values["c"], values["keys"]) == ((2, "x", b"y"), [1])
    assert not is_changed("for file in ['a']:\n    print(file)\n")


def test_classes_have_the_special_methods_of_python_3():
    """Iterators, truth, division and order; what a class has already stays."""
    values = values_of(
        "class A:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n"
        "    def next(self):\n        self.n -= 1\n        if self.n < 0: raise StopIteration\n        return self.n\n"
        "    def __nonzero__(self): return False\n    def __div__(self, other): return 'divided'\n"
        "    def __cmp__(self, other): return cmp(self.n, other.n)\n"
        "numbers = list(A(2))\ntruth = bool(A(1))\nquotient = A(1) / 2\norder = [a.n for a in sorted([A(2), A(1)])]\n")
    assert (values["numbers"], values["truth"], values["quotient"], values["order"]) == (
        [1, 0], False, "divided", [1, 2])
    assert not is_changed("class A:\n    def next(self): return 5\n")
    assert not is_changed("class A:\n    def __iter__(self): return self\n    def next(self): return 5\n"
                          "    __next__ = next\n    def __bool__(self): return True\n    __nonzero__ = __bool__\n")


def test_a_class_is_compared_in_all_ways_by_its_cmp():
    """Issue: `==`, `in` and `index` compared the objects, `<=` failed. Its own comparisons and its hash stay."""
    values = values_of(
        "class A(object):\n    def __init__(self, n): self.n = n\n"
        "    def __cmp__(self, other): return cmp(self.n, other.n)\n"
        "class B(A):\n    def __ne__(self, other): return 'own'\n    __cmp__ = lambda self, other: 0\n"
        "class C(A): pass\n"
        "a, b, c = A(1), A(1), A(2)\n"
        "results = [a == b, a == c, a != b, a != c, a < c, a <= b, c > a, c >= a, a > b, b in [c, a],"
        " [c, a].index(b)]\n"
        "others = [B(1) == B(2), B(1) != B(1), C(1) == C(1), C(2) <= C(1), max([C(1), C(3), C(2)]).n]\n"
        "hashes = len({a: 1, b: 2, a: 3})\n")
    assert values["results"] == [True, False, False, True, True, True, True, True, False, True, 1]
    assert values["others"] == [True, "own", True, False, 3] and values["hashes"] == 2
    assert not is_changed("class A:\n    def compare(self, other): return 0\n")


def test_each_name_is_among_those_of_the_scripts():
    """leftovers.py sets them in the modules that read them."""
    assert value_of("StandardError") is Exception and python2_calls.NAMES.keys() >= {"file", "execfile"}


def test_only_lists_are_sorted_by_a_function(tmp_path):
    """An array is sorted along an axis, and `list.sort` takes the list first."""
    pytest.importorskip("fissix")
    (tmp_path / "rows.py").write_text(
        "import numpy as np\nprint 'sorting'\narray = np.array([[2, 1], [1, 2]])\narray.sort(0)\n"
        "class Rows(list):\n    def sort(self, by): list.sort(self, key=lambda row: row[by])\n"
        "rows = Rows([[1, 2], [2, 1]])\nrows.sort(1)\n"
        "old = [1, 3, 2]\nold.sort(lambda x, y: cmp(y, x))\n"
        "new = sorted(old, cmp=lambda x, y: cmp(y, x), reverse=True)\n")
    changes = conversion.Conversion(is_python2=True, mapped=())
    leftovers.install_changes()
    python2_order.install_order()
    names = {}
    exec(changes.compile(str(tmp_path / "rows.py")), names)
    assert (names["array"].tolist(), names["rows"]) == ([[1, 1], [2, 2]], [[2, 1], [1, 2]])
    assert (names["old"], names["new"]) == ([3, 2, 1], [1, 2, 3])
