"""A space with a shape."""


class Box:
    """Values from low to high."""

    def __init__(self, low, high, shape):
        self.low, self.high, self.shape = low, high, tuple(shape)
