"""Names of environments."""

import importlib

REGISTERED = {}


class Spec:
    """A registered environment."""

    def __init__(self, env_id, entry_point, max_episode_steps, kwargs, tags):
        self.id, self.entry_point, self.max_episode_steps = env_id, entry_point, max_episode_steps
        self.kwargs, self.tags, self.timestep_limit = kwargs, dict(tags), max_episode_steps
        if max_episode_steps:  # as gym of 2017 puts it among the tags
            self.tags["wrapper_config.TimeLimit.max_episode_steps"] = max_episode_steps

    def create(self):
        module, _, name = self.entry_point.partition(":")
        return getattr(importlib.import_module(module), name)(**self.kwargs)


def register(id, entry_point=None, max_episode_steps=None, kwargs=None, tags=None, **others):  # noqa: A002 (gym's name)
    """Lets `make` find an environment by a name."""
    REGISTERED[id] = Spec(id, entry_point, max_episode_steps, kwargs or {}, tags or {})
