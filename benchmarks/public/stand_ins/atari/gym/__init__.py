"""Stands in for gym with Atari's games and wrappers: random frames, five lives, and episodes of 50 steps."""

import types

import numpy as np

from gym import spaces

_STEPS, _LIVES = 50, 5
_MEANINGS = ("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN")


def spec(env_id):
    """Returns the tags of an Atari environment."""
    return types.SimpleNamespace(id=env_id, tags={"wrapper_config.TimeLimit.max_episode_steps": 10 * _STEPS})


def make(env_id):
    """Returns the game in a wrapper, as gym puts a limit of time around it."""
    return Wrapper(_Game(env_id))


class Env:
    """What every environment has."""

    @property
    def unwrapped(self):
        return self

    def close(self):
        """There is nothing to close."""


class Wrapper(Env):
    """Passes everything on."""

    def __init__(self, env=None):
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.spec, self.metadata = env.spec, env.metadata

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def reset(self):
        return self.env.reset()

    def step(self, action):
        return self.env.step(action)


class ObservationWrapper(Wrapper):
    """Changes observations by `observation`."""

    def reset(self):
        return self.observation(self.env.reset())

    def step(self, action):
        observation, reward, done, info = self.env.step(action)
        return self.observation(observation), reward, done, info


class RewardWrapper(Wrapper):
    """Changes rewards by `reward`."""

    def step(self, action):
        observation, reward, done, info = self.env.step(action)
        return observation, self.reward(reward), done, info


class _Game(Env):
    def __init__(self, env_id):
        self.spec, self.metadata, self._steps = spec(env_id), {}, 0
        self.observation_space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
        self.action_space = spaces.Discrete(len(_MEANINGS))
        self.ale = types.SimpleNamespace(lives=self._lives)
        self.np_random = np.random.RandomState(0)

    def get_action_meanings(self):
        return list(_MEANINGS)

    def reset(self):
        self._steps = 0
        return self._frame()

    def step(self, action):
        self._steps += 1
        return self._frame(), float(action == 1), self._steps >= _STEPS, {"ale.lives": self._lives()}

    def _lives(self):
        return _LIVES - self._steps * _LIVES // _STEPS

    def _frame(self):
        return np.random.randint(0, 256, self.observation_space.shape, np.uint8)
