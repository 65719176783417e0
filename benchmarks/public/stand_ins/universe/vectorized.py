"""Wrappers of environments that return lists."""


class Wrapper:
    """Passes everything on."""

    def __init__(self, env=None):
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.spec, self.metadata = env.spec, env.metadata

    def reset(self):
        return self.env.reset()

    def step(self, action):
        return self.env.step(action)


class ObservationWrapper(Wrapper):
    """Changes observations by `_observation`."""

    def reset(self):
        return self._observation(self.env.reset())

    def step(self, action):
        observation, reward, done, info = self.env.step(action)
        return self._observation(observation), reward, done, info


class ActionWrapper(Wrapper):
    """Changes actions by `_action`."""

    def step(self, action):
        return self.env.step(self._action(action))


class Filter:
    """Looks at what one environment returns."""


class VectorizeFilter(Wrapper):
    """A filter for the only environment of a list."""

    def __init__(self, env, make_filter, *args, **kwargs):
        super().__init__(env)
        self._filter = make_filter(*args, **kwargs)

    def reset(self):
        return [self._filter._after_reset(observation) for observation in self.env.reset()]  # noqa: SLF001 (universe's API)

    def step(self, action):
        lists = self.env.step(action)
        steps = [self._filter._after_step(*one) for one in zip(*lists)]  # noqa: SLF001 (universe's API)
        return tuple(map(list, zip(*steps)))
