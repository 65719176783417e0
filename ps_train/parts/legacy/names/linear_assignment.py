"""`sklearn.utils.linear_assignment_`, which scikit-learn had until 0.22: pairs with the least cost in all."""

from __future__ import annotations

from typing import Any

import numpy as np


def linear_assignment(X: Any) -> np.ndarray:  # noqa: N803 (scikit-learn's name)
    """Returns the pairs (row, column) of a matrix of costs whose sum is the least: int [pairs, 2], in order of rows."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (scikit-learn brings it)

    return np.stack(linear_sum_assignment(X), 1)
