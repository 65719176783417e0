"""Stands in for gym: one environment with Atari's shapes, random frames, and episodes of 50 steps."""

import types

import numpy as np

from gym import spaces

_STEPS = 50


def spec(env_id):
    """Returns the tags of an Atari environment."""
    return types.SimpleNamespace(id=env_id, tags={"wrapper_config.TimeLimit.max_episode_steps": 10 * _STEPS})


def make(env_id):
    """Returns the environment."""
    return _Environment(env_id)


class _Environment:
    def __init__(self, env_id):
        self.spec, self.metadata, self._steps = spec(env_id), {}, 0
        self.observation_space = spaces.Box(0, 255, (210, 160, 3))
        self.action_space = types.SimpleNamespace(n=6)
        self.ale = types.SimpleNamespace(lives=lambda: int(0 < self._steps < _STEPS))

    def seed(self, seed=None):
        np.random.seed(seed % 2**32 if seed is not None else None)

    def reset(self):
        self._steps = 0
        return self._frame()

    def step(self, action):
        self._steps += 1
        return self._frame(), float(action == 0), self._steps >= _STEPS, {}

    def _frame(self):
        return np.random.randint(0, 256, (210, 160, 3), np.uint8)
