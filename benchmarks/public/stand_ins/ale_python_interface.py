"""Stands in for the Arcade Learning Environment: random frames and games of 50 moves, whatever the game."""

import numpy as np

_MOVES = 50
_ACTIONS = (0, 3, 4)  # as many as Pong has


class ALEInterface:
    """One game; its settings are not looked at."""

    def __init__(self):
        self._moves, self._random = 0, np.random.default_rng(0)

    def setInt(self, name, value):  # noqa: N802 (the interface's name, as the others)
        """Sets nothing but the seed of the frames."""
        if name == b"random_seed":
            self._random = np.random.default_rng(value)

    def setFloat(self, name, value):  # noqa: N802
        """Sets nothing."""

    def setBool(self, name, value):  # noqa: N802
        """Sets nothing."""

    def loadROM(self, path):  # noqa: N802
        """Loads nothing."""

    def getMinimalActionSet(self):  # noqa: N802
        return np.array(_ACTIONS)

    def act(self, action):
        """Returns the reward."""
        self._moves += 1
        return int(action == _ACTIONS[1])

    def game_over(self):
        return self._moves >= _MOVES

    def reset_game(self):
        self._moves = 0

    def getScreenGrayscale(self, screen):  # noqa: N802
        """Draws into the array."""
        screen[...] = self._random.integers(0, 256, screen.shape, np.uint8)
