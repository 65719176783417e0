"""Functions of numpy that scripts call through a wrapper."""

from __future__ import annotations

import types

from ps_train.parts.legacy.names.arrays import ragged_array, wrap
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
