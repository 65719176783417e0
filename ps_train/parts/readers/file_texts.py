"""The text of a range, and the records of a file, as datasets: from this machine, from a store, or decompressed.

    file of this machine      --a seek to the range-->        text
                              --TensorFlow's own dataset-->   records
    file in a store, or one   --one request for a range-->    text
    that grows
                              --a stream-->                   records
    file.gz or .zst           --a stream, decompressed-->     texts of whole lines, records

A stream and a request run in functions of Python, in the process of the worker: --existing_servers cannot read these.
Nor can it seek: TensorFlow's own dataset then reads the file from its beginning to the end of the range.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import DataError, PsTrainError
from ps_train.graph import extensions
from ps_train.parts.readers.file_ranges import FileRange
from ps_train.parts.readers.files import STREAM_NAMES, check_size, open_stream, read_range, size_changed

_BUFFER_BYTES = 1 << 20
_TEXT_BYTES = 4 << 20  # of a stream, parsed at once
_HEADER, _FOOTER_BYTES = struct.Struct("<QI"), 4  # of a record: its length and the checksum of that; that of its data
_MOST_RECORD_BYTES = 1 << 31
_MARK = "ps_train cannot read"
_ANY_BYTES = 1 << 62  # no file has so many
_SIZE_MESSAGE = re.compile(rf'footer \((\d+) bytes\), input file "(.*)" has body length (\d+) bytes, .*'
                           rf"\({_ANY_BYTES} bytes\)", re.DOTALL)


class CarriedErrors(extensions.Watcher):
    """Carries errors out of functions that TensorFlow calls, which passes on no more than a text."""

    def __init__(self) -> None:
        """Adds this to the current graph."""
        self._errors: list[PsTrainError] = []
        self._mark = f"[{_MARK}] [{uuid.uuid4().hex}]"  # a graph may have several readers
        extensions.add_watcher(self)

    def carry(self, error: PsTrainError) -> ValueError:
        """Returns what to raise in place of an error; TensorFlow turns it into an InvalidArgumentError."""
        self._errors.append(error)
        return ValueError(f"{self._mark} [{len(self._errors) - 1}] {error}")

    def explain(self, error: tf.errors.InvalidArgumentError, where: str) -> None:
        """Raises the error that this one has carried."""
        if match := re.search(rf"{re.escape(self._mark)} \[(\d+)\]", error.message):
            raise self._errors[int(match[1])] from error
        if match := _SIZE_MESSAGE.search(error.message):
            file_bytes, rest = int(match[1]), int(match[3])  # the rest of a shorter file is below 0, without a sign
            raise size_changed(match[2], (file_bytes + rest) % (1 << 64), file_bytes) from error


def texts(file_range: FileRange, errors: CarriedErrors) -> tf.data.Dataset:
    """Returns a dataset of (text of whole lines, its first byte in the file), string and int64 scalars."""
    start, stop, file_bytes = (tf.cast(value, tf.int64) for value in file_range[2:])
    # TensorFlow reads up to a distance from the end of a file, which moves if it grows.
    is_stream, is_stored = _is_stream(file_range.file), _is_stored(file_range.file) | (file_bytes < 0)
    zero, one = tf.constant(0, tf.int64), tf.constant(1, tf.int64)

    def fetch(name: bytes, first: np.int64, last: np.int64, size: np.int64) -> bytes:
        try:
            if last == size:  # once for each file: it is a request
                check_size(name.decode(), int(size))
            return read_range(name.decode(), int(first), int(last))
        except PsTrainError as error:
            raise errors.carry(error) from None

    def fetched(*part: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.ensure_shape(tf.numpy_function(fetch, part, tf.string), []), part[1]

    is_local = ~(is_stream | is_stored)
    from_beginning = tf.data.FixedLengthRecordDataset(
        tf.boolean_mask([file_range.file], [is_local]), record_bytes=tf.maximum(one, stop - start),
        header_bytes=start, footer_bytes=tf.maximum(zero, file_bytes - stop))
    local = _size_check(file_range, is_local).concatenate(
        _sought(file_range.file, start, stop, is_local & (start > 0)).concatenate(from_beginning).take(1))
    stored = tf.data.Dataset.from_tensors((file_range.file, start, stop, file_bytes)).filter(
        _traced(lambda *_: is_stored & ~is_stream)).map(_traced(fetched))
    streamed = from_stream(
        file_range.file, is_stream, _line_texts, errors, (tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)),
        start, file_bytes)
    return local.map(_traced(lambda text: (text, start))).concatenate(stored).concatenate(streamed)


def _sought(file: tf.Tensor, start: tf.Tensor, stop: tf.Tensor, is_wanted: tf.Tensor) -> tf.data.Dataset:
    """Returns a dataset of the text of a range; an empty one if it is not wanted, or cannot be read that way."""
    def seek(name: bytes, first: np.int64, last: np.int64) -> bytes:
        return read_range(name.decode(), int(first), int(last))

    wanted = tf.data.Dataset.from_tensors((file, start, stop)).filter(_traced(lambda *_: is_wanted))
    # The function is not known in the process of a server of --existing_servers. Any other fault of a file comes again
    # where TensorFlow reads it.
    return wanted.map(_traced(
        lambda *part: tf.ensure_shape(tf.numpy_function(seek, part, tf.string), []))).ignore_errors()


def record_chunks(file_range: FileRange, chunk_records: int, errors: CarriedErrors) -> tf.data.Dataset:
    """Returns a dataset of the records of a file, string [n] with n <= `chunk_records`."""
    is_stream = _is_stream(file_range.file) | _is_stored(file_range.file)
    local = _size_check(file_range, ~is_stream).concatenate(
        tf.data.TFRecordDataset(tf.boolean_mask([file_range.file], [~is_stream]), buffer_size=_BUFFER_BYTES))

    def chunks(name: str, file_bytes: np.int64) -> Iterator[np.ndarray]:
        chunk = []
        for record in records_of(name, int(file_bytes)):
            chunk.append(record)
            if len(chunk) == chunk_records:
                yield np.array(chunk, object)
                chunk = []
        if chunk:
            yield np.array(chunk, object)

    return local.batch(chunk_records).concatenate(
        from_stream(file_range.file, is_stream, chunks, errors, tf.TensorSpec([None], tf.string),
                    file_range.file_bytes))


def _size_check(file_range: FileRange, is_wanted: tf.Tensor) -> tf.data.Dataset:
    """Returns a dataset without elements, which fails if the file does not have its size any more."""
    # A function of Python could not look at files of --existing_servers. What is left of a file without `file_bytes`
    # is a multiple of _ANY_BYTES only if it is nothing.
    file_bytes = tf.cast(file_range.file_bytes, tf.int64)
    return tf.data.FixedLengthRecordDataset(
        tf.boolean_mask([file_range.file], [is_wanted & (file_bytes >= 0)]), record_bytes=_ANY_BYTES,
        footer_bytes=tf.maximum(tf.constant(0, tf.int64), file_bytes))


def records_of(name: str, file_bytes: int = -1) -> Iterator[bytes]:
    """Yields the records of a TFRecord file; checks the checksum of each length, not that of the data.

    Args:
      file_bytes: the size that the file must have; below 0 for any.

    Raises:
      DataError: it is no TFRecord file, is damaged, or has another size.
    """
    with open_stream(name) as file:
        check_size(name, file_bytes)
        position = 0
        while header := file.read(_HEADER.size):
            length, checksum = _HEADER.unpack(header) if len(header) == _HEADER.size else (0, -1)
            is_sound = checksum == _masked_crc(header[:8]) and length < _MOST_RECORD_BYTES
            content = file.read(length + _FOOTER_BYTES) if is_sound else b""
            if not is_sound or len(content) < length + _FOOTER_BYTES:
                raise DataError("bad_record_file", f"{name}: no TFRecord file, or damaged at byte {position}; copy it "
                                "again")
            yield content[:length]
            position += _HEADER.size + len(content)


def _line_texts(name: str, start: int, file_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yields (text of whole lines, its first byte) of a stream, from a byte of its decompressed text on."""
    start, file_bytes = int(start), int(file_bytes)  # TensorFlow passes numpy's
    with open_stream(name) as file:
        check_size(name, file_bytes)
        file.read(start)
        rest = b""
        while piece := file.read(_TEXT_BYTES):
            text, line_break, rest_of_piece = (rest + piece).rpartition(b"\n")
            if line_break:
                yield text + line_break, start
                start += len(text) + 1
            rest = rest_of_piece
        if rest:
            yield rest, start


def from_stream(
    file: tf.Tensor, is_wanted: tf.Tensor, generate: Callable[..., Iterator[Any]], errors: CarriedErrors, spec: Any,
    *arguments: tf.Tensor
) -> tf.data.Dataset:
    """Returns a dataset of what `generate(name, *arguments)` yields; an empty one if it is not wanted."""
    def carrying(name: bytes, *values: Any) -> Iterator[Any]:
        try:
            yield from generate(name.decode(), *values)
        except PsTrainError as error:
            raise errors.carry(error) from None

    wanted = tf.data.Dataset.from_tensors((file, *arguments)).filter(_traced(lambda *_: is_wanted))
    return wanted.flat_map(_traced(lambda *values: tf.data.Dataset.from_generator(
        carrying, output_signature=spec, args=values)))


def _is_stream(file: tf.Tensor) -> tf.Tensor:
    """Returns whether a file is read as a stream, as `files.is_stream` does."""
    return tf.strings.regex_full_match(file, f"(?s).*({'|'.join(map(re.escape, STREAM_NAMES.values()))})")


def _is_stored(file: tf.Tensor) -> tf.Tensor:
    """Returns whether a file is in a store, as `files.is_in_store` does."""
    own = "|".join(re.escape(scheme) for scheme in tf.io.gfile.get_registered_schemes())
    return tf.strings.regex_full_match(file, r"(?s)[a-z][a-z0-9+.-]*://.*") & ~tf.strings.regex_full_match(
        file, f"(?s)(?:{own})://.*")


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    # AutoGraph would write the function, which has no control flow to convert, to a temporary file.
    return tf.autograph.experimental.do_not_convert(function)


def _crc_table() -> list[int]:
    """Returns the table of CRC-32C (RFC 3720, appendix B.4), by byte."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC_TABLE = _crc_table()


def _masked_crc(content: bytes) -> int:
    """Returns the checksum that TFRecord files have of it (tensorflow/core/lib/hash/crc32c.h)."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
