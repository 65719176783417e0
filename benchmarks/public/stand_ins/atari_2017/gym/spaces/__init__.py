"""The spaces that the stand-in needs."""

import types

from gym.spaces.box import Box  # noqa: F401


class Discrete(types.SimpleNamespace):
    """The numbers below `n`."""

    def __init__(self, n):
        super().__init__(n=n)
