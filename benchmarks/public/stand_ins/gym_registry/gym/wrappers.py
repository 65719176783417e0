"""The wrapper that records; this one records nothing."""

from gym import Wrapper


class Monitor(Wrapper):
    """Would record videos; does nothing."""

    def __init__(self, env, directory, **options):
        super().__init__(env)
