"""Functions whose arguments had another order or other names before TensorFlow 1.0; they take both forms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


def _renamed(function: Callable, **old_to_new: str) -> Callable:
    """Returns the function, which also takes the old names of its arguments."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{old_to_new.get(name, name): value for name, value in kwargs.items()})
    return call


def _is_axis(value: Any) -> bool:
    """Says whether an argument is the number of an axis: no list, no array, no tensor with axes."""
    if isinstance(value, (bool, str, list, tuple)):
        return False
    return np.ndim(value) == 0 if isinstance(value, (int, np.integer, np.ndarray)) else _is_scalar_tensor(value)


def _is_scalar_tensor(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and value.shape.rank == 0 and value.dtype.is_integer


def concat(values: Any = None, axis: Any = None, name: str = "concat", concat_dim: Any = None) -> tf.Tensor:
    """`tf.concat(values, axis)` of 1.0, and `tf.concat(concat_dim, values)` of before."""
    if concat_dim is not None:
        values, axis = values if values is not None else axis, concat_dim
    elif _is_axis(values) and not _is_axis(axis):
        values, axis = axis, values
    return tf.concat(values, axis, name)


def split(value: Any = None, num_or_size_splits: Any = None, axis: Any = 0, num: Any = None, name: str = "split",
          split_dim: Any = None, num_split: Any = None) -> list[tf.Tensor]:
    """`tf.split(value, num_or_size_splits, axis)` of 1.0, and `tf.split(split_dim, num_split, value)` of before."""
    if num_split is not None:
        num_or_size_splits = num_split
    if split_dim is not None:
        axis = split_dim
    elif _is_axis(value) and not _is_axis(axis):
        value, axis = axis, value
    return tf.split(value, num_or_size_splits, axis, num, name)


def reverse(tensor: Any, axis: Any = None, name: str | None = None, dims: Any = None) -> tf.Tensor:
    """`tf.reverse(tensor, axis)` of 1.0, and `tf.reverse(tensor, dims)` of before: a bool for each axis."""
    axis = dims if axis is None else axis
    if isinstance(axis, (list, tuple)) and any(isinstance(flag, (bool, np.bool_)) for flag in axis):
        axis = [index for index, is_reversed in enumerate(axis) if is_reversed]
    return tf.reverse(tensor, axis, name)


def select(condition: Any, t: Any = None, e: Any = None, name: str | None = None) -> tf.Tensor:
    """`tf.where` with both values."""
    return tf.where(condition, t, e, name)


def batch_matmul(x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, name: str | None = None) -> tf.Tensor:
    """`tf.matmul`, which multiplies the last two axes."""
    return tf.matmul(x, y, adjoint_a=adj_x, adjoint_b=adj_y, name=name)


def _logits_first(function: Callable) -> Callable:
    """Returns a cross entropy that takes `logits, labels` by position, as before 1.0; 1.0 refuses positions."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> tf.Tensor:
        if args and args[0] is not None:
            kwargs.update(zip(("logits", "labels"), args))
            args = ()
        return function(*args, **kwargs)
    return call


softmax_cross_entropy_with_logits = _logits_first(tf.nn.softmax_cross_entropy_with_logits)
sparse_softmax_cross_entropy_with_logits = _logits_first(tf.nn.sparse_softmax_cross_entropy_with_logits)
sigmoid_cross_entropy_with_logits = _logits_first(
    _renamed(tf.nn.sigmoid_cross_entropy_with_logits, targets="labels"))

scalar_summary = _renamed(tf.summary.scalar, tags="name", values="tensor")
histogram_summary = _renamed(tf.summary.histogram, tag="name")
image_summary = _renamed(tf.summary.image, tag="name", max_images="max_outputs")
audio_summary = _renamed(tf.summary.audio, tag="name")
