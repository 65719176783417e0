"""Classes of `tf.contrib.eager`: its Saver, and the metrics that count while a script runs eagerly.

Source of the formulas: tensorflow/contrib/eager/python/metrics_impl.py of TensorFlow 1.15.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import summary_ops_v2  # those of tf.contrib.summary


class EagerSaver:
    """Saves and restores variables, without a session."""

    def __init__(self, var_list: Any) -> None:
        self._saver = tf.train.Saver(var_list)

    def save(self, file_prefix: str, global_step: Any = None) -> str:
        """Returns the prefix of the files that it writes."""
        return self._saver.save(None, file_prefix, global_step=global_step)

    def restore(self, file_prefix: str) -> None:
        """Sets the variables to what was saved."""
        self._saver.restore(None, file_prefix)


class EagerMean(tf.Module):
    """The mean of all values so far: the sum of values * weights / the sum of weights, each a scalar of `dtype`."""

    def __init__(self, name: str | None = None, dtype: tf.DType = tf.float64,
                 use_global_variables: bool = False) -> None:
        super().__init__()  # which would take only names that are valid in Python
        self._name = name or type(self).__name__.removeprefix("Eager")
        self.dtype = dtype
        self._total, self._count = (tf.Variable(0, trainable=False, dtype=dtype) for _ in range(2))

    def init_variables(self) -> None:
        """Begins again."""
        self._total.assign(0)
        self._count.assign(0)

    def __call__(self, values: Any, weights: Any = None) -> Any:
        """Counts values of any shape, with weights that fit them; returns what it got."""
        numbers = tf.cast(values, self.dtype)
        factors = tf.ones_like(numbers) if weights is None else tf.cast(weights, self.dtype)
        self._total.assign_add(tf.reduce_sum(numbers * factors))
        self._count.assign_add(tf.reduce_sum(factors))
        return values if weights is None else (values, weights)

    def result(self, write_summary: bool = True) -> tf.Tensor:
        """Returns the mean; as a summary too, if the script records any."""
        mean = self._total / self._count
        if write_summary:
            summary_ops_v2.scalar(self.name, mean)
        return mean


class EagerAccuracy(EagerMean):
    """How many predictions equal their labels, both of the same shape."""

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> Any:
        """Counts `[batch]` labels and predictions; returns what it got."""
        labels, predictions = tf.convert_to_tensor(labels), tf.convert_to_tensor(predictions)
        labels.shape.assert_is_compatible_with(predictions.shape)
        super().__call__(tf.equal(labels, tf.cast(predictions, labels.dtype)), weights)
        return (labels, predictions) if weights is None else (labels, predictions, weights)


class EagerCategoricalAccuracy(EagerAccuracy):
    """Accuracy of `[batch, classes]` predictions, with labels of the same shape, one of which is 1."""

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> Any:
        """Counts them; returns the classes."""
        return super().__call__(tf.argmax(labels, -1), tf.argmax(predictions, -1), weights)


class EagerSparseAccuracy(EagerAccuracy):
    """Accuracy of `[batch, classes]` predictions, with `[batch]` labels, which are classes."""

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> Any:
        """Counts them; returns the classes."""
        return super().__call__(tf.cast(labels, tf.int64), tf.argmax(predictions, -1), weights)


class EagerBinaryAccuracy(EagerAccuracy):
    """Accuracy of predictions that mean 1 above a threshold."""

    def __init__(self, threshold: float = 0.5, name: str | None = None, dtype: tf.DType = tf.float64) -> None:
        super().__init__(name, dtype)
        self._threshold = threshold

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> Any:
        """Counts `[batch]` labels and predictions; returns them as 0 or 1."""
        return super().__call__(labels, tf.cast(tf.greater(predictions, self._threshold), tf.int64), weights)
