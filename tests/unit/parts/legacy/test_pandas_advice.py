"""What ps_train says about pandas 3."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import types

import numpy as np
import pytest

from ps_train.parts.legacy import pandas_advice


@pytest.mark.parametrize("version, is_advised", [("3.1.1", True), ("2.3.0", False), ("", False)])
def test_a_read_only_array_is_explained_under_pandas_3(monkeypatch, version, is_advised):
    """Issue: "assignment destination is read-only" named nothing to do."""
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(__version__=version))
    array = np.ones([2, 2])
    array.flags.writeable = False
    for change in (lambda: array.__setitem__(0, 1), lambda: np.subtract(array, 1, out=array),
                   lambda: np.random.shuffle(array)):
        with pytest.raises(ValueError) as caught:
            change()
        assert ("frame.values.copy()" in pandas_advice.read_only_hint(caught.value)) == is_advised
    assert not pandas_advice.read_only_hint(ValueError("the file is read-only"))
    assert not pandas_advice.read_only_hint(OSError("array is read-only"))


@pytest.mark.parametrize("version, code, is_warned", [
    ("3.0.0", "import pandas as pd", True), ("10.1", "def load():\n    from pandas.io import json", True),
    ("2.3.3", "import pandas as pd", False), ("3.0.0", "from .pandas import x\nimport pandas_utils", False),
    ("3.0.0", "pandas = 'a text'", False), (None, "import pandas", False)])
def test_a_script_that_imports_pandas_3_is_warned_once(monkeypatch, capsys, version, code, is_warned):
    """Issue: a column with a name of its own did not change its frame, and nothing said so."""
    def find(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", find)
    monkeypatch.setattr(pandas_advice, "_warned", [])
    for _ in range(2):
        pandas_advice.warn_of_copies(ast.parse(code))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == is_warned and all("pip install 'pandas<3'" in line for line in lines)
