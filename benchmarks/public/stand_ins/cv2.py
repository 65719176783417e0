"""Stands in for OpenCV: `resize` only, by the nearest pixel."""

import numpy as np


def resize(image, size):
    """Returns the image with (width, height) pixels."""
    rows = np.linspace(0, image.shape[0] - 1, size[1]).astype(int)
    columns = np.linspace(0, image.shape[1] - 1, size[0]).astype(int)
    return image[rows][:, columns]
