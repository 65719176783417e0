"""What tf.contrib.data had, and tf.data has in another form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


def batch_and_drop_remainder(batch_size: Any) -> Callable:
    """For `Dataset.apply`: `batch` without the last, smaller batch."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size: Any, padded_shapes: Any, padding_values: Any = None) -> Callable:
    """For `Dataset.apply`: `padded_batch` without the last, smaller batch."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def private_thread_pool(
    num_threads: int, display_name: str | None = None, max_intra_op_parallelism: int = 1
) -> tf.data.Options:
    """Returns what `override_threadpool` gives a dataset; the threads have no name."""
    del display_name
    options = tf.data.Options()
    options.threading.private_threadpool_size = num_threads
    options.threading.max_intra_op_parallelism = max_intra_op_parallelism
    return options


def override_threadpool(dataset: tf.data.Dataset, thread_pool: tf.data.Options) -> tf.data.Dataset:
    """Returns a dataset that runs in threads of its own."""
    return dataset.with_options(thread_pool)
