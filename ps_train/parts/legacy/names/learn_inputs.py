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
      x: instead of it, an array [n, ...] or a dictionary of arrays; features of the shape [n] become [n, 1].
      y: the labels, [n] or [n, ...]; those of the shape [n, 1] become [n].
      batch_size: number of examples in a batch of the arrays; all by default.
      is_training: whether the arrays are shuffled, in another order in each epoch, and repeated.
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
    if batch_size is not None and batch_size <= 0:
        raise ValueError(f"Invalid batch_size {batch_size}.")
    if isinstance(x, Iterator):
        return _streamed_input_fn(x, y, batch_size or 1, is_named)
    features, labels = _each(_features, _named(x)[0] if is_named else x), None if y is None else _each(_labels, y)
    return _array_input_fn(features if labels is None else (features, labels), batch_size, is_training)


def _array_input_fn(arrays: Any, batch_size: int | None, is_training: bool) -> Callable:
    """Returns an input function of arrays [n, ...] in a structure; the last batch of an epoch may be smaller.

    Raises:
      ValueError: they are of different lengths.
    """
    sizes = {len(array) for array in tf.nest.flatten(arrays)}
    if len(sizes) != 1:
        raise ValueError(f"x and y have different numbers of examples: {sorted(sizes)}; give each example a label")
    size = sizes.pop()
    most = batch_size or max(size, 1)

    def rows(places: np.ndarray) -> Any:
        return tf.nest.map_structure(lambda array: array[places], arrays)

    def input_fn() -> tf.data.Dataset:
        generator = np.random.RandomState(42)  # the order of contrib.learn's DataFeeder

        def epoch() -> Iterator:
            order = generator.permutation(size) if is_training else np.arange(size)
            yield from (rows(order[start:start + most]) for start in range(0, size, most))
        signature = tf.nest.map_structure(
            lambda array: tf.TensorSpec([None, *array.shape[1:]], tf.as_dtype(array.dtype)), arrays)
        return tf.data.Dataset.from_generator(epoch, output_signature=signature).repeat(None if is_training else 1)
    return input_fn


def _streamed_input_fn(x: Iterator, y: Iterator | None, batch_size: int, is_named: bool) -> Callable:
    """Returns an input function of what iterators yield: examples, or dictionaries of some, and their labels."""
    examples = (_each(_one_of(_features), _named(each)[0] if is_named else each) for each in x)
    pairs = examples if y is None else zip(examples, (_each(_one_of(_labels), each) for each in y))
    first = next(pairs)

    def input_fn() -> tf.data.Dataset:
        signature = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)), first)
        rest = itertools.chain([first], pairs)
        return tf.data.Dataset.from_generator(lambda: rest, output_signature=signature).batch(batch_size)
    return input_fn


def _each(convert: Callable, value: Any) -> Any:
    """Returns what a function makes of a value, or of each in a dictionary."""
    return {name: convert(each) for name, each in value.items()} if isinstance(value, dict) else convert(value)


def _features(value: Any) -> np.ndarray:
    """Returns an array [n, ...]; contrib.learn fed one number of each example as [n, 1]."""
    array = np.asarray(value)
    return array[:, np.newaxis] if array.ndim == 1 else array


def _labels(value: Any) -> np.ndarray:
    """Returns an array [n, ...]; contrib.learn fed labels [n, 1] as [n], and [n, 1, k] as [n, k]."""
    array = np.asarray(value)
    return array[:, 0] if array.ndim > 1 and array.shape[1] == 1 else array


def _one_of(convert: Callable) -> Callable:
    """Returns the function for one example, where the other is for [n, ...] of them."""
    return lambda value: convert(np.asarray(value)[np.newaxis])[0]


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
