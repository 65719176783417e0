"""Stands in for gym of 2017 with Atari's games, whose wrappers change `_step`, `_reset`, `_observation` and `_reward`.

Random frames, five lives, and episodes of 50 steps.
"""

import types

import numpy as np

from gym import spaces

_STEPS, _LIVES = 50, 5
_MEANINGS = ("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN")


def make(env_id):
    """Returns the game in a wrapper, as gym puts a limit of time around it."""
    return Wrapper(_Game(env_id))


class Env:
    """What every environment has."""

    @property
    def unwrapped(self):
        return self

    def reset(self):
        return self._reset()

    def step(self, action):
        return self._step(action)

    def seed(self, seed=None):
        return self._seed(seed)


class Wrapper(Env):
    """Passes everything on."""

    def __init__(self, env=None):
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.spec, self.metadata = env.spec, env.metadata

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def _reset(self):
        return self.env.reset()

    def _step(self, action):
        return self.env.step(action)

    def _seed(self, seed=None):
        return self.env.seed(seed)


class ObservationWrapper(Wrapper):
    """Changes observations by `_observation`."""

    def _reset(self):
        return self._observation(self.env.reset())

    def _step(self, action):
        observation, reward, done, info = self.env.step(action)
        return self._observation(observation), reward, done, info


class RewardWrapper(Wrapper):
    """Changes rewards by `_reward`."""

    def _step(self, action):
        observation, reward, done, info = self.env.step(action)
        return observation, self._reward(reward), done, info


class _Game(Env):
    def __init__(self, env_id):
        tags = {"wrapper_config.TimeLimit.max_episode_steps": 10 * _STEPS}
        self.spec, self.metadata, self._steps = types.SimpleNamespace(id=env_id, tags=tags), {}, 0
        self.observation_space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
        self.action_space = spaces.Discrete(len(_MEANINGS))
        self.ale = types.SimpleNamespace(lives=lambda: _LIVES - self._steps * _LIVES // _STEPS)
        self._random = np.random.RandomState(0)

    def get_action_meanings(self):
        return list(_MEANINGS)

    def _seed(self, seed=None):
        self._random.seed(seed)
        return [seed]

    def _reset(self):
        self._steps = 0
        return self._frame()

    def _step(self, action):
        self._steps += 1
        return self._frame(), float(action == 1), self._steps >= _STEPS, {}

    def _frame(self):
        return self._random.randint(0, 256, self.observation_space.shape, np.uint8)
