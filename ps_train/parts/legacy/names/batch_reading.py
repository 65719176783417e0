"""`tf.contrib.learn.io`: batches of the records of files, by queues.

    files --queue of names--> readers --queue of records--> batch of records --parse_example--> name -> tensor

The functions with `keyed` in their names return the records' keys, string [batch], beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf


def read_keyed_batch_examples(
    file_pattern: Any, batch_size: Any, reader: Callable, randomize_input: bool = True, num_epochs: int | None = None,
    queue_capacity: int = 10000, num_threads: int = 1, read_batch_size: int = 1, parse_fn: Callable | None = None,
    name: str | None = None, seed: int | None = None,
) -> tuple[tf.Tensor, Any]:
    """Returns keys and records, string [batch]; or a batch of what `parse_fn` makes of the records.

    Args:
      file_pattern: a path with wildcards, or a list of them.
      batch_size: records in a batch; the last one may have fewer.
      reader: makes a reader, such as `tf.TFRecordReader`.
      randomize_input: whether files and records are drawn at random.
      num_epochs: how often each record is read; without an end if None.
      queue_capacity: records that wait for being taken.
      num_threads: that read.
      read_batch_size: records that a thread reads at once.
      parse_fn: a record, or string [read_batch_size] if that is above 1 -> a tensor, or a dict of them.
      name: of the operations.
      seed: of what is drawn.

    Raises:
      ValueError: no file has such a name, or the queue cannot hold more than a batch.
    """
    files = _files(file_pattern)
    if not isinstance(batch_size, tf.Tensor) and not 0 < batch_size < queue_capacity:
        raise ValueError(f"batch_size must be at least 1 and below queue_capacity, {queue_capacity}; got {batch_size}")
    with tf.name_scope(name, "read_batch_examples"):
        names = tf.train.string_input_producer(files, num_epochs, shuffle=randomize_input, seed=seed)
        read = [_read(reader(), names, read_batch_size, parse_fn) for _ in range(num_threads)]
        # With an end, the last batch may be smaller; without one, the size of a batch is in its shape.
        options = {"enqueue_many": read_batch_size > 1, "allow_smaller_final_batch": num_epochs is not None}
        tensors = [tf.nest.flatten(one) for one in read]
        if not randomize_input:
            batch = tf.train.batch_join(tensors, batch_size, queue_capacity, **options)
        else:
            at_least = int(queue_capacity * 0.4) if isinstance(batch_size, tf.Tensor) else \
                max(queue_capacity - 3 * batch_size, batch_size)
            batch = tf.train.shuffle_batch_join(tensors, batch_size, queue_capacity, at_least, seed, **options)
        return tf.nest.pack_sequence_as(read[0], batch)


def _files(file_pattern: Any) -> list[str]:
    """Returns the files of a path with wildcards, or of a list; a name in it that is a file's is not a pattern."""
    patterns = [file_pattern] if isinstance(file_pattern, str) else list(file_pattern)
    files = [path for pattern in patterns for path in (
        [pattern] if tf.gfile.Exists(pattern) else tf.gfile.Glob(pattern))]
    if not files:
        raise ValueError(f"no file matches {', '.join(patterns)}")
    return sorted(files)


def _read(reader: Any, names: Any, count: int, parse_fn: Callable | None) -> tuple[tf.Tensor, Any]:
    """Returns the next keys and records of a reader, string [count], or scalars if the count is 1, parsed."""
    keys, records = reader.read_up_to(names, count) if count > 1 else reader.read(names)
    return keys, records if parse_fn is None else parse_fn(records)


def read_batch_examples(*args: Any, **kwargs: Any) -> Any:
    """Returns the records only; the arguments are those of `read_keyed_batch_examples`."""
    return read_keyed_batch_examples(*args, **kwargs)[1]


def read_keyed_batch_features(
    file_pattern: Any, batch_size: Any, features: Mapping[str, Any], reader: Callable, randomize_input: bool = True,
    num_epochs: int | None = None, queue_capacity: int = 10000, reader_num_threads: int = 1,
    feature_queue_capacity: int = 100, num_enqueue_threads: int = 2, parse_fn: Callable | None = None,
    name: str | None = None, read_batch_size: int | None = None,
) -> tuple[tf.Tensor, dict[str, Any]]:
    """Returns keys, and the features of a batch of tf.train.Example as `tf.parse_example` gives them.

    There is no second queue of parsed batches, so `feature_queue_capacity` and `num_enqueue_threads` change nothing.
    """
    del feature_queue_capacity, num_enqueue_threads
    keys, examples = read_keyed_batch_examples(
        file_pattern, batch_size, reader, randomize_input, num_epochs, queue_capacity, reader_num_threads,
        read_batch_size or 1, name=name)
    if parse_fn is not None:
        examples = tf.map_fn(parse_fn, examples)
    return keys, tf.parse_example(examples, dict(features))


def read_batch_features(file_pattern: Any, batch_size: Any, features: Mapping[str, Any], reader: Callable,
                        randomize_input: bool = True, num_epochs: int | None = None, queue_capacity: int = 10000,
                        feature_queue_capacity: int = 100, reader_num_threads: int = 1,
                        **others: Any) -> dict[str, Any]:
    """Returns the features only; the arguments are those of `read_keyed_batch_features`, in another order."""
    return read_keyed_batch_features(file_pattern, batch_size, features, reader, randomize_input, num_epochs,
                                     queue_capacity, reader_num_threads, feature_queue_capacity, **others)[1]


def read_batch_record_features(file_pattern: Any, batch_size: Any, features: Mapping[str, Any],
                               randomize_input: bool = True, num_epochs: int | None = None,
                               queue_capacity: int = 10000, reader_num_threads: int = 1,
                               name: str = "dequeue_record_examples") -> dict[str, Any]:
    """Returns the features of the examples in TFRecord files."""
    return read_batch_features(file_pattern, batch_size, features, tf.TFRecordReader, randomize_input, num_epochs,
                               queue_capacity, reader_num_threads=reader_num_threads, name=name)
