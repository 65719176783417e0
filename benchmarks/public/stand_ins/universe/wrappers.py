"""From one environment to a list of one, and back; the others are only imported."""

from universe.vectorized import Wrapper

BlockingReset = GymCoreAction = EpisodeID = Vision = Logger = Wrapper


class Vectorize(Wrapper):
    """Returns lists of one."""

    def reset(self):
        return [self.env.reset()]

    def step(self, action):
        observation, reward, done, info = self.env.step(action[0])
        return [observation], [reward], [done], [info]


class Unvectorize(Wrapper):
    """Returns the first of each list."""

    def reset(self):
        return self.env.reset()[0]

    def step(self, action):
        return tuple(values[0] for values in self.env.step([action]))
