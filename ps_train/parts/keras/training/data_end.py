"""Training data that end before training does: an error, as Model.fit would stop there without a word.

Under parameter_server it would say that all other tasks are lost.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ps_train.errors import DataError

_MARK = "ps_train: the training data ended"


def failing_at_end(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the batches, with an error in place of their end."""
    # Not known where parameter_server makes the dataset: in a tf.function.
    if tf.get_static_value(batches.cardinality()) == tf.data.INFINITE_CARDINALITY:
        return batches
    # Repeated: of several devices each must find the error, and none an end.
    return batches.concatenate(batches.take(1).repeat().map(_fail))


def _fail(*batch: Any) -> Any:
    with tf.control_dependencies([tf.debugging.Assert(False, [_MARK])]):
        return tf.nest.map_structure(tf.identity, batch)


def is_end(error: tf.errors.OpError) -> bool:
    """Tells whether an error is the one in place of the end."""
    return _MARK in error.message


def data_ended(dataset_name: str, step: int, train_steps: int) -> DataError:
    """Returns the error that says after which step the data ended."""
    return DataError(f"{dataset_name}.input_fn: the training data ended after step {step} of {train_steps}; let it "
                     "repeat, or give a smaller --train_steps")
