"""What ps_train says about pandas 3."""

from __future__ import annotations

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
