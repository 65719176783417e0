"""Filters."""

import numpy as np


def lfilter(b, a, x, axis=0):
    """Returns y with y[n] = x[n] - a[1] * y[n - 1], for b = [1] and a = [1, a[1]]."""
    y = np.array(x, np.float64)
    for n in range(1, len(y)):
        y[n] -= a[1] * y[n - 1]
    return y
