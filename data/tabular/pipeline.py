"""input_fn and prepare of datasets whose examples are in files.

    train_files, eval_files --> ranges, this worker's share --> chunks, parsed and shuffled --> batches
"""

from __future__ import annotations

import codecs
import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any, Callable

import tensorflow.compat.v1 as tf

import ps_train
from ps_train.errors import ConfigError, DataError
from ps_train.parts.readers.file_ranges import refuse_unreadable
from ps_train.parts.readers.file_texts import records_of
from ps_train.parts.readers.files import find_files, is_growing, is_stream, open_bytes, open_stream
from ps_train.runtime.compression import compression_of

from .columns import LineForm, column_names

# The parameters of every dataset of this kind.
DEFAULT_PARAMS: dict[str, Any] = {
    "train_files": "train*",  # pattern of file names; not absolute, it starts in --data_dir
    "eval_files": "eval*",  # the same, for "eval" and "infer"
    "hash_buckets": 0,  # ids are in [0, hash_buckets); 0: in [0, 2^63)
    "shuffle": True,  # whether training has the ranges, and the examples of a range, in random order
}

EVAL_BATCH_SIZE = 2048
_CHECKED_BYTES = 16 << 10  # of each file, by `prepare`
_MANY = 10  # lines or records of a file; if all are malformed, --on_bad_record=skip does not help
_NUM_THREADS = 16


def file_dataset(
    reader: Any, mode: str, params: Mapping[str, Any], shard: tuple[int, int], *, is_text: bool = True,
    has_header: bool = False,
) -> tf.data.Dataset:
    """Implements input_fn for a reader of ranges.

    Args:
      reader: a `LineReader`, `RecordReader` or `ParquetReader` whose chunks are (features, labels).
      mode: "train" returns this worker's training examples without end; any other mode the examples of its share of
        the eval files, once, in order, with a shorter last batch if necessary.
      params: those above, and `batch_size` and `seed`.
      shard: (index, count), this worker's share.
      is_text: whether the files have lines.
      has_header: whether the first line of each file is to be left out.

    Raises:
      DataError: there are no such files, or fewer ranges than workers.
    """
    training = mode == ps_train.TRAIN
    shuffle = training and params["shuffle"]
    ranges = ps_train.file_ranges(
        pattern(params, training), shard, mode, is_text=is_text, has_header=has_header, shuffle=shuffle,
        seed=params["seed"])
    return ps_train.range_batches(
        ranges, reader.read, params["batch_size"] if training else EVAL_BATCH_SIZE, shuffle=shuffle,
        seed=params["seed"])


def pattern(params: Mapping[str, Any], training: bool) -> str:
    """Returns the pattern of the files for training, or of those for evaluation."""
    return os.path.join(params["data_dir"], params["train_files" if training else "eval_files"])


def schema_path(params: Mapping[str, Any]) -> str:
    """Returns the path of the file that the parameter `schema` names."""
    return os.path.join(params["data_dir"], params["schema"])


def columns_in_order(table: tf.Tensor, order: Sequence[int]) -> tf.Tensor:
    """Returns columns of a table [n, columns] in another order."""
    return table if list(order) == list(range(table.shape[1])) else tf.gather(table, list(order), axis=1)


def check_hash_buckets(params: Mapping[str, Any]) -> None:
    """Raises ConfigError if hash_buckets is negative."""
    if params["hash_buckets"] < 0:
        raise ConfigError("parameter_out_of_range", f"--params: hash_buckets={params['hash_buckets']}; allowed: 0 for "
                          "ids of 63 bits, or the number of ids")


def check_text_files(
    form: LineForm, params: Mapping[str, Any], *, has_header: bool = False, names_columns: bool = False
) -> None:
    """Checks that the files of both splits are there, and that their first lines have the right form.

    With --on_bad_record=skip a file may have malformed lines among them, but not malformed ones only, if it has many.

    Args:
      has_header: whether the first line of each file is to be left out.
      names_columns: whether that line must name the columns of `form`, in their order.

    Raises:
      DataError: the file, the line, and what was expected.
      ConfigError: a parameter is out of bounds.
    """
    check_hash_buckets(params)
    names = [name for training in (True, False) for name in find_files(pattern(params, training))]
    with futures.ThreadPoolExecutor(_NUM_THREADS) as pool:
        lines_by_file = list(pool.map(functools.partial(first_lines, may_grow=is_growing()), names))
    if names_columns:
        _check_headers(form, names, lines_by_file)
    lines_by_file = [lines[int(has_header):] for lines in lines_by_file]
    if not any(lines_by_file):
        raise DataError("input_file_empty", f"{names[0]}{' and the other files are' if len(names) > 1 else ' is'} "
                        "empty")
    faults = iter(_run(lambda: form.find_faults(tf.constant([*itertools.chain(*lines_by_file)], tf.string))))
    for name, lines in zip(names, lines_by_file):
        faults_of_file = list(itertools.islice(faults, len(lines)))
        if _skips(params) and (not all(faults_of_file) or len(lines) < _MANY):
            continue
        for number, fault in enumerate(faults_of_file, 1 + has_header):
            if fault:
                raise DataError("bad_record", f"{name}, line {number}: {fault.decode(errors='replace')}")


def _check_headers(form: LineForm, names: Sequence[str], lines_by_file: Sequence[Sequence[bytes]]) -> None:
    """Raises DataError if the first line of a file names other columns, or in another order."""
    expected = [column.name for column in form.columns]
    for name, lines in zip(names, lines_by_file):
        header = column_names(lines[0].decode(errors="replace"), form.delimiter) if lines else expected
        for number, (found, wanted) in enumerate(itertools.zip_longest(header, expected, fillvalue=""), 1):
            if found != wanted:
                raise DataError("header_differs", f"{name}, line 1: column {number} is {found!r}; expected {wanted!r}, "
                                f"as in {names[0]}: all files need the same columns in the same order")


def _skips(params: Mapping[str, Any]) -> bool:
    return params["on_bad_record"] == "skip"


def first_lines(name: str, *, may_grow: bool) -> list[bytes]:
    """Returns the first lines of a file, some kilobytes of them, without line breaks and byte order mark.

    Args:
      may_grow: whether a last line without a line end is none: what `is_growing` returns in the thread of the task.

    Raises:
      DataError: the file is compressed, or cannot be read.
    """
    try:
        with open_stream(name) if is_stream(name) else open_bytes(name) as file:
            start = file.read(_CHECKED_BYTES)
            while start and b"\n" not in start[-_CHECKED_BYTES:] and (more := file.read(_CHECKED_BYTES)):
                start += more
    except (OSError, tf.errors.OpError) as error:
        raise DataError("input_file_unreadable", f"{name}: {getattr(error, 'strerror', None) or error}") from error
    refuse_unreadable(name, start)
    lines = start.removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not lines[-1] or len(start) >= _CHECKED_BYTES or may_grow:
        lines = lines[:-1]  # it may be incomplete
    return [line.removesuffix(b"\r") for line in lines]


def _run(make: Callable[[], tf.Tensor]) -> Sequence[Any]:
    """Returns the value of a tensor, computed in a separate graph."""
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        return session.run(make())


def check_record_files(parse: Callable[[tf.Tensor], Any], expected: str, params: Mapping[str, Any]) -> None:
    """Checks that the TFRecord files of both splits are there, and that the first record of each can be parsed.

    With --on_bad_record=skip, that one of the first records can be parsed, if there are many.

    Raises:
      DataError: the file, and what was expected.
      ConfigError: a parameter is out of bounds.
    """
    check_hash_buckets(params)
    num_checked = _MANY if _skips(params) else 1
    for name in [name for training in (True, False) for name in find_files(pattern(params, training))]:
        records = _first_records(name, num_checked, expected)
        if len(records) == num_checked and not any(_can_be_parsed(parse, record) for record in records):
            raise DataError("bad_record", f"{name}, record 0: not {expected}")


def _first_records(name: str, num: int, expected: str) -> list[bytes]:
    """Returns the first records of a file, which may have fewer.

    Raises:
      DataError: it is no TFRecord file, or is damaged.
    """
    found: list[bytes] = []
    try:
        for record in itertools.islice(records_of(name), num):
            found.append(record)  # those before a damaged one stay
    except DataError as error:
        if error.code != "bad_record_file" or found:
            raise
        with open_bytes(name) as file:
            kind = compression_of(file.read(_CHECKED_BYTES))
        problem = f"is compressed ({kind}); decompress it first" if kind else "is no TFRecord file"
        raise DataError("bad_record_file", f"{name} {problem}; expected records that are {expected}") from None
    return found


def _can_be_parsed(parse: Callable[[tf.Tensor], Any], record: bytes) -> bool:
    try:
        _run(lambda: tf.group(*tf.nest.flatten(parse(tf.constant([record])))))
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # of a message that has the record
        return False
    return True
