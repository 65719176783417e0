"""A space between two arrays."""


class Box:
    """Values from low to high."""

    def __init__(self, low, high):
        self.low, self.high, self.shape = low, high, low.shape
