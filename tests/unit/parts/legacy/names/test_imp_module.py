"""`imp`, which Python 3.12 removed."""

from __future__ import annotations

import sys

import pytest

from ps_train.parts.legacy.names import imp_module


def test_files_and_folders_are_found_and_loaded(tmp_path, monkeypatch):
    """Each load runs the file anew, under the name that is asked for."""
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
    (tmp_path / "file_of_imp.py").write_text("value = 1000")
    assert imp_module.load_source("file_of_imp", str(tmp_path / "file_of_imp.py")).value == 1000
    with pytest.raises(ImportError, match="nowhere"):
        imp_module.find_module("nowhere", [str(tmp_path)])


def test_a_module_of_python_itself_is_imported():
    """It has no file to run."""
    found = imp_module.find_module("sys")
    assert imp_module.load_module("sys", *found) is sys and found[2][2] == imp_module.C_BUILTIN
