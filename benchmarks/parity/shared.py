"""Inputs that are the same for both, and what a case gives."""

from __future__ import annotations

import zlib

import numpy as np
import tensorflow as tf


def waves(name, shape, scale=0.5):
    """Returns numbers from -scale to scale, other ones for each name."""
    count = int(np.prod(shape)) if len(shape) else 1
    return (scale * np.sin(np.arange(count) * 1.7 + zlib.crc32(name.encode()) % 1000)).reshape(shape)


def floats(*shape):
    """Returns a float32 tensor of numbers from -0.5 to 0.5."""
    return tf.constant(waves("input", shape).astype(np.float32))


def shares(*shape):
    """Returns a float32 tensor of numbers between 0 and 1."""
    return tf.sigmoid(floats(*shape))


def ids(limit, *shape, dtype="int64"):
    """Returns a tensor of whole numbers below a limit."""
    return tf.constant((np.arange(int(np.prod(shape))) * 7 % limit).reshape(shape).astype(dtype))


def flattened(value, path=""):
    """Returns pairs of a name and a tensor for all that a case returns; operations have none."""
    if isinstance(value, dict):
        return [pair for key in sorted(value, key=str) for pair in flattened(value[key], f"{path}/{key}")]
    if isinstance(value, (list, tuple)):
        return [pair for index, item in enumerate(value) for pair in flattened(item, f"{path}/{index}")]
    if isinstance(value, tf.SparseTensor):
        return [(path + "/indices", value.indices), (path + "/values", value.values)]
    if value is None or isinstance(value, tf.Operation):
        return []
    return [(path, value if hasattr(value, "op") else tf.constant(value))]
