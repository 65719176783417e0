"""A space with a shape."""

import numpy as np


class Box:
    """Values from low to high, which are numbers or arrays."""

    def __init__(self, low, high, shape=None, dtype=np.float32):
        self.shape = tuple(np.shape(low) if shape is None else shape)
        self.low, self.high = (np.full(self.shape, bound, dtype) for bound in (low, high))
        self.dtype = np.dtype(dtype)
