"""What --callbacks may name."""

from __future__ import annotations

import pytest

from ps_train.parts.callbacks.flags import parse_callbacks
from tests.errors import raises


@pytest.mark.parametrize("module", ["__main__", "__mp_main__", "__main__.watch"])
def test_a_function_of_the_program_that_starts_the_tasks_is_refused_as_the_flag_is_read(module):
    """Issue: `__main__.__spec__ is None` with a traceback, or "ps_train/__main__.py has no function make"."""
    with raises("plugin_not_found") as caught:
        parse_callbacks("--callbacks", f"watch:make,{module}:make")
    assert f"got '{module}:make'" in str(caught.value)
    assert "give mymodule:make" in str(caught.value)
