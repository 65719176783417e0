"""Modules of Python 2's library, and its files."""

from __future__ import annotations

import csv
import gc
import gzip
import importlib
import io
import pickle
import sys
import tempfile

import pytest

from ps_train.parts.legacy import python2_library
from ps_train.parts.legacy.encoded_text import encoder_of
from ps_train.parts.legacy.python2_bytes import Received

OLD_PICKLE = b"U\x02\xff\x00q\x00."  # pickle.dumps("\xff\0", 2) of Python 2


@pytest.mark.parametrize("today", sorted(set(python2_library.MODULES.values()) - {"tkinter"}))
def test_each_module_of_python_2_is_one_of_python_3(today):
    """Without Tk, which not each installation has."""
    assert importlib.import_module(today)


@pytest.fixture
def imported(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, python2_library.LibraryFinder()])
    for name in _found():
        monkeypatch.delitem(sys.modules, name)
    yield lambda name: importlib.import_module(python2_library.PREFIX + name)
    for name in _found():
        del sys.modules[name]  # else another test would find the module that this one has made


def _found():
    return [name for name in sys.modules if name.startswith(python2_library.PREFIX)]


def test_a_module_of_that_name_beside_the_script_comes_first(tmp_path, monkeypatch, imported):
    """Scripts have a queue.py or a commands.py of their own."""
    (tmp_path / "commands.py").write_text("own = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert imported("commands").own
    finally:
        del sys.modules["commands"]


def test_nothing_finds_a_module_of_python_2_by_its_own_name(imported):
    """`try: import cPickle` of a package ends as before."""
    assert imported("cPickle").dumps(5)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("cPickle")


def test_cpickle_reads_text_of_python_2_and_pickle_stays(imported):
    """As Latin-1, unless an encoding is given."""
    module = imported("cPickle")
    assert module.loads(OLD_PICKLE) == module.load(io.BytesIO(OLD_PICKLE)) == "\xff\0"
    assert module.loads(OLD_PICKLE, encoding="bytes") == b"\xff\0"
    assert module.HIGHEST_PROTOCOL == pickle.HIGHEST_PROTOCOL and module.dumps(70000, module.HIGHEST_PROTOCOL)[1] == 2
    with pytest.raises(UnicodeDecodeError):
        pickle.loads(OLD_PICKLE)


@pytest.mark.parametrize(("initial", "written", "expected"), [
    ("", b"ab", b"ab"), ("", "ab", "ab"), ("xy", "a", "ay"), (b"xy", b"a", b"ay")])
def test_a_file_in_memory_is_of_its_first_value(initial, written, expected, imported):
    """Text or bytes; both cStringIO's and StringIO's."""
    for name in ("StringIO", "cStringIO"):
        file = imported(name).StringIO(initial)
        file.write(written)
        assert file.getvalue() == expected
        file.seek(1)
        assert file.read() == expected[1:] and file.tell() == 2
        file.seek(0)
        assert list(file) == [expected]
    with imported("StringIO").StringIO(initial) as file:
        file.seek(0, 2)
        file.writelines([written, written])
    assert file.closed


@pytest.mark.parametrize(("values", "expected"), [
    ((encoder_of("\xe9")(), "\n"), "\xe9\n"), (("a", b"\x05\0"), "a\x05\0"), ((b"a", "\xe9"), b"a\xc3\xa9"),
    ((Received(b"\xff"), "a"), b"\xffa")])
def test_a_file_in_memory_takes_text_and_bytes_together(values, expected, imported):
    """Issue: `b.write("a"); b.write(struct.pack("<I", 5))` was refused; what `encode` returned is text."""
    new, begun = imported("StringIO").StringIO(), imported("StringIO").StringIO(values[0])
    new.writelines(values)
    begun.seek(0, 2)
    begun.write(values[1])
    assert new.getvalue() == begun.getvalue() == expected and type(new.getvalue()) is type(expected)


def test_a_file_in_memory_that_is_empty_reads_as_text(imported):
    """Until something is written."""
    file = imported("StringIO").StringIO()
    file.seek(0)
    assert (file.read(), file.getvalue(), list(file)) == ("", "", []) and next(file, 5) == 5


@pytest.fixture
def _python2_files(monkeypatch):
    for owner, names in ((pickle, ("load", "loads", "dump")), (csv, ("reader", "writer"))):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    python2_library.read_files_of_python2()


@pytest.mark.usefixtures("_python2_files")
def test_pickles_of_python_2_are_read(tmp_path):
    """Text that is not ASCII, which Python 3 refuses; files of text; an encoding that the script gives counts."""
    assert pickle.loads(OLD_PICKLE) == pickle.load(io.BytesIO(OLD_PICKLE)) == "\xff\0"
    assert pickle.loads(OLD_PICKLE, encoding="bytes") == b"\xff\0"
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


@pytest.mark.usefixtures("_python2_files")
def test_a_file_of_bytes_stays_open_when_its_table_is_gone(tmp_path):
    """It can be read again, or written to by another writer; so can compressed and temporary files."""
    with open(tmp_path / "table", "w+b") as file:
        csv.writer(file).writerow(["a", "b"])
        gc.collect()
        csv.writer(file).writerow(["c", "d\ne"])
        file.seek(0)
        assert next(csv.reader(file)) == ["a", "b"]
        gc.collect()
        file.seek(0)
        assert [*csv.reader(file)] == [["a", "b"], ["c", "d\ne"]]
    with gzip.open(tmp_path / "table.gz", "wb") as file:
        csv.writer(file).writerow(["a"])
    with gzip.open(tmp_path / "table.gz") as file:
        assert [*csv.reader(file)] == [["a"]]
    with tempfile.NamedTemporaryFile() as file:
        csv.writer(file).writerow(["a"])
        file.seek(0)
        assert [*csv.reader(file)] == [["a"]]


@pytest.mark.usefixtures("_python2_files")
def test_lines_of_a_table_may_end_by_a_carriage_return_and_be_no_file():
    """As old files of the Macintosh, and lists."""
    assert [*csv.reader(io.BytesIO(b"a,b\rc,d\r"))] == [["a", "b"], ["c", "d"]]
    assert [*csv.reader(["a,b"])] == [["a", "b"]]


@pytest.mark.usefixtures("_python2_files")
def test_a_table_may_be_in_memory():
    """As text or bytes, and in a file that is empty yet."""
    for content in ("a,b", b"a,b", ""):
        file = python2_library.TextOrBytes(content)
        assert [*csv.reader(file)] == ([["a", "b"]] if content else [])
        csv.writer(file).writerow(["c"])
        assert file.getvalue() == content + ("c\r\n" if isinstance(content, str) else b"c\r\n")
