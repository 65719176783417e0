"""Stands in for gym of 2017: registered environments are made for real, an unknown one plays random frames as Atari.

`_step` and `_reset` may be defined as gym of that time had them, and `step` and `reset` as today.
"""

import numpy as np

from gym import spaces

_STEPS, _ACTIONS = 50, 6


class Env:
    """What every environment has."""

    metadata, spec = {}, None

    @property
    def unwrapped(self):
        return self

    def reset(self):
        return self._reset()

    def step(self, action):
        return self._step(action)

    def render(self, *args, **kwargs):
        """There is nothing to see."""

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

    def _reset(self):
        return self.env.reset()

    def _step(self, action):
        return self.env.step(action)


class _Limit(Wrapper):
    """Ends an episode after some steps."""

    def __init__(self, env, steps):
        super().__init__(env)
        self._most, self._steps = steps, 0

    def _reset(self):
        self._steps = 0
        return self.env.reset()

    def _step(self, action):
        self._steps += 1
        observation, reward, done, info = self.env.step(action)
        return observation, reward, done or self._steps >= self._most, info


class _Game(Env):
    def __init__(self):
        self.observation_space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
        self.action_space = spaces.Discrete(_ACTIONS)
        self._random = np.random.RandomState(0)

    def _reset(self):
        return self._frame()

    def _step(self, action):
        return self._frame(), float(action == 1), False, {}

    def _frame(self):
        return self._random.randint(0, 256, self.observation_space.shape).astype(np.uint8)


def spec(env_id):
    """Returns what was registered under a name; for an unknown one, Atari's tags."""
    from gym.envs.registration import REGISTERED, Spec  # noqa: PLC0415 (it imports this package)
    return REGISTERED.get(env_id) or Spec(env_id, None, _STEPS, {}, {"atari": True})


def make(env_id):
    """Returns a new environment with a limit of its steps."""
    found = spec(env_id)
    env = found.create() if found.entry_point else _Game()
    env.spec = found
    return _Limit(env, found.max_episode_steps or _STEPS)


from gym import wrappers  # noqa: E402, F401 (scripts find it here)
