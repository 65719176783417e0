"""The input functions of contrib.learn: from arrays and iterators, and as the Estimator takes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

KEY = ""  # the name of features that have none, by which scripts make columns: real_valued_column("", dimension=4)


def infer_real_valued_columns_from_input(x: Any) -> list:
    """Returns the columns of an array [n, ...] of numbers, or of a dictionary of such arrays."""
    return [tf.feature_column.numeric_column(name, np.shape(array)[1:] or (1,)) for name, array in _named(x)[0].items()]


def infer_real_valued_columns_from_input_fn(input_fn: Callable) -> list:
    """Returns the columns of the features that an input function makes."""
    with tf.Graph().as_default():
        batch = input_fn()
        if isinstance(batch, tf.data.Dataset):
            batch = tf.data.make_one_shot_iterator(batch).get_next()
        return [tf.feature_column.numeric_column(name, tensor.shape.as_list()[1:] or (1,))
                for name, tensor in _named(*batch)[0].items()]


def make_input_fn(input_fn: Callable | None, x: Any = None, y: Any = None, batch_size: int | None = None,
                  is_training: bool = False, is_named: bool = True) -> Callable:
    """Returns an input function of the Estimator, from one of contrib.learn or from arrays.

    Args:
      input_fn: returns (features, labels); features may be one tensor.
      x: instead of it, an array [n, ...] or a dictionary of arrays.
      y: the labels, [n].
      batch_size: number of examples in a batch of the arrays; all by default.
      is_training: whether the arrays are shuffled and repeated.
      is_named: whether features that are one array or tensor become a dictionary.
    """
    if input_fn is not None and (x is not None or y is not None):
        raise ValueError("Can not provide both input_fn and x or y.")
    if tf.is_tensor(x) or tf.is_tensor(y):
        raise ValueError("Inputs cannot be tensors. Please provide input_fn.")
    if input_fn is not None:
        return (lambda: _with_names(input_fn())) if is_named else input_fn
    if x is None:
        raise ValueError("Either x or input_fn must be provided.")
    if isinstance(x, Iterator):
        return _streamed_input_fn(x, y, batch_size or 1, is_named)
    if isinstance(x, dict):
        arrays = {name: np.asarray(array) for name, array in x.items()}
    else:
        arrays = {KEY: np.asarray(x)} if is_named else np.asarray(x)
    size = len(next(iter(arrays.values())) if isinstance(arrays, dict) else arrays)
    labels = {name: np.asarray(array) for name, array in y.items()} if isinstance(y, dict) else y
    return tf.estimator.inputs.numpy_input_fn(
        arrays, labels if labels is None or isinstance(labels, dict) else np.asarray(labels),
        batch_size=batch_size or size, num_epochs=None if is_training else 1, shuffle=is_training)


def _streamed_input_fn(x: Iterator, y: Iterator | None, batch_size: int, is_named: bool) -> Callable:
    """Returns an input function of what iterators yield: examples, or dictionaries of some, and their labels."""
    examples = (_arrays(_named(each)[0] if is_named else each) for each in x)
    pairs = examples if y is None else zip(examples, map(_arrays, y))
    first = next(pairs)

    def input_fn() -> tf.data.Dataset:
        signature = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)), first)
        rest = itertools.chain([first], pairs)
        return tf.data.Dataset.from_generator(lambda: rest, output_signature=signature).batch(batch_size)
    return input_fn


def _arrays(value: Any) -> Any:
    return {name: np.asarray(each) for name, each in value.items()} if isinstance(value, dict) else np.asarray(value)


def _with_names(data: Any) -> Any:
    """Returns a Dataset or (features, labels) whose features are a dictionary."""
    if isinstance(data, tf.data.Dataset):
        spec = data.element_spec
        is_named = isinstance(spec[0] if isinstance(spec, tuple) else spec, dict)
        return data if is_named else data.map(_named)
    return _named(*data) if isinstance(data, tuple) else _named(data)


def _named(features: Any, labels: Any = None) -> tuple[dict, Any]:
    return (features if isinstance(features, dict) else {KEY: features}), labels


def numpy_input_fn(x: Any, y: Any = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool = True,
                   queue_capacity: int = 1000, num_threads: int = 1) -> Callable:
    """Returns an input function of arrays, as that of `tf.estimator.inputs`, which shuffles by default."""
    return tf.estimator.inputs.numpy_input_fn(x, y, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


def pandas_input_fn(x: Any, y: Any = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool = True,
                    queue_capacity: int = 1000, num_threads: int = 1, target_column: str = "target") -> Callable:
    """Returns an input function of a DataFrame, as that of `tf.estimator.inputs`, which shuffles by default."""
    return tf.estimator.inputs.pandas_input_fn(
        x, y, batch_size, num_epochs, shuffle, queue_capacity, num_threads, target_column)


def generator_input_fn(x: Callable, target_key: str | Iterable | None = None, batch_size: int = 128,
                       num_epochs: int | None = 1, shuffle: bool = True, queue_capacity: int = 1000,
                       num_threads: int = 1) -> Callable:
    """Returns an input function of what a generator function yields: dictionaries of name -> value or array."""
    targets = [target_key] if isinstance(target_key, str) else list(target_key or ())

    def split(example: Mapping) -> Any:
        features = {name: value for name, value in example.items() if name not in targets}
        if not targets:
            return features
        return features, example[target_key] if isinstance(target_key, str) else {t: example[t] for t in targets}

    def input_fn() -> Any:
        first = {name: np.asarray(value) for name, value in next(iter(x())).items()}
        dataset = tf.data.Dataset.from_generator(
            x, {name: tf.as_dtype(array.dtype) for name, array in first.items()},
            {name: array.shape for name, array in first.items()}).map(split)
        return (dataset.shuffle(queue_capacity) if shuffle else dataset).repeat(num_epochs).batch(batch_size)
    return input_fn
