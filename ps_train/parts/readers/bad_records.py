"""Malformed records: training stops with an error that names the first, or skips them.

    records --parse all at once--> chunk                                                          none is malformed
       |---- (fails) --> find the malformed ones --stop--> an error with file, place and fault
                                                 --skip--> count them, parse the others --> chunk, or nothing

Only a chunk that cannot be parsed is searched, so the check costs nothing while the data is sound. Files of another
form are not skipped: 100 malformed records in chunks that follow each other, without a sound one, stop training, too.
So does data in which nothing is sound, however often it is read.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import re
from collections.abc import Iterator
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, DataError, PsTrainError
from ps_train.graph import extensions
from ps_train.parts.readers.file_ranges import FileRange
from ps_train.parts.readers.files import is_stream, open_bytes, open_stream

STOP, SKIP = "stop", "skip"
_MARK, _END = "ps_train bad record", "end of bad record"
_MESSAGE = re.compile(rf"\[{_MARK}\] \[(.*?)\] \[(line|record)\] \[(\d+)\] \[(.*?)\] \[{_END}\]", re.DOTALL)
_MOST_COUNTED_BYTES = 1 << 30  # of a file whose lines are counted to name one
_PIECE_BYTES = 1 << 20
_READ_MS = 10_000
MANY = 100  # malformed records in a row, by chunks; a range of a file that grows may have a single line
_noted: contextvars.ContextVar[list[BadRecords] | None] = contextvars.ContextVar("noted", default=None)
_log = logging.getLogger(__name__)


class BadRecords(extensions.Watcher):
    """Parses chunks of records, and stops at malformed ones or skips them, as --on_bad_record says."""

    def __init__(self, on_bad_record: str, unit: str) -> None:
        """Adds the counter of skipped records to the current graph.

        Args:
          on_bad_record: "stop" or "skip".
          unit: "line" or "record"; positions are in bytes, or in records.

        Raises:
          ConfigError: on_bad_record has another value.
        """
        if on_bad_record not in (STOP, SKIP):
            raise ConfigError("flag_out_of_range", f"--on_bad_record: got {on_bad_record!r}; allowed: {STOP}, {SKIP}")
        self._unit = unit
        self._num_skipped = _counter("num_bad_records") if on_bad_record == SKIP else None
        # Those in the chunks since the last one with a sound record.
        self._num_in_row = _counter("num_bad_records_in_a_row") if on_bad_record == SKIP else None
        extensions.add_watcher(self)
        if (noted := _noted.get()) is not None:
            noted.append(self)

    def parsed(
        self, records: tf.Tensor, parse: Callable[[tf.Tensor], Any], find_faults: Callable[[tf.Tensor], tf.Tensor],
        file_range: FileRange, locate: Callable[[tf.Tensor], tf.Tensor],
    ) -> tf.data.Dataset:
        """Returns a dataset of one element: the sound records, parsed; with "skip" of none if there are none.

        Args:
          records: string [n].
          parse: returns a structure of tensors [n, ...] for strings [n]; fails if one is malformed.
          find_faults: returns string [n], the fault of each record, "" for a sound one.
          file_range: the range of the records.
          locate: returns the position in the file, int64, of the record with an index.
        """
        def parse_all(every: tf.Tensor) -> Any:
            parsed = parse(every)
            if self._num_in_row is None:
                return parsed
            with tf.control_dependencies(tf.nest.flatten(parsed, expand_composites=True)):
                ended = self._num_in_row.assign(0, read_value=False)
            with tf.control_dependencies([ended]):
                return tf.nest.map_structure(tf.identity, parsed, expand_composites=True)

        def take_sound(every: tf.Tensor) -> tf.Tensor:
            faults = find_faults(every)
            is_bad = tf.not_equal(faults, "")
            first = tf.argmax(tf.cast(is_bad, tf.uint8))
            check = tf.raw_ops.Assert(condition=tf.logical_not(self._stops(is_bad)), data=[
                _MARK, _readable(file_range.file), self._unit, locate(first), _readable(faults[first]), _END])
            with tf.control_dependencies([check]):
                counted = [] if self._num_skipped is None else [self._num_skipped.assign_add(
                    tf.reduce_sum(tf.cast(is_bad, tf.int64)), read_value=False)]
            with tf.control_dependencies([check, *counted]):
                return tf.boolean_mask(every, tf.logical_not(is_bad))

        chunk = tf.data.Dataset.from_tensors(records)
        whole = chunk.map(_traced(parse_all)).ignore_errors()
        sound = chunk.map(_traced(take_sound)).filter(_traced(lambda some: tf.size(some) > 0)).map(_traced(parse))
        # The second part runs only if the first yields no element, because its only one could not be parsed.
        return whole.concatenate(sound).take(1)

    def _stops(self, is_bad: tf.Tensor) -> tf.Tensor:
        """Returns whether a chunk with these malformed records, bool [n], ends training; counts those in a row."""
        if self._num_in_row is None:
            return tf.reduce_any(is_bad)
        num_bad = tf.size(is_bad, out_type=tf.int64)
        num_in_row = self._num_in_row.assign(
            tf.where(tf.reduce_all(is_bad), self._num_in_row.read_value() + num_bad, tf.zeros_like(num_bad)))
        return num_in_row >= MANY

    def explain(self, error: tf.errors.InvalidArgumentError, where: str) -> None:
        """Raises a DataError with the place and the fault if a malformed record has caused the error."""
        match = _MESSAGE.search(error.message)
        if match is None:
            return
        file, unit, position, fault = _unescape(match[1]), match[2], int(match[3]), _unescape(match[4])
        place = f"record {position}" if unit == "record" else _line_place(file, position)
        if self._num_skipped is not None:
            raise DataError("bad_record", f"{file}, {place}: {fault}; {MANY} {unit}s and more are malformed one after "
                            "another, which --on_bad_record=skip does not leave out; correct the file") from error
        raise DataError("bad_record", f"{file}, {place}: {fault}; correct it, or skip such {unit}s with "
                        "--on_bad_record=skip") from error

    def restart_count(self) -> None:
        """Begins to count from 0 again; eagerly only."""
        if self._num_skipped is not None:
            self._num_skipped.assign(0)

    def report(self, session: tf.Session | None, where: str) -> None:
        """Logs the number of skipped records; without a session, eagerly."""
        if self._num_skipped is None:
            return
        try:
            num = int(self._num_skipped.numpy() if session is None else session.run(
                self._num_skipped, options=tf.RunOptions(timeout_in_ms=_READ_MS)))
        except tf.errors.OpError:  # the session was lost, and the next one starts counting from 0
            return
        if num:
            _log.warning("%s: skipped %d malformed %s (--on_bad_record=skip)", where, num,
                         self._unit + "s" * (num > 1))


@contextlib.contextmanager
def noting() -> Iterator[list[BadRecords]]:
    """Yields a list that gets the readers made in its body: eagerly, there is no session that finds them."""
    noted: list[BadRecords] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def _counter(name: str) -> tf.Variable:
    """Returns a variable of this process, int64, that begins at zero."""
    return tf.Variable(tf.zeros([], tf.int64), name=name, trainable=False, use_resource=True,
                       collections=[tf.GraphKeys.LOCAL_VARIABLES])


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    # AutoGraph would write the function, which has no control flow to convert, to a temporary file.
    return tf.autograph.experimental.do_not_convert(function)


def _readable(text: tf.Tensor) -> tf.Tensor:
    """Returns a string without bytes that are not UTF-8: a session fails to decode an error that has them."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", replace_control_characters=True)


def _unescape(text: str) -> str:
    """Reverses the escapes that TensorFlow writes into a message."""
    return re.sub(r"\\(.)", r"\1", text)


def _line_place(file: str, position: int) -> str:
    """Returns "line N (byte B)"; "byte B" if counting lines would take long, or the file cannot be read."""
    if position <= _MOST_COUNTED_BYTES:
        try:
            return f"line {_count_lines(file, position) + 1} (byte {position})"
        except (OSError, tf.errors.OpError, PsTrainError):  # on the machine of a server that runs apart
            _log.debug("cannot count the lines of %s", file)
    return f"byte {position}"


def _count_lines(file: str, stop: int) -> int:
    """Returns the number of line breaks before a byte."""
    num_lines = 0
    with open_stream(file) if is_stream(file) else open_bytes(file) as opened:
        while stop > 0 and (piece := opened.read(min(stop, _PIECE_BYTES))):
            num_lines += piece.count(b"\n")
            stop -= len(piece)
    return num_lines
