"""Turns ranges of text files, TFRecord files and Parquet files into mini-batches.

    FileRange --LineReader, RecordReader,--> chunks, parsed: [n, ...] each --range_batches--> batches [batch_size, ...]
                ParquetReader

A reader parses many examples at once: decoding lines one by one takes 15 times as long. The share of a worker is one
stream of full batches, which continue over the ends of ranges. With `marks`, a batch ends where its range ends and
names that range, so a range counts as done after a step on its last batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, UserCodeError
from ps_train.parts.readers import file_ranges, file_texts, parquet_files
from ps_train.parts.readers.bad_records import BadRecords
from ps_train.parts.readers.file_ranges import FileRange, LineRange
from ps_train.parts.readers.parquet_files import ArrowColumn

_CHUNK_RECORDS, _CHUNK_ROWS = 4096, 16384

Parse = Callable[[tf.Tensor], Any]


class LineReader:
    """Reads the lines of a range as one chunk, without the line breaks."""

    def __init__(self, parse: Parse, find_faults: Callable[[tf.Tensor], tf.Tensor], on_bad_record: str) -> None:
        """Prepares it; call it in the graph of the dataset.

        Args:
          parse: returns a structure of tensors [n, ...] for lines, string [n]; fails if one of them is malformed.
          find_faults: returns string [n], the fault of each line, "" for a sound one. It must find every line for
            which `parse` fails; it runs only on chunks with such a line.
          on_bad_record: "stop" or "skip".
        """
        self._parse = parse
        self._find_faults = find_faults
        self._bad, self._errors = BadRecords(on_bad_record, "line"), file_texts.CarriedErrors()

    def read(self, file_range: FileRange) -> tf.data.Dataset:
        """Returns a dataset of one chunk; of several for a file that is read as a stream."""
        @tf.autograph.experimental.do_not_convert
        def parsed(text: tf.Tensor, start: tf.Tensor) -> tf.data.Dataset:
            pieces = _split(text)

            def locate(index: tf.Tensor) -> tf.Tensor:
                lengths = tf.cast(tf.strings.length(pieces), tf.int64) + 1
                return start + tf.reduce_sum(lengths[:index])

            return self._bad.parsed(_without_carriage_returns(pieces), self._parse, self._find_faults, file_range,
                                    locate)

        return file_texts.texts(file_range, self._errors).flat_map(parsed)


def _split(text: tf.Tensor) -> tf.Tensor:
    """Returns the lines of a text, string [n]."""
    pieces = tf.strings.split([text], "\n").values
    # An empty piece follows the last line break, which may be missing at the end of a file.
    is_ended = tf.equal(tf.strings.substr(text, -1, 1), "\n")
    return pieces[:tf.size(pieces) - tf.cast(is_ended, tf.int32)]


def _without_carriage_returns(lines: tf.Tensor) -> tf.Tensor:
    """Returns lines that end with CR LF, as the first one then does, without the CR."""
    # decode_csv would strip none, and a check of each line would cost a tenth of the time. Not by a match of the whole
    # first line, which fails if that is not UTF-8.
    return tf.cond(tf.equal(tf.strings.substr(tf.strings.join([b"\n", lines[0]]), -1, 1), "\r"),
                   lambda: tf.strings.regex_replace(lines, r"\r$", ""), lambda: lines)


class RecordReader:
    """Reads TFRecord files in chunks of 4096 records."""

    def __init__(self, parse: Parse, expected: str, on_bad_record: str) -> None:
        """Prepares it; call it in the graph of the dataset.

        Args:
          parse: returns a structure of tensors [n, ...] for serialised records, string [n]; fails if one is malformed.
          expected: what a record must be, for the error.
          on_bad_record: "stop" or "skip".
        """
        self._parse = parse
        self._fault = f"not {expected}"
        self._bad, self._errors = BadRecords(on_bad_record, "record"), file_texts.CarriedErrors()

    def read(self, file_range: FileRange) -> tf.data.Dataset:
        """Returns a dataset of chunks; `file_range` is a whole file.

        Raises:
          UserCodeError: it is a range of lines.
        """
        _refuse_lines(file_range, "RecordReader")
        chunks = file_texts.record_chunks(file_range, _CHUNK_RECORDS, self._errors)

        @tf.autograph.experimental.do_not_convert
        def parsed(number: tf.Tensor, records: tf.Tensor) -> tf.data.Dataset:
            return self._bad.parsed(records, self._parse, self._find_faults, file_range,
                                    lambda index: number * _CHUNK_RECORDS + index)

        return chunks.enumerate().flat_map(parsed)

    def _find_faults(self, records: tf.Tensor) -> tf.Tensor:
        """Tries to parse each record alone."""
        @tf.autograph.experimental.do_not_convert
        def try_one(index: tf.Tensor, record: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies(tf.nest.flatten(self._parse(record[tf.newaxis]), expand_composites=True)):
                return tf.identity(index)

        tried = tf.data.Dataset.from_tensor_slices(records).enumerate().map(try_one)
        sound = tried.ignore_errors()
        num = tf.size(records, out_type=tf.int64)
        is_sound = sound.reduce(tf.zeros_like(records, tf.bool), tf.autograph.experimental.do_not_convert(
            lambda found, index: found | tf.equal(tf.range(num), index)))
        return tf.where(is_sound, tf.zeros_like(records), tf.fill([num], self._fault))


class ParquetReader:
    """Reads the columns of Parquet files, in chunks of up to 16,384 rows. It needs pyarrow (the extra `parquet`).

    Give `file_ranges(..., is_text=False)` then. Files whose names end in .parquet are cut at their row groups; any
    other file is one range.
    """

    def __init__(
        self, columns: Mapping[str, tf.DType | tf.TensorSpec], parse: Callable[[dict[str, tf.Tensor]], Any], *,
        fill: Mapping[str, Any] | None = None,
        check: Callable[[Mapping[str, np.ndarray]], None] = lambda columns: None,
    ) -> None:
        """Prepares it; call it in the graph of the dataset.

        Args:
          columns: name -> what the column becomes: a dtype for a tensor [n], or `tf.TensorSpec([k], dtype)` for one
            [n, k] of a column of lists that have k values each. Numbers are cast, but integers to no smaller range. As
            tf.string, text is UTF-8, and a number is its digits.
          parse: returns a structure of tensors [n, ...] for a dict of these tensors.
          fill: column -> what a missing value (null) becomes. In other columns, none may be missing.
          check: is called with name -> numpy array of each chunk, and raises DataError if that is malformed; the error
            that ends training then names the file and the rows, too.

        Raises:
          ConfigError: `fill` names a column that is not read, or a column is to become something else.
        """
        fill = fill or {}
        if unknown := [name for name in fill if name not in columns]:
            raise ConfigError("parameter_out_of_range", f"ParquetReader: fill names {unknown[0]!r}; allowed: the "
                              f"columns {', '.join(columns)}")
        specs = {name: _checked_spec(name, spec) for name, spec in columns.items()}
        self._specs = {name: tf.TensorSpec([None, *spec.shape], spec.dtype) for name, spec in specs.items()}
        self._columns = [ArrowColumn(name, spec.dtype, next(iter(spec.shape.as_list()), None), fill.get(name))
                         for name, spec in specs.items()]
        self._parse, self._check, self._errors = parse, check, file_texts.CarriedErrors()

    def read(self, file_range: FileRange) -> tf.data.Dataset:
        """Returns a dataset of chunks.

        Raises:
          UserCodeError: `file_range` is a range of lines.
        """
        _refuse_lines(file_range, "ParquetReader")

        def columns_of(name: str, start: Any, stop: Any, file_bytes: Any) -> Iterator[Mapping[str, Any]]:
            return parquet_files.chunks(
                name, int(start), int(stop), self._columns, _CHUNK_ROWS, self._check, int(file_bytes))

        columns = file_texts.from_stream(
            file_range.file, tf.constant(True), columns_of, self._errors, self._specs, file_range.start,
            file_range.stop, file_range.file_bytes)
        return columns.map(_traced(self._parse))


def _checked_spec(name: str, spec: Any) -> tf.TensorSpec:
    """Returns what a value of a column becomes, of the shape [] or [k]."""
    with contextlib.suppress(TypeError):  # of what is no dtype
        spec = spec if isinstance(spec, tf.TypeSpec) else tf.TensorSpec([], spec)
    is_tensor = isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined() and spec.shape.rank <= 1
    if not is_tensor:
        raise ConfigError("parameter_out_of_range", f"ParquetReader: column {name!r}: got {spec!r}; allowed: a dtype, "
                          "or tf.TensorSpec([k], dtype) for lists of k values each")
    return spec


def _refuse_lines(file_range: FileRange, reader: str) -> None:
    if isinstance(file_range, LineRange):
        raise UserCodeError("ranges_of_lines", f"{reader}: got ranges of lines, which are the default of "
                            "file_ranges; give file_ranges(..., is_text=False)")


class RangeMark(NamedTuple):
    """Where a batch comes from.

    Attributes:
      number: that of its range, int64 scalar.
      is_last: whether it is the last batch of the range, bool scalar.
    """

    number: Any
    is_last: Any


def range_batches(
    ranges: tf.data.Dataset, read: Callable[[FileRange], tf.data.Dataset], batch_size: int, *, shuffle: bool = False,
    seed: int | None = None, marks: bool | None = None,
) -> tf.data.Dataset:
    """Returns the batches of the ranges.

    Args:
      ranges: dataset of `FileRange`.
      read: returns a dataset of chunks for a range, each a nested structure of tensors [n, ...] with the same n >= 1.
      batch_size: examples in a batch. The last batch of all may be smaller, and with `marks` that of each chunk.
      shuffle: whether to put the examples of a chunk in a random order.
      seed: seed of that order.
      marks: whether to end batches at the end of a range; None does so if the graph has a `RangeSource`.

    Returns:
      A dataset of such structures [batch, ...]; with `marks` of (structure, RangeMark).
    """
    marks = file_ranges.source_of_graph() is not None if marks is None else marks
    if marks:
        chunks = ranges.flat_map(_traced(lambda file_range: _with_marks(file_range, read)))
    else:
        chunks = ranges.flat_map(_traced(read))
    if shuffle:
        chunks = chunks.map(_traced(lambda *chunk: _shuffled(chunk, marks, seed)))
    chunks = chunks.prefetch(1)  # parses the next range during the steps on this one
    if not marks:
        return chunks.rebatch(batch_size)
    batches = chunks.flat_map(_traced(lambda chunk, mark: _cut(chunk, mark, batch_size)))
    source = file_ranges.source_of_graph()
    return batches.concatenate(_noting_end(batches, source)) if source is not None else batches


def _noting_end(batches: tf.data.Dataset, source: file_ranges.RangeSource) -> tf.data.Dataset:
    """Returns a dataset without elements, of the type of the batches; to read it notes their end."""
    def note(_: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([source.note_end()]):
            return tf.identity(False)

    return tf.data.Dataset.from_tensors(0).map(_traced(note)).filter(_traced(lambda never: never)).flat_map(
        _traced(lambda _: batches))


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    # AutoGraph would write the function, which has no control flow to convert, to a temporary file.
    return tf.autograph.experimental.do_not_convert(function)


def _structure(arguments: tuple) -> Any:
    """Returns an element as the dataset has it, from the arguments that it passes to a function."""
    return arguments if len(arguments) > 1 else arguments[0]


def _shuffled(chunk: tuple, marks: bool, seed: int | None) -> Any:
    examples = chunk[0] if marks else _structure(chunk)
    order = tf.random.shuffle(tf.range(_num_examples(examples)), seed=seed)
    shuffled = tf.nest.map_structure(lambda tensor: _in_order(tensor, order), examples)
    return (shuffled, chunk[1]) if marks else shuffled


def _in_order(examples: Any, order: tf.Tensor) -> Any:
    """Returns the rows of a tensor, a RaggedTensor or a SparseTensor in another order."""
    if not isinstance(examples, tf.SparseTensor):
        return tf.gather(examples, order)
    rows = tf.cast(tf.gather(tf.math.invert_permutation(order), examples.indices[:, 0]), tf.int64)
    return tf.sparse.reorder(tf.SparseTensor(
        tf.concat([rows[:, tf.newaxis], examples.indices[:, 1:]], axis=1), examples.values, examples.dense_shape))


def _num_examples(chunk: Any) -> tf.Tensor:
    first = tf.nest.flatten(chunk)[0]
    return first.nrows(tf.int32) if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]


def _cut(chunk: Any, mark: RangeMark, batch_size: int) -> tf.data.Dataset:
    """Returns the batches of a chunk, each with its mark."""
    num_batches = (tf.cast(_num_examples(chunk), tf.int64) + batch_size - 1) // batch_size

    def with_mark(index: tf.Tensor, batch: Any) -> tuple[Any, RangeMark]:
        return batch, RangeMark(mark.number, mark.is_last & tf.equal(index, num_batches - 1))

    return tf.data.Dataset.from_tensors(chunk).rebatch(batch_size).enumerate().map(_traced(with_mark))


def _with_marks(file_range: FileRange, read: Callable[[FileRange], tf.data.Dataset]) -> tf.data.Dataset:
    """Returns the chunks of a range, each as (chunk, RangeMark)."""
    # A chunk is known to be the last only when no other follows: each waits for the next one, or for the end. It waits
    # as an Optional: a scan has no other state that is empty at first and fits chunks of any shape.
    chunks = read(file_range)
    nothing = tf.raw_ops.OptionalNone()
    end = tf.data.Dataset.from_tensors((nothing, True))
    ended = chunks.map(_traced(lambda *chunk: (_packed(_structure(chunk)), False))).concatenate(end)

    def shift(waiting: tuple[Any, tf.Tensor], arrived: tuple[Any, tf.Tensor]) -> tuple[Any, Any]:
        (chunk, is_there), (next_chunk, is_end) = waiting, arrived
        return (next_chunk, True), (chunk, RangeMark(file_range.number, is_end), is_there)

    shifted = ended.apply(tf.data.experimental.scan((nothing, False), _traced(shift)))
    there = shifted.filter(_traced(lambda chunk, mark, is_there: is_there))
    return there.map(_traced(lambda chunk, mark, is_there: (_unpacked(chunk, chunks.element_spec), mark)))


def _packed(chunk: Any) -> tf.Tensor:
    """Returns a chunk as an Optional, a variant scalar."""
    return tf.raw_ops.OptionalFromValue(components=tf.nest.flatten(chunk, expand_composites=True))


def _unpacked(optional: tf.Tensor, spec: Any) -> Any:
    """Returns the chunk in an Optional."""
    parts = tf.nest.flatten(spec, expand_composites=True)
    values = tf.raw_ops.OptionalGetValue(
        optional=optional, output_types=[part.dtype for part in parts], output_shapes=[part.shape for part in parts])
    return tf.nest.pack_sequence_as(spec, values, expand_composites=True)
