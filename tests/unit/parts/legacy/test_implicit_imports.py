"""Imports from a package's own folder, as Python 2 looked for them."""

import csv
import importlib
import pickle
import sys

import pytest

from ps_train.parts.legacy import conversion


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Returns a function that writes the files of a package, then imports it as a script's."""
    for owner, names in ((pickle, ("load", "loads", "dump")), (csv, ("reader", "writer"))):  # which are replaced
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))

    def write_and_import(**files):
        folder = tmp_path / "implicit"
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        monkeypatch.chdir(tmp_path)
        conversion.Conversion(is_python2=False, mapped=(), finds_python2=True).install()
        return importlib.import_module("implicit")
    yield write_and_import
    for name in [name for name in sys.modules if name.split(".")[0] in ("implicit", "beside_it")]:
        del sys.modules[name]


@pytest.mark.parametrize("line", [
    "from beside_it import x", "from beside_it import *", "import os, beside_it; x = beside_it.x",
    "import beside_it as other; x = other.x", "def read():\n    from beside_it import x\n    return x\nx = read()"])
def test_a_module_beside_the_importing_one_is_found(load, line):
    """As the package's own module."""
    package = load(__init__=f"{line}\n", beside_it="x = 5\n")
    assert package.x == 5
    assert "implicit.beside_it" in sys.modules and "beside_it" not in sys.modules


def test_a_module_that_python_3_finds_comes_first(load, tmp_path):
    """Of the script's folder here; so nothing changes for code that runs already."""
    (tmp_path / "beside_it.py").write_text("x = 7\n")
    assert load(__init__="import json\nfrom beside_it import x\n", beside_it="x = 5\n", json="x = 6\n").x == 7
    assert "implicit.json" not in sys.modules


def test_a_module_does_not_import_itself_nor_what_its_code_expects_to_be_missing(load):
    """An optional package, whose stand-in in the script has its name."""
    package = load(__init__="from implicit import beside_it\nfound = beside_it.beside_it, beside_it.other\n",
                   beside_it="try:\n    import beside_it\nexcept ImportError:\n    beside_it = None\n"
                             "try:\n    import other_one as other\nexcept ImportError:\n    other = None\n",
                   other_one="x = 5\n")
    assert package.found == (None, None)


@pytest.mark.parametrize(("init", "beside"), [
    ("from beside_it import x\n", "import not_there\nx = 5\n"),
    ("from __future__ import absolute_import\nfrom beside_it import x\n", "x = 5\n")])
def test_what_is_missing_in_python_2_too_stays_an_error(load, init, beside):
    """A module that the found one imports, or one of a file that asks for Python 3's imports."""
    with pytest.raises(ModuleNotFoundError, match="not_there|beside_it"):
        load(__init__=init, beside_it=beside)
