"""The flags of the profile."""

from __future__ import annotations

from ps_train.config.task import Config
from tests.errors import raises


def test_a_profile_needs_single_steps():
    """Several steps at once are one run, whose phases would be those of all of them."""
    with raises("flags_conflict"):
        Config(steps_per_execution=4, profile_steps="10:20")
    Config(steps_per_execution=1, profile_steps="10:20")
