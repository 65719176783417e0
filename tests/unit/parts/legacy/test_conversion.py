"""Code of Python 2 and paths that are written into it, on their way into Python."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import pathlib
import pickle
import sys

import numpy as np
import pytest

from ps_train.parts.legacy import (
    conversion,
    division,
    leftovers,
    own_files,
    path_mapping,
    python2_bytes,
    python2_library,
    python2_numbers,
    python2_order,
)
from ps_train.parts.legacy.conversion import Conversion
from ps_train.parts.legacy.flags import parse_mapped
from tests.errors import raises

HAS_FISSIX = importlib.util.find_spec("fissix") is not None
needs_fissix = pytest.mark.skipif(not HAS_FISSIX, reason="needs the extra python2")


@pytest.fixture(autouse=True)
def _other_tests_read_files_as_before(monkeypatch):
    for owner, names in ((pickle, ("load", "loads", "dump")), (csv, ("reader", "writer"))):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))


def values_of(text, tmp_path, **options):
    """Runs a text as a script, and returns its names."""
    path = tmp_path / "script.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    changes = Conversion(**{"is_python2": True, "mapped": (), **options})
    leftovers.install_changes()
    division.install_division()
    python2_numbers.install_functions()
    python2_order.install_order()
    python2_bytes.install_bytes()
    names = {"__name__": "__main__"}
    exec(changes.compile(str(path)), names)
    assert path.read_bytes() == (text if isinstance(text, bytes) else text.encode())
    return names


def test_tabs_before_code_are_expanded_and_those_in_strings_stay(tmp_path):
    """To stops of eight columns, as Python 2 read them."""
    text = 'if True:\n\ta = 1\n        b = "\t2"\n    \tc = """\n\t3 # "\n"""\n\td = \'#\'\t# \'\n'
    expanded = conversion.expand_tabs(text)
    assert expanded.split("\n")[1:4] == ["        a = 1", '        b = "\t2"', '        c = """']
    assert {name: value for name, value in values_of(text, tmp_path).items() if len(name) == 1} == {
        "a": 1, "b": "\t2", "c": '\n\t3 # "\n', "d": "#"}


@pytest.mark.parametrize(("is_python2", "expected"), [(True, (3.5, 1.0, 12416037344)), (False, (3.5, 0, hash("a")))])
def test_numbers_are_those_of_python_2_in_a_file_that_is_converted(tmp_path, is_python2, expected):
    """A file that Python 3 can read has Python 3's."""
    text = "import math\nx = math.floor(7.5) / 2, round(0.5), hash('a')\n"
    assert values_of(text, tmp_path, is_python2=is_python2, finds_python2=True)["x"] == expected


@needs_fissix
@pytest.mark.parametrize(("line", "half"), [("division", 0.5), ("absolute_import", 0)])
def test_a_licence_may_stand_before_the_imports_from_future(tmp_path, line, half):
    """A second string, which only Python 2 allowed: the file is Python 2, with its division."""
    text = f'"""Licence."""\n"""What it does."""\nfrom __future__ import {line}\n"""More."""\n' \
           "from __future__ import print_function\nimport sys\nhalf, at = 1 / 2, sys._getframe().f_lineno\n"
    names = values_of(text, tmp_path, is_python2=False, finds_python2=True)
    assert (names["half"], names["at"], names["__doc__"]) == (half, 7, "Licence.")
    with pytest.raises(SyntaxError, match="from __future__"):
        values_of('"""A."""\nimport sys\nfrom __future__ import division\n', tmp_path, is_python2=False,
                  finds_python2=True)


def test_a_name_may_be_used_before_it_is_declared_global(tmp_path):
    """Which Python 3.6 and later refuse, in a module as in a function; the others stay as they are."""
    text = ("count, step = 0, 1\nif True:\n    global count\n    count = 5\n"
            "def add():\n    '''Adds.'''\n    print(count, step)\n    if count:\n        global count, more\n"
            "        count += 1\n        more = 2\n    def inner():\n        count = 9\n        return count\n"
            "    return inner()\n")
    with pytest.raises(SyntaxError, match="before global declaration"):
        compile(text, "script.py", "exec")
    names = values_of(text, tmp_path, is_python2=False, finds_python2=True)
    assert names["add"]() == 9 and (names["count"], names["more"]) == (6, 2)
    assert names["add"].__doc__ == "Adds."
    python2 = values_of("print 1\n" + text, tmp_path, is_python2=False, finds_python2=True) if HAS_FISSIX else names
    assert python2["count"] in (5, 6)


@needs_fissix
def test_values_of_different_types_have_the_order_of_python_2(tmp_path):
    """None before numbers, and these before text; an error in a file of Python 3, and of objects without order."""
    text = "found = ['' > 0, None < -1, 3 >= None, {} < [], 'a' < (1,), 2 < 1, 1 < 2 < 3, u'b' < 'a', [1] < [2]]\n"
    assert values_of(text + "print 1\n", tmp_path)["found"] == [
        True, True, True, True, True, False, True, False, True]
    for options in ({"is_python2": False, "finds_python2": True}, {"is_python2": True}):
        with pytest.raises(TypeError, match="not supported between"):
            values_of("[] < object()\n" if options["is_python2"] else text, tmp_path, **options)


def test_a_package_of_python_2_may_have_no_source(tmp_path, monkeypatch):
    """Nothing but an `__init__.pyc`, which was in its repository by mistake, and could be read by Python 2 only."""
    for name, magic in (("old_code", b"\x03\xf3\r\n"), ("new_code", importlib.util.MAGIC_NUMBER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.pyc").write_bytes(magic + bytes(12) + b"N")
        (tmp_path / name / "inner.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    Conversion(is_python2=False, mapped=(), finds_python2=True).install()
    assert importlib.import_module("old_code.inner").value == 1
    with pytest.raises(ImportError, match="Non-code object"):
        importlib.import_module("new_code.inner")


@needs_fissix
def test_statements_of_python_2_become_those_of_python_3(tmp_path, capsys):
    """Print, exceptions, names and modules; a file with the print function, too."""
    names = values_of('import cPickle\nfrom Queue import Queue\nprint "x",\nprint 1\ntry:\n\traise ValueError, "y"\n'
                      "except ValueError, error:\n\ttext = unicode(error)\nkeys = {1: 2}.keys()\nkeys.sort()\n"
                      "has = {1: 2}.has_key(1), 0777, 10L, map(str, xrange(2))\n", tmp_path)
    assert capsys.readouterr().out == "x 1\n"
    assert (names["text"], names["keys"], names["has"]) == ("y", [1], (True, 0o777, 10, ["0", "1"]))
    assert values_of("print('a', file=__import__('sys').stderr)\nx = xrange(2)[1]\n", tmp_path)["x"] == 1


@needs_fissix
@pytest.mark.parametrize("line", [
    "from StringIO import StringIO", "from cStringIO import StringIO", "import StringIO as module",
    "import cStringIO as module",
    "try:\n    from cStringIO import StringIO\nexcept:\n    from StringIO import StringIO",
    "try:\n    import StringIO as module\nexcept ImportError:\n    raise SystemExit('no StringIO')"])
def test_a_file_in_memory_takes_text_and_bytes(line, tmp_path, monkeypatch):
    """Issue: `StringIO(file.read())` of a file of bytes was refused: the name became that of Python 3's `io`."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, python2_library.LibraryFinder()])
    kind = "module.StringIO" if "module" in line else "StringIO"
    names = values_of(f"{line}\nx, y = {kind}(b'ab').read(), {kind}('c').read()\nprint 'x'\n", tmp_path)
    assert (names["x"], names["y"]) == (b"ab", "c")


@needs_fissix
def test_a_file_that_only_python_2_can_read_is_found(tmp_path, monkeypatch, capsys):
    """The others keep the division of Python 3; what is wrong in both stays wrong."""
    for name, text in (("old", "print 7 / 2\n"), ("new", "print(7 / 2, {1: 2}.keys()[0], xrange(1)[0])\n")):
        (tmp_path / f"found_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    Conversion(False, (), finds_python2=True).install()
    try:
        importlib.import_module("found_old")
        importlib.import_module("found_new")
    finally:
        for name in ("found_old", "found_new"):
            sys.modules.pop(name, None)
    assert capsys.readouterr().out == "3\n3.5 1 0\n"
    assert conversion.is_text_python2("f = lambda (a, b): a\n", "f.py")
    assert not conversion.is_text_python2("x = 5 5\n", "f.py") and not conversion.is_text_python2("x = 5\n", "f.py")


def test_without_fissix_a_file_of_python_2_is_found_by_the_error_that_python_3_makes(tmp_path, monkeypatch):
    """So that the error can name the extra."""
    monkeypatch.setattr(conversion, "_has_fissix", lambda: False)
    assert conversion.is_text_python2("print 'x'\n", "f.py") and not conversion.is_text_python2("x = 5 5\n", "f.py")
    with raises("package_missing"):
        values_of("print 'x'\n", tmp_path, is_python2=False, finds_python2=True)


_NAMES = """
class Flags: pass
flags = Flags()
flags.async = 3  # async
async, await = flags.async, 'async'
def f(a, async=1):
\tglobal await
\tawait += '!'
\treturn async
g = f(0, async=2)
"""


@needs_fissix
@pytest.mark.parametrize(("end", "half"), [("", 3.5), ("print half\n", 3)], ids=["python3", "python2"])
def test_async_and_await_are_names(end, half, tmp_path):
    """Of arguments, attributes and variables, as until Python 3.6; strings and comments stay, and Python 3 is found."""
    names = values_of(f"{_NAMES}half = 7 / 2\n{end}", tmp_path, is_python2=False, finds_python2=True)
    assert (names["async"], names["await"], names["g"], vars(names["flags"])) == (3, "async!", 2, {"async": 3})
    assert names["half"] == half


def test_async_and_await_stay_keywords(tmp_path):
    """And what is wrong stays wrong."""
    assert values_of("async def f(): return await g()\n", tmp_path)["f"].__name__ == "f"
    with pytest.raises(SyntaxError):
        values_of("async = = 1\n", tmp_path, is_python2=False, finds_python2=True)


@needs_fissix
def test_the_lines_stay(tmp_path):
    """So a traceback shows those of the original."""
    with pytest.raises(ZeroDivisionError) as caught:
        values_of("import urllib2, cPickle\n\n\ndef f():\n\tprint 'x'\n\treturn 1 / 0\nf()\n", tmp_path)
    frames = [(entry.path.name, entry.lineno + 1) for entry in caught.traceback if entry.path.name == "script.py"]
    assert frames == [("script.py", 7), ("script.py", 6)]


def test_whole_numbers_are_divided_as_in_python_2(tmp_path):
    """Also in place, and numpy's; what is a float stays exact; tensors and old classes by their __div__."""
    names = values_of(
        "import numpy as np\n"
        "class Old(object):\n    def __div__(self, other): return 'div', other\n"
        "    def __rdiv__(self, other): return 'r'\n"
        "a = 7 / 2, 7. / 2, -7 / 2, np.int64(7) / 2, Old() / 3, 3 / Old()\n"
        "b = np.array([7, 8]) / 2\nc = 7\nc /= 2\nd = np.array([7, 8])\ne = d\nd /= 2\nf = {'x': 9}\nf['x'] /= 2\n"
        "g = np.array([7, 8])\ng /= 2.5\n", tmp_path)
    assert names["a"] == (3, 3.5, -4, 3, ("div", 3), "r")
    assert (names["b"].tolist(), names["c"], names["e"].tolist(), names["f"]["x"]) == ([3, 4], 3, [3, 4], 4)
    assert names["g"].tolist() == [2, 3] and np.issubdtype(names["g"].dtype, np.integer)


@pytest.mark.parametrize(("target", "expected"), [
    ("items[f(1)]", 3), ("table[f(1), 0]", 6), ("table[f(1):, 0][0]", 6), ("table[f(1):, 0]", [6]),
    ("items[(yield f(1))]", 3), ("f(self).x", 4), ("f(self).__y", 4)])
def test_the_target_of_a_division_in_place_is_computed_once(tmp_path, target, expected):
    """Issue: `x[f()] /= y` called f twice, and so divided one element into another. It is called before y."""
    plain = target.replace("(yield f(1))", "1").replace("f(1)", "1").replace("f(self)", "self")
    names = values_of(
        "import numpy as np\ncalls, items, table = [], [4, 6], np.array([[8, 10], [12, 14]])\n"
        "def f(value):\n    calls.append('target')\n    return value\n"
        "def two():\n    calls.append('value')\n    return 2\n"
        "class Owner(object):\n    x, __y = 8, 9\n"
        f"    def divide(self):\n        {target} /= two()\n        yield {plain}\n"
        "steps = Owner().divide()\nresult = steps.next()\nif result == 1:\n    result = steps.send(1)\n", tmp_path)
    assert np.array(names["result"]).tolist() == expected and names["calls"] == ["target", "value"]


@pytest.mark.parametrize("line", [
    "from __future__ import division", "from __future__ import print_function, division",
    "from __future__ import (absolute_import,\n    division)"])
def test_a_file_may_have_asked_for_true_division(tmp_path, line):
    """With the statement that Python 2 has for it."""
    assert values_of(f"{line}\nx = 7 / 2\n", tmp_path)["x"] == 3.5


def test_a_file_is_read_in_its_encoding(tmp_path):
    """As its first lines say; Latin-1 if it says nothing and is no UTF-8; a byte order mark is none of the code."""
    assert values_of("# -*- coding: latin-1 -*-\nx = u'\xe4'\n".encode("latin-1"), tmp_path)["x"] == "\xe4"
    assert values_of("x = u'\xe4'\r\n".encode("latin-1"), tmp_path)["x"] == "\xe4"
    assert values_of("\ufeffx = u'\u20ac'\n".encode(), tmp_path)["x"] == "\u20ac"


def test_without_fissix_tabs_are_expanded_and_the_rest_names_the_extra(tmp_path, monkeypatch):
    """Most old files need no more than that."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fissix" else find(name))
    assert values_of("if True:\n\tx = 1\n        y = 2\n", tmp_path)["y"] == 2
    with raises("package_missing"):
        values_of("print 1\n", tmp_path)


@needs_fissix
def test_what_is_wrong_in_both_is_a_syntax_error_of_the_file(tmp_path):
    """With its name and line."""
    with pytest.raises(SyntaxError) as caught:
        values_of("x = 1\ny = 5 5\n", tmp_path)
    assert (caught.value.filename, caught.value.lineno) == (str(tmp_path / "script.py"), 2)


def test_local_modules_are_converted_too_and_no_code_of_theirs_is_kept(tmp_path, monkeypatch):
    """Those of a package as well; an installed module is left alone."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "old_package").mkdir()
    (tmp_path / "old_package/__init__.py").write_text("")
    (tmp_path / "old_package/part.py").write_text("if True:\n\tx = 7 / 2\n        y = 'hdfs://a/b'\n")
    finders = list(sys.meta_path)
    Conversion(True, (("hdfs://a", "/local"),)).install()
    try:
        part = importlib.import_module("old_package.part")
    finally:
        sys.meta_path[:] = finders
        sys.modules.pop("old_package.part", None)
        sys.modules.pop("old_package", None)
    assert (part.x, part.y) == (3, "/local/b")
    assert list(tmp_path.rglob("*.pyc")) == []


def test_a_module_in_which_nothing_changes_is_read_once_and_its_code_is_kept(tmp_path, monkeypatch):
    """As Python keeps it, so the next start is as fast; one that changes is not kept."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(conversion, "is_text_python2", None)  # Python 3 can read both
    (tmp_path / "same_module.py").write_text("x = [i for i in range(3)]\ny = len(list(map(str, x)))\n")
    (tmp_path / "changed_module.py").write_text("x = map(str, range(3))[0]\n")
    Conversion(False, (), finds_python2=True).install()
    leftovers.install_changes()
    division.install_division()
    try:
        assert importlib.import_module("same_module").y == 3 and importlib.import_module("changed_module").x == "0"
    finally:
        for name in ("same_module", "changed_module"):
            sys.modules.pop(name, None)
    assert [path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")] == ["same_module"]


@pytest.mark.parametrize("options", [{}, {"is_python2": False, "finds_python2": True},
                                     {"is_python2": False, "mapped": (("/a", "/b"),)}])
def test_long_expressions_are_compiled(tmp_path, options):
    """By each of the changes."""
    terms = " + ".join(["'a'"] * 700)
    assert len(values_of(f"x = {terms}\n", tmp_path, **options)["x"]) == 700


@needs_fissix
def test_an_init_file_beside_a_script_makes_no_package_of_it(tmp_path, monkeypatch):
    """Its imports, and those of modules beside it, stay absolute; those of a module in a package are Python 2's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("__init__.py", ""), ("beside_1.py", "import beside_2\nz = beside_2.z\n"),
                       ("beside_2.py", "z = 5\n"), ("inner/__init__.py", ""), ("inner/first.py", "import second\n"),
                       ("inner/second.py", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    finders, modules = list(sys.meta_path), set(sys.modules)
    Conversion(True, ()).install()
    try:
        assert values_of("import beside_1\nfrom inner import first\nz = beside_1.z\n", tmp_path)["z"] == 5
        assert sys.modules["inner.first"].second is sys.modules["inner.second"]
    finally:
        sys.meta_path[:] = finders
        for name in set(sys.modules) - modules:
            del sys.modules[name]


def test_universal_newlines_are_those_of_python_3(tmp_path):
    """open(path, "rU") raises in Python 3.11."""
    (tmp_path / "lines").write_bytes(b"a\r\nb\r")
    text = f"path = {str(tmp_path / 'lines')!r}\na = open(path, 'rU').read()\nb = open(path, mode='U').read()\n"
    values = values_of(text, tmp_path)
    assert values["a"] == values["b"] == "a\nb\n"


def test_what_pip_has_put_into_a_folder_is_left_alone(tmp_path, monkeypatch):
    """`pip install --target` writes a .dist-info beside the modules; so are ps_train's own packages in a checkout."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "newer-1.0.dist-info").mkdir()
    (tmp_path / "newer_module.py").write_text("x = 7 / 2\n")
    finders = list(sys.meta_path)
    Conversion(True, ()).install()
    try:
        import newer_module  # noqa: PLC0415 (found since the lines before)
    finally:
        sys.meta_path[:] = finders
    assert newer_module.x == 3.5
    own_data = pathlib.Path(conversion.__file__).parents[3] / "data"
    assert all(own_files.is_of_a_package(own_data / name) for name in ("input_data.py", "tabular/features.py"))
    assert not own_files.is_of_a_package(pathlib.Path(__file__).parent / "data/input_data.py")


def test_packages_beside_ps_train_in_a_checkout_hide_none_of_the_user(tmp_path, monkeypatch):
    """Issue: a project's own `models`, which it adds to the end of sys.path, was not found."""
    checkout = str(pathlib.Path(conversion.__file__).parents[3])
    (tmp_path / "models").mkdir()
    (tmp_path / "models/__init__.py").write_text("")
    (tmp_path / "data").mkdir()  # not a package
    monkeypatch.setattr(sys, "path", ["/nowhere", checkout, *(place for place in sys.path if place), str(tmp_path)])
    found = conversion._hidden_by_checkout("models")
    assert found is not None and found.origin == str(tmp_path / "models/__init__.py")
    assert conversion._hidden_by_checkout("data") is conversion._hidden_by_checkout("json") is None
    (tmp_path / "data/numbers.csv").write_text("")
    assert conversion._hidden_by_checkout("data") is None
    (tmp_path / "data/reader.py").write_text("")  # now it is one, without an __init__.py
    assert list(conversion._hidden_by_checkout("data").submodule_search_locations) == [str(tmp_path / "data")]
    monkeypatch.setattr(sys, "path", sys.path[1:])  # a script of the checkout
    assert conversion._hidden_by_checkout("models") is None


@pytest.mark.parametrize(("text", "expected"), [
    ("'hdfs://x/y'", "/z"), ("'hdfs://x/y/train*.csv'", "/z/train*.csv"), ("'hdfs://x/yy'", "/rest/yy"),
    ("'hdfs://xx'", "hdfs://xx"),
    ("'hdfs://x/w'", "/rest/w"), ("b'hdfs://x/y/a'", b"/z/a"), ("f'hdfs://x/y/{1}'", "/z/1"),
    ("'hdfs://x/y/a,hdfs://x/y/b'", "/z/a,/z/b"), ("'hdfs://x/y' + '/a'", "/z/a"),
    ("'hdfs://%s/a' % 'x'", "hdfs://x/a"),
    ("'/data/a'", "/mine/a"), ("'/other/data/a'", "/other/data/a"), ("'/database'", "/database"),
    ("'--dir=/data/a'", "--dir=/mine/a"), ("'s3://' + 'b'", "/s3/b"),
    ("'{}/data/a'.format('x')", "x/data/a"), ("f'{1}/data/{2}/data/a,/data/b'", "1/data/2/data/a,/mine/b"),
    ("f'/data/{1}{2} /data/a'", "/mine/12 /mine/a"),
])
def test_paths_in_constants_are_replaced(tmp_path, text, expected):
    """The longest one counts; a path in the middle of a longer name is another one.

    Issue: behind an expression of an f-string, or the braces of `format`, a piece was taken for a whole path.
    """
    mapped = parse_mapped("--map_path", "hdfs://x=/rest,hdfs://x/y=/z,/data=/mine,s3://=/s3/")
    assert values_of(f"x = {text}\n", tmp_path, is_python2=False, mapped=mapped)["x"] == expected


def test_pairs_of_paths_are_parsed():
    """The first = before a path separates them, as a partition has one in its name."""
    assert parse_mapped("--map_path", "hdfs://x/day=1=/z, a=b,/c=~/d,") == (
        ("hdfs://x/day=1", "/z"), ("a", "b"), ("/c", "~/d"))
    with raises("flag_malformed"):
        parse_mapped("--map_path", "hdfs://x")


def test_a_scheme_that_tensorflow_does_not_know_leads_to_the_flag():
    """With the folder of the path that it could not open."""
    error = RuntimeError("File system scheme 'hdfs' not implemented (file: 'hdfs://x/y/z.txt')")
    assert "--map_path=hdfs://x/y=/local/folder" in path_mapping.path_hint(error)
    assert path_mapping.path_hint(RuntimeError("x")) == ""
