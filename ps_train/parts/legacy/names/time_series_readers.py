"""`tf.contrib.timeseries`: what reads a series, and what makes windows of it.

    NumpyReader, CSVReader, TFExampleReader    read() a part of the series at a time, again and again
                                               read_full() all of it
    RandomWindowInputFn                        read() --> queue of records --> windows --> shuffling queue --> batch
    WholeDatasetInputFn                        read_full() --> a batch of one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator.canned.timeseries.feature_keys import TrainEvalFeatures

from ps_train.parts.legacy.names.time_series import saved_model_utils  # with the numpy that it needs

_TIMES, _VALUES = TrainEvalFeatures.TIMES, TrainEvalFeatures.VALUES
_ALL = 2**40  # records, more than there are


class TimeSeriesReader:
    """Base of what reads a series, for scripts that have a reader of their own."""

    def check_dataset_size(self, minimum_dataset_size: int) -> None:
        """Raises ValueError if the series is known to be shorter."""

    def read(self) -> dict[str, tf.Tensor]:
        """Returns some consecutive records, [records, ...] for each feature, and the next ones in the next step."""
        raise NotImplementedError

    def read_full(self) -> dict[str, tf.Tensor]:
        """Returns all records, [records, ...] for each feature."""
        raise NotImplementedError


class _DatasetReader(TimeSeriesReader):
    """A reader whose subclasses have the records as a dataset.

    Attributes:
      read_num_records_hint: how many records `read` returns at most.
    """

    def __init__(self, read_num_records_hint: int) -> None:
        self.read_num_records_hint = read_num_records_hint

    def _records(self) -> tf.data.Dataset:
        raise NotImplementedError

    def _process_records(self, records: Any) -> dict[str, tf.Tensor]:
        """Returns the features of a batch of records."""
        return records

    def read(self) -> dict[str, tf.Tensor]:
        batches = self._records().batch(self.read_num_records_hint).repeat()
        return self._process_records(tf.data.make_one_shot_iterator(batches).get_next())

    def read_full(self) -> dict[str, tf.Tensor]:
        return self._process_records(tf.data.experimental.get_single_element(self._records().batch(_ALL)))


class NumpyReader(_DatasetReader):
    """A series in arrays."""

    def __init__(self, data: Mapping[str, Any], read_num_records_hint: int = 4096) -> None:
        """Takes feature -> array; "times" are [series], "values" [series] or [series, features], or batches of one.

        Raises:
          ValueError: "times" or "values" is missing, or the shapes do not fit.
        """
        super().__init__(read_num_records_hint)
        batch = saved_model_utils._canonicalize_numpy_data(data, require_single_batch=True)  # noqa: SLF001 (as TF1's)
        self._features = {key: value[0] for key, value in batch.items()}
        if self._features[_VALUES].ndim == 1:  # those of a batch
            self._features[_VALUES] = self._features[_VALUES][:, None]

    def check_dataset_size(self, minimum_dataset_size: int) -> None:
        """Raises ValueError if the series is shorter."""
        size = len(self._features[_TIMES])
        if size < minimum_dataset_size:
            raise ValueError(f"A TimeSeriesInputFn is configured to create windows of size {minimum_dataset_size}, but "
                             f"only {size} records were available in the dataset. Either decrease the window size or "
                             "provide more records.")

    def _records(self) -> tf.data.Dataset:
        return tf.data.Dataset.range(len(self._features[_TIMES]))

    def _process_records(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        # From this process, and not from the graph, which checkpoints have, and which is of 2 GB at most.
        arrays = self._features.values()
        parts = tf.numpy_function(
            lambda numbers: [array[numbers] for array in arrays], [records],
            [tf.as_dtype(array.dtype) for array in arrays])
        for part, array in zip(parts, arrays):
            part.set_shape([None, *array.shape[1:]])
        return dict(zip(self._features, parts))


class CSVReader(_DatasetReader):
    """A series in text files: in each line a time and values, separated by commas."""

    def __init__(self, filenames: str | Sequence[str], column_names: Sequence[str] = (_TIMES, _VALUES),
                 column_dtypes: Sequence[Any] | None = None, skip_header_lines: int | None = None,
                 read_num_records_hint: int = 4096) -> None:
        """Takes the files and their columns.

        Args:
          filenames: one, or several, whose lines follow one another.
          column_names: of each column; "values" may be there several times.
          column_dtypes: of each column, in which an empty field is 0; by default int64 for "times", and float32 without
            empty fields for the others.
          skip_header_lines: lines at the beginning of each file.
          read_num_records_hint: how many lines are read at once.

        Raises:
          ValueError: "times" is not there once, or "values" not at all, or the lengths differ.
        """
        super().__init__(read_num_records_hint)
        if list(column_names).count(_TIMES) != 1 or _VALUES not in column_names:
            raise ValueError(f"There must be one column '{_TIMES}', and '{_VALUES}' at least once; got {column_names}")
        dtypes = column_dtypes or [tf.int64 if name == _TIMES else tf.float32 for name in column_names]
        if len(dtypes) != len(column_names):
            raise ValueError("If specified, the length of column_dtypes must match the length of column_names (got "
                             f"column_dtypes={column_dtypes} and column_names={column_names}).")
        self._filenames, self._names, self._dtypes = filenames, list(column_names), dtypes
        self._skipped, self._has_dtypes = skip_header_lines or 0, bool(column_dtypes)

    def _records(self) -> tf.data.Dataset:
        files = tf.data.Dataset.from_tensor_slices(tf.reshape(tf.convert_to_tensor(self._filenames), [-1]))
        return files.flat_map(lambda file: tf.data.TextLineDataset(file).skip(self._skipped))

    def _process_records(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        columns = tf.decode_csv(records, [tf.zeros([1 if name == _TIMES or self._has_dtypes else 0], dtype)
                                          for name, dtype in zip(self._names, self._dtypes)])
        named: dict[str, list[tf.Tensor]] = {}
        for name, column in zip(self._names, columns):
            named.setdefault(name, []).append(column)
        return {name: each[0] if name == _TIMES else tf.stack(each, axis=1) for name, each in named.items()}


class TFExampleReader(_DatasetReader):
    """A series of `tf.train.Example`s in TFRecord files."""

    def __init__(self, filenames: str | Sequence[str], features: Mapping[str, Any]) -> None:
        """Takes the files, and feature -> `tf.FixedLenFeature`.

        Raises:
          ValueError: "times" or "values" is missing.
        """
        super().__init__(4096)
        for name in (_TIMES, _VALUES):
            if name not in features:
                raise ValueError(f"'{name}' is a required column.")
        self._filenames, self._features = filenames, dict(features)

    def _records(self) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(self._filenames)

    def _process_records(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        return tf.parse_example(records, self._features)


class TimeSeriesInputFn:
    """Base of what makes batches of windows; an object of it is an `input_fn`."""

    def create_batch(self) -> tuple[dict[str, tf.Tensor], None]:
        """Returns the features, each [batch, window, ...], and None."""
        raise NotImplementedError

    def __call__(self) -> tuple[dict[str, tf.Tensor], None]:
        """`create_batch`."""
        return self.create_batch()


class WholeDatasetInputFn(TimeSeriesInputFn):
    """A batch of one window that is all of the series: to evaluate, and then to predict what follows."""

    def __init__(self, time_series_reader: TimeSeriesReader) -> None:
        self._reader = time_series_reader

    def create_batch(self) -> tuple[dict[str, tf.Tensor], None]:
        return {name: value[None] for name, value in self._reader.read_full().items()}, None


class RandomWindowInputFn(TimeSeriesInputFn):
    """Windows of consecutive records, shuffled."""

    def __init__(self, time_series_reader: TimeSeriesReader, window_size: int, batch_size: int,
                 queue_capacity_multiplier: int = 1000, shuffle_min_after_dequeue_multiplier: int = 2,
                 discard_out_of_order: bool = True, discard_consecutive_batches_limit: int = 1000,
                 jitter: bool = True, num_threads: int | None = 2, shuffle_seed: int | None = None) -> None:
        """Takes a reader and how to cut the series.

        Args:
          time_series_reader: of the series.
          window_size: records in a window.
          batch_size: windows in a batch.
          queue_capacity_multiplier: batches that the queues hold.
          shuffle_min_after_dequeue_multiplier: batches of windows among which one is drawn.
          discard_out_of_order: leave a window out whose times decrease, as where files begin anew; else sort it.
          discard_consecutive_batches_limit: batches without a window that may stay before the input ends.
          jitter: leave out a record now and then, so that windows do not always begin at the same ones.
          num_threads: of the queues; `batch_size` for None.
          shuffle_seed: of the order; it is random by default.

        Raises:
          ValueError: the series is shorter than a window.
        """
        time_series_reader.check_dataset_size(minimum_dataset_size=window_size)
        self._reader, self._window_size, self._batch_size = time_series_reader, window_size, batch_size
        self._capacity, self._min_after_dequeue = queue_capacity_multiplier, shuffle_min_after_dequeue_multiplier
        self._discards, self._discard_limit = discard_out_of_order, discard_consecutive_batches_limit
        self._jitter, self._num_threads, self._seed = jitter, num_threads or batch_size, shuffle_seed

    def create_batch(self) -> tuple[dict[str, tf.Tensor], None]:
        windows = self._windows(self._reader.read())
        times = windows[_TIMES]
        keep: tf.Tensor | bool = True
        if self._discards:
            keep = self._limited(tf.reduce_all(times[:, 1:] >= times[:, :-1], axis=1))
        else:
            order = tf.argsort(times, stable=True)
            windows = {name: tf.gather(value, order, batch_dims=1) for name, value in windows.items()}
        return tf.train.maybe_shuffle_batch(
            windows, self._batch_size, capacity=self._capacity * self._batch_size,
            min_after_dequeue=self._min_after_dequeue * self._batch_size, keep_input=keep,
            num_threads=self._num_threads, seed=self._seed, enqueue_many=True), None

    def _windows(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the features of the records as [batch, window, ...]."""
        count = self._batch_size * self._window_size
        skipped = tf.random_uniform([], maxval=2, dtype=tf.int32) if self._jitter else 0
        records = tf.train.batch(dict(features), batch_size=count + skipped, enqueue_many=True,
                                 capacity=self._capacity * count, num_threads=self._num_threads)
        shape = [self._batch_size, self._window_size]
        return {name: tf.reshape(value[skipped:], shape + value.shape.as_list()[1:])
                for name, value in records.items()}

    def _limited(self, is_kept: tf.Tensor) -> tf.Tensor:
        """Returns the same, [windows]; the input ends when no window has been kept for too long."""
        count = tf.Variable(0, dtype=tf.int64, name="discarded_windows_limiter", trainable=False,
                            collections=[tf.GraphKeys.LOCAL_VARIABLES])
        checked = tf.cond(
            tf.is_variable_initialized(count),  # a session of the script's own may not initialise it
            lambda: tf.cond(tf.reduce_any(is_kept), lambda: tf.identity(count.assign(0)),
                            lambda: tf.identity(count.count_up_to(self._discard_limit))),
            lambda: tf.constant(0, tf.int64))
        with tf.control_dependencies([checked]):
            return tf.identity(is_kept)
