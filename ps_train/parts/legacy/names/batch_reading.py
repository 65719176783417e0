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
    """Returns keys and records, string [batch]; what `parse_fn` makes of each record if there is one.

    Args:
      file_pattern: a path with wildcards, or a list of them.
      batch_size: records in a batch; the last one may have fewer.
      reader: makes a reader, such as `tf.TFRecordReader`.
      randomize_input: whether files and records are drawn at random.
      num_epochs: how often each record is read; without an end if None.
      queue_capacity: records that wait for being taken.
      num_threads: that read.
      read_batch_size: records that a thread reads at once.
      parse_fn: record -> tensors.
      name: of the operations.
      seed: of what is drawn.

    Raises:
      ValueError: no file has such a name.
    """
    patterns = [file_pattern] if isinstance(file_pattern, str) else list(file_pattern)
    files = sorted(path for pattern in patterns for path in tf.gfile.Glob(pattern))
    if not files:
        raise ValueError(f"no file matches {', '.join(patterns)}")
    with tf.name_scope(name, "read_batch_examples"):
        names = tf.train.string_input_producer(files, num_epochs, shuffle=randomize_input, seed=seed)
        records = [_read(reader(), names, read_batch_size, parse_fn) for _ in range(num_threads)]
        if not randomize_input:
            batch = tf.train.batch_join(records, batch_size, queue_capacity, enqueue_many=True,
                                        allow_smaller_final_batch=True)
        else:
            at_least = int(queue_capacity * 0.4) if isinstance(batch_size, tf.Tensor) else \
                max(queue_capacity - 3 * batch_size, batch_size)
            batch = tf.train.shuffle_batch_join(records, batch_size, max(queue_capacity, at_least + 1), at_least, seed,
                                                enqueue_many=True, allow_smaller_final_batch=True)
        return batch["key"], batch["record"] if parse_fn is None else {
            name: value for name, value in batch.items() if name != "key"}


def _read(reader: Any, names: Any, count: int, parse_fn: Callable | None) -> dict[str, tf.Tensor]:
    """Returns the next records of a reader: name -> tensor [count, ...]."""
    keys, records = reader.read_up_to(names, count) if count > 1 else (
        tf.expand_dims(part, 0) for part in reader.read(names))
    if parse_fn is None:
        return {"key": keys, "record": records}
    parsed = parse_fn(tf.reshape(records, [])) if count == 1 else tf.map_fn(parse_fn, records)
    return {"key": keys, **{name: tf.expand_dims(value, 0) if count == 1 else value for name, value in parsed.items()}}


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
