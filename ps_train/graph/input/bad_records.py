"""What happens to records that cannot be parsed: training stops with the place of the first, or they are left out.

    records --parse all at once--> chunk                                                          none is malformed
       |---- (fails) --> find the malformed ones --stop--> an error with file, place and fault
                                                 --skip--> count them, parse the others --> chunk

Only a chunk that cannot be parsed is looked through, so the check costs nothing as long as the data is sound.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, DataError
from ps_train.graph.input.file_ranges import FileRange, open_bytes

STOP, SKIP = "stop", "skip"
_MARK, _END = "ps_train bad record", "end of bad record"
_MESSAGE = re.compile(rf"\[{_MARK}\] \[(.*?)\] \[(line|record)\] \[(\d+)\] \[(.*?)\] \[{_END}\]", re.DOTALL)
_COUNTERS = "ps_train_bad_records"
_MOST_COUNTED_BYTES = 1 << 30  # of a file whose lines are counted to name one
_PIECE_BYTES = 1 << 20
_READ_MS = 10_000
_log = logging.getLogger(__name__)


class BadRecords:
    """Parses chunks of records, and does what --on_bad_record says about malformed ones."""

    def __init__(self, on_bad_record: str, unit: str) -> None:
        """Adds the counter of records left out to the current graph.

        Args:
          on_bad_record: "stop" or "skip".
          unit: "line" or "record"; positions are in bytes, or in records.

        Raises:
          ConfigError: on_bad_record has another value.
        """
        if on_bad_record not in (STOP, SKIP):
            raise ConfigError(f"on_bad_record: got {on_bad_record!r}; allowed: {STOP}, {SKIP}")
        self._unit = unit
        self._num_skipped = None
        if on_bad_record == SKIP:
            self._num_skipped = tf.Variable(
                tf.zeros([], tf.int64), name="num_bad_records", trainable=False, use_resource=True,
                collections=[tf.GraphKeys.LOCAL_VARIABLES, _COUNTERS])

    def parsed(
        self, records: tf.Tensor, parse: Callable[[tf.Tensor], Any], find_faults: Callable[[tf.Tensor], tf.Tensor],
        file_range: FileRange, locate: Callable[[tf.Tensor], tf.Tensor],
    ) -> tf.data.Dataset:
        """Returns a dataset of one element, what `parse` makes of the sound records.

        Args:
          records: string [n].
          parse: returns a structure of tensors [n, ...] for strings [n]; fails if one is malformed.
          find_faults: returns string [n], what is wrong with each record, "" for a sound one.
          file_range: where the records come from.
          locate: returns the position in the file of the record with an index, int64.
        """
        @tf.autograph.experimental.do_not_convert
        def parse_sound(every: tf.Tensor) -> Any:
            faults = find_faults(every)
            is_bad = tf.not_equal(faults, "")
            first = tf.argmax(tf.cast(is_bad, tf.uint8))
            too_many = tf.reduce_all(is_bad) if self._num_skipped is not None else tf.reduce_any(is_bad)
            check = tf.raw_ops.Assert(condition=tf.logical_not(too_many), data=[
                _MARK, _readable(file_range.file), self._unit, locate(first), _readable(faults[first]), _END])
            with tf.control_dependencies([check]):
                counted = [] if self._num_skipped is None else [self._num_skipped.assign_add(
                    tf.reduce_sum(tf.cast(is_bad, tf.int64)), read_value=False)]
            with tf.control_dependencies([check, *counted]):
                return parse(tf.boolean_mask(every, tf.logical_not(is_bad)))

        chunk = tf.data.Dataset.from_tensors(records)
        whole = chunk.map(tf.autograph.experimental.do_not_convert(parse))
        # The second part is run only if the first gives no element, because its only one could not be parsed.
        return whole.apply(tf.data.experimental.ignore_errors()).concatenate(chunk.map(parse_sound)).take(1)


def _readable(text: tf.Tensor) -> tf.Tensor:
    """Returns a string without what is not UTF-8: Session fails to decode an error with such bytes."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", replace_control_characters=True)


def counters(graph: tf.Graph) -> list[tf.Variable]:
    """Returns the counters of the graph's input, which must be initialised with it: int64 scalars."""
    return graph.get_collection(_COUNTERS)


def report_skipped(session: tf.Session, what: str) -> None:
    """Logs how many malformed records the input of the session's graph left out; `what` says who read them."""
    options = tf.RunOptions(timeout_in_ms=_READ_MS)
    try:
        num = sum(int(session.run(counter, options=options)) for counter in counters(session.graph))
    except tf.errors.OpError:  # the session was lost, and the next one begins to count anew
        return
    if num:
        _log.warning("%s: %d malformed %s left out (--on_bad_record=skip)", what, num,
                     "record was" if num == 1 else "records were")


def raise_if_bad(error: tf.errors.OpError) -> None:
    """Raises a DataError with the place and the fault, if a malformed record is the cause of the error."""
    match = _MESSAGE.search(error.message)
    if match is None:
        return
    file, unit, position, fault = _unescape(match[1]), match[2], int(match[3]), _unescape(match[4])
    place = f"record {position}" if unit == "record" else _line_place(file, position)
    raise DataError(f"{file}, {place}: {fault}; mend it, or leave such {unit}s out with "
                    "--on_bad_record=skip") from error


def _unescape(text: str) -> str:
    """Returns a string as it was before TensorFlow wrote it into a message."""
    return re.sub(r"\\(.)", r"\1", text)


def _line_place(file: str, position: int) -> str:
    """Returns "line N (byte B)"; without the line if it would take long to count, or the file cannot be read."""
    if position <= _MOST_COUNTED_BYTES:
        try:
            return f"line {_count_lines(file, position) + 1} (byte {position})"
        except (OSError, tf.errors.OpError):  # on the machine of a server that runs apart
            _log.debug("cannot count the lines of %s", file)
    return f"byte {position}"


def _count_lines(file: str, stop: int) -> int:
    """Returns the number of line breaks before a byte."""
    found = 0
    with open_bytes(file) as opened:
        while stop > 0 and (piece := opened.read(min(stop, _PIECE_BYTES))):
            found += piece.count(b"\n")
            stop -= len(piece)
    return found
