"""Fixtures of the tests of code that is changed before it runs."""

from __future__ import annotations

import builtins

import pytest


@pytest.fixture(autouse=True)
def _built_ins_as_they_were():
    """Takes away what a test has installed for changed code, so that no other test needs it to have run before."""
    earlier = set(vars(builtins))
    yield
    for name in set(vars(builtins)) - earlier:
        if name.startswith("__ps_train_"):
            delattr(builtins, name)
