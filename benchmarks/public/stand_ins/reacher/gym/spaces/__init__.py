"""The spaces that the stand-in needs."""

from gym.spaces.box import Box  # noqa: F401
