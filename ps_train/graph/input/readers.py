"""Reads ranges of text files and of TFRecord files as chunks of parsed examples, for `range_batches`."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.graph.input.bad_records import BadRecords
from ps_train.graph.input.file_ranges import FileRange

_CHUNK_RECORDS = 4096
_BUFFER_BYTES = 1 << 20

Parse = Callable[[tf.Tensor], Any]


class LineReader:
    """Reads the lines of a range as one chunk, without the line breaks."""

    def __init__(self, parse: Parse, find_faults: Callable[[tf.Tensor], tf.Tensor], on_bad_record: str) -> None:
        """Takes how to parse lines; call it in the graph of the dataset.

        Args:
          parse: returns a structure of tensors [n, ...] for lines, string [n]; fails if one of them is malformed.
          find_faults: returns string [n], what is wrong with each line, "" for a sound one. It has to find every line
            for which `parse` fails; it runs only on chunks with such a line.
          on_bad_record: "stop" or "skip".
        """
        self._parse = parse
        self._find_faults = find_faults
        self._bad = BadRecords(on_bad_record, "line")

    def read(self, file_range: FileRange) -> tf.data.Dataset:
        """Returns a dataset of one chunk."""
        whole = tf.data.FixedLengthRecordDataset(
            file_range.file, record_bytes=file_range.stop - file_range.start, header_bytes=file_range.start,
            footer_bytes=file_range.file_bytes - file_range.stop)

        @tf.autograph.experimental.do_not_convert
        def parsed(text: tf.Tensor) -> tf.data.Dataset:
            pieces = _split(text)

            def locate(index: tf.Tensor) -> tf.Tensor:
                lengths = tf.cast(tf.strings.length(pieces), tf.int64) + 1
                return file_range.start + tf.reduce_sum(lengths[:index])

            return self._bad.parsed(_without_carriage_returns(pieces), self._parse, self._find_faults, file_range,
                                    locate)

        return whole.flat_map(parsed)


def _split(text: tf.Tensor) -> tf.Tensor:
    """Returns the lines of a text, string [n]."""
    pieces = tf.strings.split([text], "\n").values
    # Behind the last line break there is an empty piece. At the end of a file that break may be missing.
    is_ended = tf.equal(tf.strings.substr(text, -1, 1), "\n")
    return pieces[:tf.size(pieces) - tf.cast(is_ended, tf.int32)]


def _without_carriage_returns(lines: tf.Tensor) -> tf.Tensor:
    """Returns lines that end with CR LF, as the first one then does, without the CR."""
    # decode_csv would strip none, and to look at each line would cost a tenth of the time.
    return tf.cond(tf.strings.regex_full_match(lines[0], r"(?s).*\r"),
                   lambda: tf.strings.regex_replace(lines, r"\r$", ""), lambda: lines)


class RecordReader:
    """Reads TFRecord files in chunks of 4096 records."""

    def __init__(self, parse: Parse, expected: str, on_bad_record: str) -> None:
        """Takes how to parse records; call it in the graph of the dataset.

        Args:
          parse: returns a structure of tensors [n, ...] for serialised records, string [n]; fails if one is malformed.
          expected: what a record has to be, for the error.
          on_bad_record: "stop" or "skip".
        """
        self._parse = parse
        self._fault = f"not {expected}"
        self._bad = BadRecords(on_bad_record, "record")

    def read(self, file_range: FileRange) -> tf.data.Dataset:
        """Returns a dataset of chunks; `file_range` is a whole file."""
        chunks = tf.data.TFRecordDataset(file_range.file, buffer_size=_BUFFER_BYTES).batch(_CHUNK_RECORDS)

        @tf.autograph.experimental.do_not_convert
        def parsed(number: tf.Tensor, records: tf.Tensor) -> tf.data.Dataset:
            return self._bad.parsed(records, self._parse, self._find_faults, file_range,
                                    lambda index: number * _CHUNK_RECORDS + index)

        return chunks.enumerate().flat_map(parsed)

    def _find_faults(self, records: tf.Tensor) -> tf.Tensor:
        """Tries each record by itself."""
        @tf.autograph.experimental.do_not_convert
        def try_one(index: tf.Tensor, record: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([tensor.op for tensor in tf.nest.flatten(self._parse(record[tf.newaxis]))]):
                return tf.identity(index)

        tried = tf.data.Dataset.from_tensor_slices(records).enumerate().map(try_one)
        sound = tried.apply(tf.data.experimental.ignore_errors())
        num = tf.size(records, out_type=tf.int64)
        is_sound = sound.reduce(tf.zeros_like(records, tf.bool), tf.autograph.experimental.do_not_convert(
            lambda found, index: found | tf.equal(tf.range(num), index)))
        return tf.where(is_sound, tf.zeros_like(records), tf.fill([num], self._fault))
