"""--init_map, and --init_checkpoint without which it does nothing."""

from __future__ import annotations

import pytest

from ps_train.config import task
from tests.errors import raises


@pytest.mark.parametrize("text", ["bias", "old/:bias", "a:bias,old/:new/,b:bias"],
                         ids=["no pair", "a scope and a name", "filled twice"])
def test_a_wrong_init_map_is_refused(text):
    """The error quotes the value."""
    with raises("flag_malformed") as refused:
        task.parse_task(["--init_checkpoint=old", f"--init_map={text}"], {})
    assert repr(text) in str(refused.value)


def test_a_map_without_a_checkpoint_is_refused():
    """It would have no effect."""
    with raises("flag_without_effect"):
        task.parse_task(["--init_map=a:b"], {})
