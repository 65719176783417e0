"""Cuts files into ranges, the unit in which workers share the data of large files.

    file patterns --> files, sizes --plan_ranges--> [FileRange] --this worker's share--> tf.data.Dataset of FileRange

A text file is cut into ranges of about the same size. Each cut is moved to the next beginning of a line, so a line is
in the range in which it begins, and no range is empty; a byte order mark is in none. A file whose name ends in .parquet
is cut at its row groups in the same way. Any other file is one range: the records of a TFRecord file, and the lines of
one whose name ends in .gz or .zst, cannot be found without reading all of it. The first byte of such a range is one of
the decompressed text.

The plan depends on the files alone, so all workers make the same one, and the number of a range names it among them.
A part may set a `RangeSource` for a graph, from which its training then gets the ranges.
"""

from __future__ import annotations

import abc
import codecs
import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from concurrent import futures
from typing import IO, Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, DataError
from ps_train.graph.batches import InputSource, is_single_pass, source_of_graph
from ps_train.parts.readers.files import (
    NUM_THREADS,
    PARQUET,
    STREAM_NAMES,
    Files,
    find_files,
    is_growing,
    is_in_store,
    is_stream,
    open_bytes,
    open_stream,
    patterns_of,
    size_of,
)
from ps_train.parts.readers.parquet_files import row_group_cuts
from ps_train.plugins.contracts import TRAIN
from ps_train.runtime.compression import compression_of

# 16,000 examples of Criteo's lines. With fewer than _FEW_RANGES of that size, ranges are smaller: several workers
# can share a small file.
_MOST_BYTES = 4 << 20
_LEAST_BYTES = 4 << 10
_FEW_RANGES = 32
GROWING_BYTES = -1  # the size of a file in its ranges: it may grow while it is read
_LOOK_BYTES = 4 << 10  # bytes read at a time to find the end of a line
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FileRange(NamedTuple):
    """A part of a file; in a dataset, each field is a scalar tensor.

    Attributes:
      number: its index in the plan, int64.
      file: the path, string.
      start: the first byte, int64.
      stop: the byte after the last one, int64.
      file_bytes: the size of the file, int64; -1 if it may grow while it is read (--follow).
    """

    number: Any
    file: Any
    start: Any
    stop: Any
    file_bytes: Any


class LineRange(FileRange):
    """A range of `file_ranges(..., is_text=True)`: a file of records may have many, and none of them is all of it."""

    __slots__ = ()


class RangeSource(InputSource):
    """Where the ranges of files come from, in place of a share of this worker."""

    @abc.abstractmethod
    def ranges(
        self, plan: Callable[[], Sequence[Any]], patterns: Sequence[str], *, is_text: bool,
        cut: Callable[[str, int, int], Sequence[int]],
    ) -> tf.data.Dataset:
        """Returns a dataset of `FileRange`.

        Args:
          plan: returns all ranges of the files, as `FileRange`.
          patterns: find these files.
          is_text: whether a range begins where a line does.
          cut: returns the first bytes of the ranges of a file from a byte on, up to its size, and their end.
        """

    @abc.abstractmethod
    def note_end(self) -> tf.Operation:
        """Returns the operation that notes that all batches of the ranges that came in have been read."""


def file_ranges(
    files: Files, shard: tuple[int, int], mode: str, *, is_text: bool = True,
    has_header: bool = False, range_bytes: int | None = None, shuffle: bool = True, seed: int | None = None,
) -> tf.data.Dataset:
    """Returns this worker's share of the ranges of files: those whose number modulo the count is the index.

    If the graph has a `RangeSource`, such as that of --dynamic_sharding, it provides the ranges of a training.

    Args:
      files: pattern, or patterns, of file names; a `pathlib.Path` is one, too.
      shard: (index, count).
      mode: "train" repeats the ranges without end; any other mode yields them once, in order.
      is_text: whether the files have lines; if not, they are TFRecord or Parquet files.
      has_header: whether the first line of each file is a header, which is in no range.
      range_bytes: the size of a range of lines or row groups, or None for 4 MiB, and less if the files are small.
      shuffle: whether "train" has a new order in each epoch.
      seed: seed of that order; None for another order in each run.

    Returns:
      A dataset of `FileRange`, of its subclass `LineRange` if `is_text`.

    Raises:
      DataError: a file does not exist, all are empty, or there are fewer ranges than workers that train.
      ConfigError: `range_bytes` is below 1.
    """
    if range_bytes is not None and range_bytes < 1:
        raise ConfigError("parameter_out_of_range", f"file_ranges: range_bytes is {range_bytes}; allowed: 1 or more")
    form = {"is_text": is_text, "has_header": has_header, "range_bytes": range_bytes}
    ranges = _share(patterns_of(files), shard, mode, form, shuffle=shuffle, seed=seed)
    return ranges.map(tf.autograph.experimental.do_not_convert(lambda part: LineRange(*part))) if is_text else ranges


def _share(
    patterns: list[str], shard: tuple[int, int], mode: str, form: Mapping[str, Any], *, shuffle: bool, seed: int | None,
) -> tf.data.Dataset:
    """Returns a dataset of `FileRange`; `form` has the arguments of `plan_ranges`."""
    is_endless = mode == TRAIN and not is_single_pass()
    if is_endless and (source := source_of_graph()) is not None:
        return source.ranges(lambda: plan_ranges(patterns, **form), patterns,
                             is_text=form["is_text"], cut=functools.partial(cuts_of_growth, **form))
    plan = plan_ranges(patterns, **form)
    index, count = shard
    if mode == TRAIN and count > len(plan):  # a share of an evaluation may be empty
        raise DataError("too_few_ranges", f"{plan[0].file}{' and others' if len(plan) > 1 else ''}: {len(plan)} "
                        f"ranges for {count} workers, and each needs one; use fewer workers, or "
                        f"{'smaller ranges' if form['is_text'] else 'more files'}")
    numbers = tf.data.Dataset.range(index, len(plan), count)
    if is_endless and shuffle:
        numbers = numbers.shuffle(len(range(index, len(plan), count)), seed=None if seed is None else seed + index)
    return ranges_of_numbers(numbers.repeat() if is_endless else numbers, plan)


def ranges_of_numbers(numbers: tf.data.Dataset, plan: Sequence[FileRange]) -> tf.data.Dataset:
    """Returns a dataset of `FileRange` for a dataset of numbers in the plan, int64 scalars."""
    names = list(dict.fromkeys(file_range.file for file_range in plan))
    file_numbers = {name: number for number, name in enumerate(names)}
    table = np.array([[file_numbers[file], start, stop, file_bytes] for _, file, start, stop, file_bytes in plan],
                     np.int64)

    @tf.autograph.experimental.do_not_convert
    def look_up(number: tf.Tensor) -> FileRange:
        file, start, stop, file_bytes = tf.unstack(tf.gather(table, number))
        return FileRange(number, tf.gather(names, file), start, stop, file_bytes)

    return numbers.map(look_up)


def plan_ranges(
    files: Files, *, is_text: bool = True, has_header: bool = False, range_bytes: int | None = None,
) -> list[FileRange]:
    """Returns all ranges of the files, in the order of the file names.

    Args:
      files, is_text, has_header, range_bytes: as for `file_ranges`.

    Raises:
      DataError: a file does not exist, all are empty, or a text file is compressed.
    """
    names = find_files(files)
    with futures.ThreadPoolExecutor(NUM_THREADS) as pool:
        sizes = tuple(zip(names, pool.map(size_of, names)))
    total = sum(size for _, size in sizes)
    if range_bytes is None:
        range_bytes = min(_MOST_BYTES, max(_LEAST_BYTES, total // _FEW_RANGES))
    needs_lines = is_text or has_header
    if is_growing():
        plan = _numbered((name, start, stop, GROWING_BYTES) for name, size in sizes for start, stop in _pairs(
            cuts_of_growth(name, 0, size, is_text=is_text, has_header=has_header, range_bytes=range_bytes)))
    elif needs_lines:
        plan = _plan(sizes, range_bytes if is_text else max(1, total), has_header)
    else:
        plan = _without_lines(sizes, range_bytes)
    if not plan:
        raise DataError("input_file_empty", f"{sizes[0][0]}{' and the other files are' if len(sizes) > 1 else ' is'} "
                        "empty")
    return list(plan)


@functools.lru_cache(maxsize=8)  # a chief makes the same plan for several graphs
def _plan(sizes: tuple[tuple[str, int], ...], range_bytes: int, has_header: bool) -> tuple[FileRange, ...]:
    with futures.ThreadPoolExecutor(NUM_THREADS) as pool:
        cuts_by_file = pool.map(lambda file: _cuts(*file, range_bytes, has_header), sizes)
        return _numbered((name, start, stop, size) for (name, size), cuts in zip(sizes, cuts_by_file)
                         for start, stop in _pairs(cuts))


@functools.lru_cache(maxsize=8)
def _without_lines(sizes: tuple[tuple[str, int], ...], range_bytes: int) -> tuple[FileRange, ...]:
    with futures.ThreadPoolExecutor(NUM_THREADS) as pool:
        cuts_by_file = pool.map(lambda file: _cuts_without_lines(*file, range_bytes), sizes)
        return _numbered((name, start, stop, size) for (name, size), cuts in zip(sizes, cuts_by_file)
                         for start, stop in _pairs(cuts))


def _cuts_without_lines(name: str, size: int, range_bytes: int) -> list[int]:
    """Returns what `_cuts` does for a file without lines."""
    if not _has_content(name, size):
        return []
    return row_group_cuts(name, size, range_bytes) if name.endswith(PARQUET) else [0, size]


def _has_content(name: str, size: int) -> bool:
    if not size or not is_stream(name):
        return bool(size)
    with open_stream(name) as file:  # one of nothing has 20 bytes
        return bool(file.read(1))


def _pairs(cuts: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Returns the ranges between cuts."""
    return zip(cuts, cuts[1:])


def _numbered(parts: Iterable[tuple[str, int, int, int]]) -> tuple[FileRange, ...]:
    return tuple(FileRange(number, *part) for number, part in enumerate(parts))


def _cuts(name: str, size: int, range_bytes: int, has_header: bool) -> list[int]:
    """Returns the first bytes of the ranges of a file, and its end: [0, ..., size]; less than two without ranges."""
    if is_stream(name):
        return _cuts_of_stream(name, size, has_header)
    num_ranges = -(-size // range_bytes)
    with open_bytes(name, size) as file:
        start = file.read(_LOOK_BYTES)
        refuse_unreadable(name, start)
        first = _next_line(file, 1) if has_header else _mark_bytes(start)
    positions = [size * part // num_ranges for part in range(1, num_ranges)]
    with contextlib.ExitStack() as stack:
        if is_in_store(name):  # each request takes long
            pool = stack.enter_context(futures.ThreadPoolExecutor(NUM_THREADS))
            places = list(pool.map(lambda position: _next_line(open_bytes(name, size), position), positions))
        else:
            file = stack.enter_context(open_bytes(name))
            places = [_next_line(file, position) for position in positions]
    return sorted(cut for cut in {first, size, *places} if cut >= first)


def _cuts_of_stream(name: str, size: int, has_header: bool) -> list[int]:
    """Returns what `_cuts` does: [first byte of the decompressed text, end], or [] if there is no text."""
    with open_stream(name) as file:  # cannot seek
        start = file.read(_LOOK_BYTES)
        refuse_unreadable(name, start)
        first = _mark_bytes(start)
        if has_header:
            first = start.find(b"\n") + 1 or len(start) + len(file.readline())
        has_text = bool(start[first:] or file.read(1))
    return [first, max(size, first + 1)] if has_text else []  # the decompressed text may be longer than the file


def cuts_of_growth(
    name: str, start: int, size: int, *, is_text: bool, has_header: bool, range_bytes: int | None,
) -> list[int]:
    """Returns what `_cuts` does, for the whole lines of a file that begin at a byte or after it; [] if there are none.

    A file without lines, or whose name ends in .gz or .zst, is there as a whole.

    Raises:
      DataError: it is compressed, or such a file has grown.
    """
    if not is_text or is_stream(name):
        if size > start > 0:
            raise DataError("input_file_changed", f"{name}: got {size} bytes, expected {start}, as when it was found: "
                            "only files of lines may grow; write what is new to another file")
        if start:
            return []
        if not is_text:
            return _cuts_without_lines(name, size, range_bytes or _MOST_BYTES)
        return _cuts_of_stream(name, size, has_header) if _has_content(name, size) else []
    with open_bytes(name, size) as file:
        if not start:
            head = file.read(_LOOK_BYTES)
            refuse_unreadable(name, head)
            start = _next_line(file, 1) if has_header else _mark_bytes(head)
        else:
            start = _next_line(file, start)  # that byte, unless the file was written anew
        stop = _end_of_lines(file, start, size)
        num_ranges = -(-(stop - start) // (range_bytes or _MOST_BYTES))
        places = [_next_line(file, start + (stop - start) * part // num_ranges) for part in range(1, num_ranges)]
    return sorted({start, stop, *places}) if stop > start else []


def _end_of_lines(file: IO[bytes], start: int, size: int) -> int:
    """Returns the byte after the last line end before `size`; `start` if there is none behind it."""
    while size > start:
        first = max(start, size - _LOOK_BYTES)
        file.seek(first)
        end = file.read(size - first).rfind(b"\n")
        if end >= 0:
            return first + end + 1
        size = first
    return start


def _mark_bytes(start: bytes) -> int:
    return len(_BYTE_ORDER_MARK) if start.startswith(_BYTE_ORDER_MARK) else 0


def refuse_unreadable(name: str, start: bytes) -> None:
    """Raises DataError if a text file that begins like this, where gzip was undone, is compressed or UTF-16."""
    if encoding := utf_16_of(start):
        raise DataError("input_file_not_utf8", f"{name} is UTF-16 text, whose lines cannot be found; convert it to "
                        f"UTF-8, as with iconv -f {encoding} -t UTF-8")
    if kind := compression_of(start):
        own_name = STREAM_NAMES.get(kind)
        advice = f"decompress it first, or let its name end in {own_name}" if own_name else "decompress it first"
        raise DataError("input_file_compressed", f"{name} is compressed ({kind}), and ranges of it cannot be read; "
                        f"{advice}")


def utf_16_of(start: bytes) -> str | None:
    """Returns which UTF-16 a text that begins like this is in, by its name for iconv; None if it is in none.

    Without a byte order mark, every second byte of ASCII, such as digits and commas, is NUL. With line ends among them,
    one character of eight is enough, as in Chinese text; without, it takes most. Few characters end in NUL.
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    for name, high, low in (("UTF-16LE", start[1::2], start[::2]), ("UTF-16BE", start[::2], start[1::2])):
        at_ends = [high_byte for high_byte, low_byte in zip(high, low) if low_byte == ord("\n")]  # U+4E0A has it, too
        fewest = max(1, at_ends.count(0), len(high) // (8 if 2 * at_ends.count(0) > len(at_ends) else 2))
        if high.count(0) > fewest and b"\n" not in high and 8 * low.count(0) < high.count(0):
            return name
    return None


def _next_line(file: IO[bytes], position: int) -> int:
    """Returns the first byte of the first line at or after `position`; the end of the file if none begins."""
    position -= 1  # a line begins at `position` itself if the byte before it ends one
    file.seek(position)
    while piece := file.read(_LOOK_BYTES):
        end = piece.find(b"\n")
        if end >= 0:
            return position + end + 1
        position += len(piece)
    return position
