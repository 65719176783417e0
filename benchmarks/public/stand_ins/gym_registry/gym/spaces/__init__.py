"""The spaces that the stand-in needs."""

from gym.spaces.box import Box  # noqa: F401


class Discrete:
    """The numbers below `n`."""

    shape = ()

    def __init__(self, n):
        self.n = n

    def contains(self, number):
        return 0 <= int(number) < self.n
