"""Functions of numpy that scripts call through a wrapper."""

from __future__ import annotations

import types

import numpy as np
import pytest

from ps_train.parts.legacy.names.arrays import ragged_array, reshape, wrap
from ps_train.runtime import tracebacks

_SCRIPT = """\
def train():
    numbers.sort(5)
"""


def test_what_the_library_behind_a_wrapper_refuses_is_about_the_call(tmp_path):
    """The last line that failed is ps_train's, which has passed the call on."""
    numbers = types.SimpleNamespace(sort=sorted)
    wrap("sort", ragged_array, numbers)
    path = tmp_path / "script.py"
    path.write_text(_SCRIPT)
    scope = {"numbers": numbers}
    exec(compile(_SCRIPT, str(path), "exec"), scope)
    try:
        scope["train"]()
    except TypeError as error:
        trace, fault = tracebacks.report(error)
    assert fault.code == "user_code_failed" and trace[0] == tracebacks.HEADING


@pytest.mark.parametrize(("args", "kwargs"), [
    (([2, 3],), {}), (([2, 3], "F"), {}), ((), {"newshape": [2, 3]}), ((), {"newshape": [2, 3], "order": "F"})])
def test_reshape_takes_the_name_that_its_argument_had(args, kwargs):
    """Issue: numpy 2.4 refuses `newshape`."""
    is_by_column = "F" in [*args, *kwargs.values()]
    assert reshape(np.reshape, np.arange(6), *args, **kwargs)[0].tolist() == ([0, 2, 4] if is_by_column else [0, 1, 2])
