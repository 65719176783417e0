"""Where the features to predict from come from: the dataset in mode "infer", or a file.

    dataset      mini-batches as input_fn makes them
    FILE.npz     an array for each feature                               } batches of --batch_size
    FILE.csv     columns                                                 }

Process `index` of `count` takes the batches whose number modulo `count` is `index`. In a CSV file:

    inputs {"age": int64 [n], "pixels": float32 [n, 3]}      age,pixels_0,pixels_1,pixels_2
    one input float32 [n, 784]                               any 784 columns in their order; the header may be left out

One input of numbers may have any header: a line without a number in it, or pandas' 0,1,2,...
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import logging
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.coordination import sessions
from ps_train.errors import ConfigError, DataError
from ps_train.graph import extensions
from ps_train.graph.batches import Batches, input_feed
from ps_train.graph.plugin_calls import Queues
from ps_train.parts.inference.predictor import Batch, InputColumn
from ps_train.parts.inference.request_inputs import named
from ps_train.parts.readers.file_ranges import utf_16_of
from ps_train.plugins.contracts import PREDICT, Dataset
from ps_train.runtime.compression import compression_of

_log = logging.getLogger(__name__)
_MAX_LISTED = 12
_LOOK_BYTES = 4 << 10  # of a file, to recognise one that is no text in UTF-8
_MOST_CELL_CHARS = 1 << 26  # Python's own limit, 2^17, is less than a long text
# The errors of numpy's reader; RuntimeError is that of a file with a password, or packed in an unknown way.
_UNREADABLE = (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
_BOOLS = {"0": 0, "1": 1, "false": 0, "true": 1}


def dataset_batches(
    dataset: Dataset, params: Mapping[str, Any], inputs: Mapping[str, InputColumn], share: tuple[int, int]
) -> Iterator[Batch]:
    """Yields the features of the dataset in mode "infer", in order.

    Args:
      inputs: the model's inputs by name.

    Raises:
      ConfigError: the dataset lacks an input of a SavedModel, or the examples do not end.
      DataError: a record is malformed.
    """
    index, count = share
    with tf.Graph().as_default() as graph:
        batches = Batches(dataset, PREDICT, params, (0, 1), needs_labels=False)
        features = named(batches.next()[0])
        if missing := [name for name in inputs if name not in features]:
            raise ConfigError("features_missing",
                              f"--saved_model: it takes {describe_inputs(inputs)}, and {dataset.name} has "
                              f"{', '.join(features)}; give --input=FILE with {', '.join(missing)}")
        cardinality, running = batches.cardinality(), Queues(sessions.is_lost)
        skipped = [feature.op for feature in tf.nest.flatten(features, expand_composites=True)]
        with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
            session.run([batches.initializer, tf.local_variables_initializer(), tf.tables_initializer()],
                        feed_dict=input_feed(graph))
            if session.run(cardinality, feed_dict=input_feed(graph)) == tf.data.experimental.INFINITE_CARDINALITY:
                raise ConfigError("examples_repeat",
                                  f"{dataset.name}.input_fn: the examples of mode {PREDICT!r} repeat without end; let "
                                  "input_fn repeat only in mode 'train'")
            with running.running(session):
                yield from _run_through(session, features, skipped, index, count)
            extensions.report_counts(session, "prediction")


def _run_through(session: tf.Session, features: Any, skipped: Any, index: int, count: int) -> Iterator[Batch]:
    number = 0
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            try:
                features_of_batch = session.run(features if number % count == index else skipped)
            except tf.errors.InvalidArgumentError as error:
                extensions.explain_error(session.graph, error, "prediction")
                raise
            if number % count == index:
                yield features_of_batch
            number += 1


def file_batches(
    path: str, inputs: Mapping[str, InputColumn], batch_size: int, share: tuple[int, int]
) -> Iterator[Batch]:
    """Yields the features in a file, in order.

    Args:
      inputs: the model's inputs by name.

    Raises:
      DataError: the file is missing or damaged, or a column is missing or has another form; the error says which.
    """
    if not os.path.exists(path):
        raise DataError("input_file_missing", f"--input: file {path!r} does not exist")
    sparse = [name for name, column in inputs.items() if column.is_sparse]
    if sparse:
        raise DataError("sparse_input", f"--input: the model takes sparse {', '.join(sparse)}, which no file has; "
                        "predict from the dataset")
    if path.endswith(".csv"):
        several = [name for name, column in inputs.items() if column.shape and list(column.shape).count(None) > 1]
        if several:
            raise DataError("csv_shape_open", f"--input: the model takes {describe_inputs(inputs)}, and a line of a "
                            f"CSV does not say how long each of several open sides of {several[0]} is; predict from "
                            "the dataset or a FILE.npz")
        yield from csv_batches(path, inputs, batch_size, share)
        return
    arrays = read_arrays(path, inputs, is_first=share[0] == 0)
    num_examples = len(next(iter(arrays.values())))
    for begin in range(share[0] * batch_size, num_examples, share[1] * batch_size):
        yield {name: array[begin:begin + batch_size] for name, array in arrays.items()}


def read_arrays(path: str, inputs: Mapping[str, InputColumn], is_first: bool = True) -> dict[str, np.ndarray]:
    """Returns name -> array [n, ...] of an npz file; a single input takes the only array, under any name.

    Args:
      is_first: whether this is the first process that reads the file, which logs for all of them.

    Raises:
      DataError: an array is missing, or has another shape, type or length; the error says which.
    """
    arrays_in_file = _arrays_in(path)
    if len(inputs) == len(arrays_in_file) == 1:
        [wanted], [name] = inputs, arrays_in_file
        if name != wanted and is_first:
            _log.info("--input: %s has no array %r; its only array, %r, is used", path, wanted, name)
        arrays_in_file = {wanted: arrays_in_file[name]}
    missing = [name for name in inputs if name not in arrays_in_file]
    if missing:
        raise DataError("input_array_missing", f"--input: {path} has no array {missing[0]!r}; it has "
                        f"{', '.join(arrays_in_file) or 'none'}, and the model takes {describe_inputs(inputs)}")
    arrays = {name: _checked(path, name, arrays_in_file[name], column) for name, column in inputs.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError("input_lengths_differ", f"--input: {path}: the arrays differ in their number of examples: "
                        f"{', '.join(f'{name} {length}' for name, length in lengths.items())}")
    return arrays


def _arrays_in(path: str) -> dict[str, np.ndarray]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):  # numpy does not look at the ending
            raise DataError("input_file_unreadable", f"--input: {path} has one array without a name, as np.save writes "
                            "it; write it with np.savez")
        with loaded as file:
            arrays = {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        raise DataError("input_file_unreadable", f"--input: cannot read {path}: {error}") from None
    return {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}  # not other files in it


def describe_inputs(inputs: Mapping[str, InputColumn]) -> str:
    """Returns the model's inputs, in words."""
    return ", ".join(f"{name} {column}" for name, column in inputs.items())


def _checked(path: str, name: str, array: np.ndarray, column: InputColumn) -> np.ndarray:
    has_shape = array.ndim > 0 if column.shape is None else array.ndim == 1 + len(column.shape) and all(
        size in (None, actual_size) for size, actual_size in zip(column.shape, array.shape[1:]))
    is_text, dtype = array.dtype.kind in "US", np.dtype(column.dtype.as_numpy_dtype)
    if column.dtype == tf.string:
        has_type = is_text
    else:  # whole numbers become fractions, but no fraction or imaginary part is cut off
        has_type = array.dtype.kind in "iub" or array.dtype.kind == "f" and dtype.kind not in "iub" or (
            array.dtype.kind == dtype.kind == "c")
    if not has_shape or not has_type:
        raise DataError("input_array_mismatch", f"--input: {path}: {name} is {array.dtype} {list(array.shape)}; the "
                        f"model takes {column}")
    if column.dtype == tf.string:
        return array
    if dtype.kind in "iub" and array.size:
        lowest, highest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        for value in (int(array.min()), int(array.max())):
            if not lowest <= value <= highest:  # numpy would take its lowest bits
                raise DataError("input_number_too_large", f"--input: {path}: {name} has {value}; the model takes "
                                f"{column}, from {lowest} to {highest}")
    with np.errstate(over="ignore"):
        values = array.astype(dtype)
    if dtype.kind not in "iub" and (is_lost := np.isinf(values) & ~np.isinf(array)).any():
        raise DataError("input_number_too_large", f"--input: {path}: {name} has {array[is_lost][0]}, which is infinite "
                        f"as {column.dtype.name}; the model takes {column}")
    return values


def csv_batches(
    path: str, inputs: Mapping[str, InputColumn], batch_size: int, share: tuple[int, int]
) -> Iterator[Batch]:
    """Yields the batches of a share; see `file_batches`.

    Raises:
      DataError: a column is missing or there twice, or a cell is wrong; the error names file, line and column.
    """
    with open(path, "rb") as file:
        start = file.read(_LOOK_BYTES)
    if kind := compression_of(start):
        raise DataError("input_file_compressed", f"--input: {path} is compressed ({kind}); decompress it first")
    if encoding := utf_16_of(start):
        raise DataError("input_file_not_utf8", f"--input: {path} is UTF-16 text; convert it to UTF-8, as with iconv "
                        f"-f {encoding} -t UTF-8")
    index, count = share
    with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:  # Excel begins with a BOM
        rows = _rows(path, file)
        first = next(rows, None)
        if first is None:
            raise DataError("input_file_empty", f"--input: {path} is empty")
        columns, has_header = _find_columns(path, first[1], inputs)
        _check_counts(path, columns, inputs)
        rows = rows if has_header else itertools.chain([first], rows)
        for number in itertools.count():
            chunk = list(itertools.islice(rows, batch_size))
            if not chunk:
                return
            if number % count == index:
                yield {name: _values(path, chunk, columns[name], column, first[1]) for name, column in inputs.items()}


def _rows(path: str, file: IO[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields each row with the number of the line in which it begins: a cell in quotes may have line breaks."""
    csv.field_size_limit(max(_MOST_CELL_CHARS, csv.field_size_limit()))
    rows, line = csv.reader(file), 1
    try:
        for row in rows:
            yield line, row
            line = rows.line_num + 1
    except csv.Error as error:
        raise DataError("input_file_unreadable", f"--input: {path}, line {line}: {error}") from None


def _find_columns(
    path: str, first: Sequence[str], inputs: Mapping[str, InputColumn]
) -> tuple[dict[str, list[int]], bool]:
    """Returns name of an input -> the indices of its columns, and whether the first line is a header."""
    cells = [cell.strip() for cell in first]
    by_name = {name: index for index, name in enumerate(cells)}
    names = {name: _column_names(name, column, by_name) for name, column in inputs.items()}
    wanted = [column for columns in names.values() for column in columns]
    missing = [column for column in wanted if column not in by_name]
    if not missing:
        if repeated := [column for column in wanted if cells.count(column) > 1]:
            raise DataError("csv_column_repeated", f"--input: {path} has {cells.count(repeated[0])} columns "
                            f"{repeated[0]!r}; name each column that the model takes once")
        if unused := by_name.keys() - {*wanted}:
            _log.info("%s: columns that the model does not take: %s", path, _listed(sorted(unused)))
        return {name: [by_name[column] for column in columns] for name, columns in names.items()}, True
    if len(inputs) == 1:
        [(name, column)] = inputs.items()
        has_header = _is_header(path, cells, column, wanted)
        size = len(first) if column.shape is None or None in column.shape else math.prod(column.shape)
        if size != len(first):
            raise DataError("csv_column_count", f"--input: {path} has {len(first)} columns; the model takes {size} for "
                            f"{name} {column}")
        return {name: list(range(size))}, has_header
    if by_name.keys().isdisjoint(wanted) and any(map(_is_number, cells)):
        raise DataError("csv_header_missing", f"--input: {path} has no header; its first line must name the columns "
                        f"{_listed(wanted)}")
    raise DataError("csv_column_missing", f"--input: {path} has no column {missing[0]!r}; it has {_listed(by_name)}, "
                    f"and the model takes {_listed(wanted)}")


def _check_counts(path: str, columns: Mapping[str, Sequence[int]], inputs: Mapping[str, InputColumn]) -> None:
    """Raises DataError if the columns of an input with one open size do not fill its other ones."""
    for name, column in inputs.items():
        size = math.prod(size for size in column.shape or () if size is not None)
        if column.shape and None in column.shape and (size == 0 or len(columns[name]) % size):
            raise DataError("csv_column_count", f"--input: {path} has {len(columns[name])} columns for {name}; the "
                            f"model takes {name} {column}, so a multiple of {size}")


def _is_header(path: str, cells: Sequence[str], column: InputColumn, names: Sequence[str]) -> bool:
    """Returns whether the first line of a single input is a header, with any names; raises DataError if unclear."""
    if column.dtype in (tf.string, tf.bool) or cells == ["0"]:
        raise DataError("csv_header_unclear", f"--input: {path}, line 1: {_listed(cells)!r} may be a header or an "
                        f"example; begin with a line that names the columns: {_listed(sorted(names))}")
    is_counted = cells == [str(number) for number in range(len(cells))]  # as pandas does without names
    wrong = [(number, cell) for number, cell in enumerate(cells, 1) if not _is_number(cell)]
    if not wrong and not is_counted:
        return False
    if not is_counted and (len(wrong) < len(cells) or not any(cells)):
        number, cell = wrong[0]
        raise DataError("csv_header_unclear", f"--input: {path}, line 1, column {number}: got {cell!r}; expected a "
                        "number, or a header without numbers; correct that cell, or begin with a header")
    _log.info("%s: the first line is taken as a header: %s", path, _listed(cells))
    return True


def _column_names(name: str, column: InputColumn, existing: Mapping[str, int]) -> list[str]:
    """Returns the names of the columns of an input, given the `existing` ones."""
    if column.shape == [] or (column.shape is None and name in existing):
        return [name]
    if column.shape is None or None in column.shape:
        numbers = itertools.takewhile(lambda number: f"{name}_{number}" in existing, itertools.count())
        return [f"{name}_{number}" for number in numbers] or [f"{name}_0"]
    return [f"{name}_{number}" for number in range(math.prod(column.shape))]


def _values(
    path: str, rows: Sequence[tuple[int, Sequence[str]]], indices: Sequence[int], column: InputColumn,
    header: Sequence[str],
) -> np.ndarray:
    """Returns the values of an input in some rows, each with the number of its line."""
    for line, row in rows:
        if len(row) != len(header):
            raise DataError("csv_column_count", f"--input: {path}, line {line}: {len(row)} columns; expected "
                            f"{len(header)}")
    cells = [[row[index] for index in indices] for _, row in rows]
    if column.dtype == tf.string:
        # The bytes of the file, as training saw them: a file may be in Latin-1.
        values = np.array([[cell.encode("utf-8", "surrogateescape") for cell in row] for row in cells], object)
    else:
        values = _numbers(path, [line for line, _ in rows], cells, [header[index] for index in indices], column.dtype)
    shape = [-1 if size is None else size for size in column.shape or ([] if column.shape == [] else [len(indices)])]
    return values.reshape([len(rows), *shape])


def _numbers(
    path: str, lines: Sequence[int], cells: Sequence[Sequence[str]], names: Sequence[str], dtype: tf.DType
) -> np.ndarray:
    """Returns the numbers in some rows; raises DataError for the first cell that is no number of the type."""
    kind = np.dtype(dtype.as_numpy_dtype)
    is_whole = kind.kind in "iub"
    parse, lowest, highest = _parsing(dtype)

    def is_wrong(cell: str) -> bool:
        try:
            number = parse(cell)
        except ValueError:
            return True
        if is_whole:
            return not lowest <= number <= highest
        return bool(np.isinf(np.array(number, kind))) and "inf" not in cell.lower()

    with np.errstate(over="ignore"):
        # Not by way of float64, which lacks large whole numbers; numpy would take the lowest bits of too large ones.
        with contextlib.suppress(ValueError):
            numbers = [[parse(cell) for cell in row] for row in cells]
            if not is_whole or all(lowest <= number <= highest for row in numbers for number in row):
                values = np.array(numbers, kind)
                if is_whole or not np.isinf(values).any():
                    return values
        for line, name, cell in ((line, name, cell) for line, row in zip(lines, cells)
                                 for name, cell in zip(names, row)):
            if is_wrong(cell):
                raise DataError("csv_cell_malformed", f"--input: {path}, line {line}, column {name}: got {cell!r}; "
                                f"expected {_expected(dtype, cell)}")
        return np.array(numbers, kind)  # infinite, as the file says


def _parsing(dtype: tf.DType) -> tuple[Callable[[str], Any], Any, Any]:
    """Returns what parses a cell, or raises ValueError, and the least and the largest number of a type."""
    kind = np.dtype(dtype.as_numpy_dtype)
    if kind.kind == "b":
        return _to_bool, 0, 1
    convert, limits = (int, np.iinfo(kind)) if kind.kind in "iu" else (float, dtype)
    # Python would take 1_000.
    return lambda cell: convert(cell.replace("_", "?")), convert(limits.min), convert(limits.max)


def _to_bool(cell: str) -> int:
    value = _BOOLS.get(cell.strip().lower())
    if value is None:
        raise ValueError(cell)
    return value


def _expected(dtype: tf.DType, cell: str) -> str:
    """Returns what a cell of a type must be, which this one is not."""
    _, lowest, highest = _parsing(dtype)
    if dtype == tf.bool:
        return ", ".join(_BOOLS)
    if dtype.is_integer:
        return f"a whole number from {lowest} to {highest}"
    return "a number" + (f" of at most {highest:.6g}, the largest {dtype.name}" if _is_number(cell) else "")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_MAX_LISTED]) + (f" and {len(names) - _MAX_LISTED} more"
                                             if len(names) > _MAX_LISTED else "")
