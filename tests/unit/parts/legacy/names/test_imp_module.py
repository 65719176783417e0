"""`imp`, which Python 3.12 removed."""

from __future__ import annotations

import py_compile
import sys

import pytest

from ps_train.parts.legacy.names import imp_module


def test_files_and_folders_are_found_and_loaded(tmp_path, monkeypatch):
    """Each load runs the file anew, under the name that is asked for, and in the module that has it."""
    (tmp_path / "package_of_imp").mkdir()
    (tmp_path / "package_of_imp/__init__.py").write_text("value = 1")
    (tmp_path / "file_of_imp.py").write_text("value = 2")
    for name, kind in (("package_of_imp", imp_module.PKG_DIRECTORY), ("file_of_imp", imp_module.PY_SOURCE)):
        monkeypatch.setitem(sys.modules, name, None)
        file, path, description = imp_module.find_module(name, [str(tmp_path)])
        assert description[2] == kind and path.startswith(str(tmp_path)) and (file is None) == (name[0] == "p")
        module = imp_module.load_module(name, file, path, description)
        assert sys.modules[name] is module and module.value == (1 if file is None else 2)
        if file:
            file.close()
    module.kept, path = 7, tmp_path / "file_of_imp.py"
    path.write_text("value = 1000")
    again = imp_module.load_source("file_of_imp", str(path))
    assert again is module and (again.value, again.kept) == (1000, 7)
    with pytest.raises(ImportError, match="nowhere"):
        imp_module.find_module("nowhere", [str(tmp_path)])


def test_a_module_of_python_itself_is_imported():
    """It has no file to run."""
    found = imp_module.find_module("sys")
    assert imp_module.load_module("sys", *found) is sys and found[2][2] == imp_module.C_BUILTIN


def test_a_module_that_fails_is_not_kept(tmp_path):
    """One that was loaded before is."""
    path = tmp_path / "broken.py"
    path.write_text("value = 1\nraise KeyError('x')\n")
    with pytest.raises(KeyError):
        imp_module.load_source("broken_of_imp", str(path))
    assert "broken_of_imp" not in sys.modules


def test_further_functions(tmp_path, monkeypatch):
    """Byte code, packages, the lock, and what files may be modules."""
    for name in ("compiled_of_imp", "whole_of_imp"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    source, code = tmp_path / "__init__.py", tmp_path / "compiled.pyc"
    source.write_text("value = 3\n")
    py_compile.compile(str(source), str(code))
    assert imp_module.load_compiled("compiled_of_imp", str(code)).value == 3
    assert imp_module.load_package("whole_of_imp", str(tmp_path)).value == 3
    assert (".py", "r", imp_module.PY_SOURCE) in imp_module.get_suffixes()
    assert (imp_module.is_builtin("sys"), imp_module.is_builtin("json")) == (1, 0)
    imp_module.acquire_lock()
    assert imp_module.lock_held()
    imp_module.release_lock()
    for name in ("compiled_of_imp", "whole_of_imp"):
        del sys.modules[name]
