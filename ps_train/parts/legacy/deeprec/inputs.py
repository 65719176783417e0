"""DeepRec's input: `WorkQueue`, from which all workers take files, and `ParquetDataset`.

    position on a ps --take: one more--> file --> a queue of this worker --> input_dataset()

The position is a variable: it is initialised, saved and restored as the others are, so a training that goes on takes
the files that are left. A file that a worker had taken when it died is not taken again.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import PsTrainError, UserCodeError
from ps_train.parts.readers import parquet_files
from ps_train.parts.readers.parquet_files import ArrowColumn

# Types of Parquet's columns that TensorFlow calls otherwise.
_DTYPES = {"float": "float32", "double": "float64", "large_string": "string", "binary": "string"}


class WorkQueue:
    """Works, such as the names of files, each of which one worker takes.

    Attributes:
      works: in the order in which they were given.
    """

    def __init__(
        self, works: Sequence[str], num_epochs: int = 1, shuffle: bool = True, seed: Optional[int] = None,
        prefix: Optional[str] = None, num_slices: Optional[int] = None, num_clients: int = 1,
        name: Optional[str] = None, local_work_mgr: Any = None,
    ) -> None:
        """Adds the position to the current graph.

        Args:
          works: those that are given out.
          num_epochs: how often.
          shuffle: whether in another order in each epoch.
          seed: of these orders; all workers need the same one. None for one that follows from the works.
          prefix: is put before each work.
          num_slices, num_clients: of DeepRec; files are not cut, and each worker takes one at a time.
          name: of the queue.

        Raises:
          UserCodeError: there is no work, or an argument is not supported.
        """
        if isinstance(works, (str, bytes)) or not works or num_epochs < 1 or local_work_mgr is not None:
            raise UserCodeError("bad_work_queue", f"WorkQueue: got the works {works!r}, {num_epochs} epochs and the "
                                f"local manager {local_work_mgr!r}; allowed: a list of names, a number from 1, None")
        del num_slices, num_clients
        self.works = [work.decode() if isinstance(work, bytes) else str(work) for work in works]
        self.name = tf.get_default_graph().unique_name(name or "work_queue")
        draws = random.Random(zlib.crc32(repr(self.works).encode()) if seed is None else seed)
        epochs = [draws.sample(self.works, len(self.works)) if shuffle else self.works for _ in range(num_epochs)]
        self._order = [(prefix or "") + work for epoch in epochs for work in epoch]
        # On a ps, where replica_device_setter puts variables.
        self._position = tf.get_variable(f"{self.name}/position", [], tf.int64, tf.zeros_initializer(), trainable=False,
                                         use_resource=True, partitioner=None)

    def __len__(self) -> int:
        return len(self.works)

    def take(self) -> tf.Tensor:
        """Returns the next work, a string scalar; OutOfRangeError when all are taken."""
        number = tf.raw_ops.ResourceCountUpTo(
            resource=self._position.handle, limit=len(self._order), T=tf.int64)  # one worker at a time
        return tf.gather(tf.constant(self._order), number)

    def input_producer(self) -> tf.FIFOQueue:
        """Returns a queue of this worker that a QueueRunner fills with the works that it takes."""
        work = self.take()
        queue = tf.FIFOQueue(1, [tf.string], [[]], name=f"{self.name}/taken".replace("/", "_"))
        tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(work)]))
        return queue

    def input_dataset(self) -> tf.data.Dataset:
        """Returns a dataset of the works that this worker takes."""
        queue = self.input_producer()
        return tf.data.Dataset.from_tensors(0).repeat().map(lambda _: queue.dequeue())

    def add_summary(self) -> None:
        """Adds the share of the works that are left, for TensorBoard."""
        left = 1 - tf.cast(self._position, tf.float32) / len(self._order)
        tf.summary.scalar(f"{self.name}/fraction_of_{len(self._order)}_full", left)


def ParquetDataset(  # noqa: N802 (DeepRec's name)
    filenames: Any, batch_size: int = 1, fields: Optional[Sequence[str]] = None, partition_count: int = 1,
    partition_index: int = 0, drop_remainder: bool = False, **others: Any,
) -> tf.data.Dataset:
    """Returns a dataset of batches of Parquet files: name of a column -> tensor [batch], of the type in the first file.

    A missing value is NaN in a column of floats; in others, none may be missing.

    Args:
      filenames: a name, or a list of them.
      batch_size: rows in a batch; batches do not go over the end of a file.
      fields: names of the columns; None for all.
      partition_count, partition_index: the share of the batches: those with number % count == index.
      drop_remainder: whether to leave out a last batch of a file that is smaller.

    Raises:
      UserCodeError: the names are not known when the graph is made, or another argument is given.
      DataError: the first file is missing or damaged.
      ConfigError: pyarrow is not installed.
    """
    names = [filenames] if isinstance(filenames, (str, bytes)) else filenames
    if others or not isinstance(names, (list, tuple)) or not names:
        raise UserCodeError("bad_parquet_dataset", (
            f"ParquetDataset: got filenames of type {type(filenames).__name__} and the arguments {sorted(others)}; "
            "allowed: a name or a list of names, and no such argument; for files of a WorkQueue use CSV or TFRecord"))
    names = [name.decode() if isinstance(name, bytes) else name for name in names]
    columns = _columns_of(names[0], fields)

    def batches() -> Iterator[Mapping[str, np.ndarray]]:
        number = 0
        for name in names:
            for batch in _batches_of(name, columns, batch_size):
                is_short = len(next(iter(batch.values()))) < batch_size
                if number % partition_count == partition_index and not (drop_remainder and is_short):
                    yield batch
                number += 1

    return tf.data.Dataset.from_generator(batches, {column.name: column.dtype for column in columns},
                                          {column.name: [None] for column in columns})


def _columns_of(name: str, fields: Sequence[str] | None) -> list[ArrowColumn]:
    """Returns the columns of a file, or some of them, each of the type that it has there."""
    with parquet_files.opened(name) as file:
        schema = file.schema_arrow
    chosen = list(schema.names if fields is None else (getattr(field, "name", field) for field in fields))
    dtypes = {column: tf.as_dtype(_DTYPES.get(kind := str(schema.field(column).type), kind)) for column in chosen}
    return [ArrowColumn(column, dtype, None, np.nan if dtype.is_floating else None)
            for column, dtype in dtypes.items()]


def _batches_of(name: str, columns: Sequence[ArrowColumn], batch_size: int) -> Iterator[Mapping[str, np.ndarray]]:
    try:
        yield from parquet_files.chunks(name, 0, sys.maxsize, columns, batch_size, check=lambda batch: None)
    except PsTrainError as error:  # TensorFlow takes those that it does not know for faults of its own
        raise ValueError(str(error)) from None
