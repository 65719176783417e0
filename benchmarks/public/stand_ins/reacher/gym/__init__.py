"""Stands in for gym with MuJoCo: one environment with the shapes of Reacher, and random observations.

Of eleven episodes the first has 2,000 steps, and the others have 5: the script trains in one, tests in ten, and begins
to learn once it has seen 10,000 steps.
"""

import types

import numpy as np

from gym import spaces

_STEPS = 2000


def make(env_id):
    """Returns the environment."""
    return _Environment(env_id)


class _Environment:
    def __init__(self, env_id):
        self.spec = types.SimpleNamespace(id=env_id, timestep_limit=_STEPS)
        self.observation_space = spaces.Box(np.full(11, -np.inf), np.full(11, np.inf))
        self.action_space = spaces.Box(np.full(2, -1.0), np.full(2, 1.0))
        self._episodes = self._left = 0

    def reset(self):
        self._left = 5 if self._episodes % 11 else _STEPS
        self._episodes += 1
        return np.random.randn(11)

    def step(self, action):
        self._left -= 1
        return np.random.randn(11), -float(np.square(action).sum()), self._left <= 0, {}
