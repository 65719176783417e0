"""Arrays and input functions as contrib.learn took them: features may be one array or tensor, without a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

# The name of the features that have none.
KEY = "x"


def infer_real_valued_columns_from_input(x: Any) -> list:
    """Returns the columns of an array [n, ...] of numbers, or of a dictionary of such arrays."""
    arrays = x if isinstance(x, dict) else {KEY: x}
    return [tf.feature_column.numeric_column(name, np.shape(array)[1:] or (1,)) for name, array in arrays.items()]


def infer_real_valued_columns_from_input_fn(input_fn: Callable) -> list:
    """Returns the columns of the features that an input function makes."""
    with tf.Graph().as_default():
        made = input_fn()
        if isinstance(made, tf.data.Dataset):
            made = tf.data.make_one_shot_iterator(made).get_next()
        features = _named(*made)[0]
        return [tf.feature_column.numeric_column(name, tensor.shape.as_list()[1:] or (1,))
                for name, tensor in features.items()]


def make_input_fn(input_fn: Callable | None, x: Any = None, y: Any = None, batch_size: int | None = None,
                  is_training: bool = False, is_named: bool = True) -> Callable:
    """Returns an input function of the Estimator, from one of contrib.learn or from arrays.

    Args:
      input_fn: returns (features, labels); features may be one tensor.
      x: in place of it, an array [n, ...] or a dictionary of arrays.
      y: the labels, [n].
      batch_size: number of examples in a batch of the arrays; all by default.
      is_training: whether the arrays are shuffled and repeated.
      is_named: whether features that are one array or tensor become a dictionary.

    Raises:
      ValueError: neither is given.
    """
    if input_fn is not None:
        return (lambda: _with_names(input_fn())) if is_named else input_fn
    if x is None:
        raise ValueError("input_fn or x must be given")
    if isinstance(x, dict):
        arrays = {name: np.asarray(array) for name, array in x.items()}
    else:
        arrays = {KEY: np.asarray(x)} if is_named else np.asarray(x)
    size = len(next(iter(arrays.values())) if isinstance(arrays, dict) else arrays)
    return tf.estimator.inputs.numpy_input_fn(
        arrays, None if y is None else np.asarray(y), batch_size=batch_size or size,
        num_epochs=None if is_training else 1, shuffle=is_training)


def _with_names(made: Any) -> Any:
    """Returns what an input function made, a Dataset or (features, labels), with features that are a dictionary."""
    if isinstance(made, tf.data.Dataset):
        spec = made.element_spec
        is_named = isinstance(spec[0] if isinstance(spec, tuple) else spec, dict)
        return made if is_named else made.map(_named)
    return _named(*made) if isinstance(made, tuple) else _named(made)


def _named(features: Any, labels: Any = None) -> tuple[dict, Any]:
    return (features if isinstance(features, dict) else {KEY: features}), labels
