"""The values that plug-ins exchange with ps_train."""

from __future__ import annotations

from ps_train.plugins.contracts import ModelSpec


def test_a_model_spec_fills_in_what_is_not_given():
    """A model_fn gives what its mode needs."""
    assert ModelSpec(loss=1) == (1, None, None, None, "loss", (), (), (), None, None)
