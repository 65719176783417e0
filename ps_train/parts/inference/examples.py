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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, DataError
from ps_train.graph.input import bad_records
from ps_train.graph.input.arrays import input_feed
from ps_train.graph.input.batches import Batches
from ps_train.graph.input.file_ranges import compression_of
from ps_train.parts.inference import serving
from ps_train.parts.inference.predictor import Batch, InputColumn
from ps_train.plugins.contracts import PREDICT, Dataset
from ps_train.training import queues

_log = logging.getLogger(__name__)
_MOST_LISTED = 12


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
        features = serving.named(batches.next()[0])
        if missing := [name for name in inputs if name not in features]:
            raise ConfigError(f"--saved_model: it takes {describe_inputs(inputs)}, and {dataset.name} has "
                              f"{', '.join(features)}; give --input=FILE with {', '.join(missing)}")
        cardinality, running = batches.cardinality(), queues.Queues()
        skipped = [feature.op for feature in tf.nest.flatten(features, expand_composites=True)]
        with tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0})) as session:
            session.run([batches.initializer, tf.local_variables_initializer(), tf.tables_initializer()],
                        feed_dict=input_feed(graph))
            if session.run(cardinality, feed_dict=input_feed(graph)) == tf.data.experimental.INFINITE_CARDINALITY:
                raise ConfigError(f"{dataset.name}.input_fn: the examples of mode {PREDICT!r} repeat without end; let "
                                  "input_fn repeat only in mode 'train'")
            with running.running(session):
                yield from _run_through(session, features, skipped, index, count)
            bad_records.report_skipped(session, "prediction")


def _run_through(session: tf.Session, features: Any, skipped: Any, index: int, count: int) -> Iterator[Batch]:
    number = 0
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            try:
                features_of_batch = session.run(features if number % count == index else skipped)
            except tf.errors.InvalidArgumentError as error:
                bad_records.raise_if_bad(error)
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
        raise DataError(f"--input: file {path!r} does not exist")
    sparse = [name for name, column in inputs.items() if column.is_sparse]
    if sparse:
        raise DataError(f"--input: the model takes sparse {', '.join(sparse)}, which no file has; predict from the "
                        "dataset")
    if path.endswith(".csv"):
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
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays_in_file = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"--input: cannot read {path}: {error}") from None
    if len(inputs) == len(arrays_in_file) == 1:
        [wanted], [name] = inputs, arrays_in_file
        if name != wanted and is_first:
            _log.info("--input: %s has no array %r; its only array, %r, is used", path, wanted, name)
        arrays_in_file = {wanted: arrays_in_file[name]}
    missing = [name for name in inputs if name not in arrays_in_file]
    if missing:
        raise DataError(f"--input: {path} has no array {missing[0]!r}; it has {', '.join(arrays_in_file) or 'none'}, "
                        f"and the model takes {describe_inputs(inputs)}")
    arrays = {name: _checked(path, name, arrays_in_file[name], column) for name, column in inputs.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"--input: {path}: the arrays differ in their number of examples: "
                        f"{', '.join(f'{name} {length}' for name, length in lengths.items())}")
    return arrays


def describe_inputs(inputs: Mapping[str, InputColumn]) -> str:
    """Returns the model's inputs, in words."""
    return ", ".join(f"{name} {column}" for name, column in inputs.items())


def _checked(path: str, name: str, array: np.ndarray, column: InputColumn) -> np.ndarray:
    fits = column.shape is None or array.ndim == 1 + len(column.shape) and all(
        wanted in (None, size) for wanted, size in zip(column.shape, array.shape[1:]))
    is_text = array.dtype.kind in "US"
    if column.dtype == tf.string:
        has_type = is_text
    else:
        wanted = np.dtype(column.dtype.as_numpy_dtype)
        is_number = not is_text and array.dtype.kind not in "OV"
        has_type = is_number and (array.dtype.kind in "iub" or wanted.kind not in "iub")  # no fraction is cut off
    if not fits or not has_type:
        raise DataError(f"--input: {path}: {name} is {array.dtype} {list(array.shape)}; the model takes {column}")
    if column.dtype == tf.string:
        return array
    if wanted.kind in "iu" and array.size:
        limits = np.iinfo(wanted)
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:  # numpy would take its lowest bits
                raise DataError(f"--input: {path}: {name} has {value}; the model takes {column}, from {limits.min} to "
                                f"{limits.max}")
    return array.astype(wanted)


def csv_batches(
    path: str, inputs: Mapping[str, InputColumn], batch_size: int, share: tuple[int, int]
) -> Iterator[Batch]:
    """Yields the batches of a share; see `file_batches`.

    Raises:
      DataError: a column is missing, or a cell is wrong; the error names file, line and column.
    """
    _refuse_compressed(path)
    index, count = share
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:  # Excel begins a file with a BOM
        rows = csv.reader(file)
        first = next(rows, None)
        if first is None:
            raise DataError(f"--input: {path} is empty")
        has_header = _has_header(path, first, inputs)
        columns = find_csv_columns(path, first if has_header else None, len(first), inputs)
        lines = itertools.chain([] if has_header else [first], rows)
        number, line = 0, 1 + has_header
        while chunk := list(itertools.islice(lines, batch_size)):
            if number % count == index:
                yield {name: _values(path, line, chunk, columns[name], column, first)
                       for name, column in inputs.items()}
            number, line = number + 1, line + len(chunk)


def _refuse_compressed(path: str) -> None:
    with open(path, "rb") as file:
        if kind := compression_of(file.read(16)):
            raise DataError(f"--input: {path} is compressed ({kind}); decompress it first")


def _has_header(path: str, first: Sequence[str], inputs: Mapping[str, InputColumn]) -> bool:
    """Returns whether the first line names columns.

    Raises:
      DataError: it may be a header or an example.
    """
    names = [cell.strip() for cell in first]
    by_name = {name: index for index, name in enumerate(names)}
    wanted = {name for key, column in inputs.items() for name in _column_names(key, column, by_name)}
    if wanted <= by_name.keys():
        return True
    if len(inputs) > 1:  # `find_csv_columns` reports missing columns
        return bool(wanted & by_name.keys()) or not any(map(_is_number, names))
    [column] = inputs.values()
    if column.dtype == tf.string or names == ["0"]:
        raise DataError(f"--input: {path}, line 1: {_listed(first)!r} may be a header or an example; begin with a line "
                        f"that names the columns: {_listed(sorted(wanted))}")
    return _is_header_of_numbers(path, names)


def _is_header_of_numbers(path: str, cells: Sequence[str]) -> bool:
    """Returns whether the first line of columns of numbers is a header, with any names; raises DataError."""
    numbers = [cell for cell in cells if _is_number(cell)]
    is_counted = list(cells) == [str(number) for number in range(len(cells))]  # as pandas does without names
    if len(numbers) == len(cells) and not is_counted:
        return False
    if not is_counted and (numbers or not any(cells)):
        number, wrong = next((number, cell) for number, cell in enumerate(cells, 1) if not _is_number(cell))
        raise DataError(f"--input: {path}, line 1, column {number}: got {wrong!r}; expected a number, or a header "
                        "without numbers; correct that cell, or begin with a header")
    _log.info("%s: the first line is taken as a header: %s", path, _listed(cells))
    return True


def find_csv_columns(
    path: str, header: Sequence[str] | None, num_columns: int, inputs: Mapping[str, InputColumn]
) -> dict[str, list[int]]:
    """Returns name of an input -> the indices of its columns.

    Raises:
      DataError: a column is missing, or the file has too many or too few.
    """
    by_name = {name.strip(): index for index, name in enumerate(header or ())}
    wanted = {name: _column_names(name, column, by_name) for name, column in inputs.items()}
    missing = [column for columns in wanted.values() for column in columns if column not in by_name]
    if len(inputs) == 1 and missing:
        [column] = inputs.values()
        size = num_columns if column.shape is None or None in column.shape else math.prod(column.shape)
        if size == num_columns:
            return {name: list(range(num_columns)) for name in inputs}
        raise DataError(f"--input: {path} has {num_columns} columns; the model takes {size} for {next(iter(inputs))} "
                        f"{column}")
    if header is None:
        raise DataError(f"--input: {path} has no header; its first line must name the columns "
                        f"{_listed(column for columns in wanted.values() for column in columns)}")
    if missing:
        raise DataError(f"--input: {path} has no column {missing[0]!r}; it has {_listed(by_name)}, and the model takes "
                        f"{_listed(column for columns in wanted.values() for column in columns)}")
    unused = by_name.keys() - {column for columns in wanted.values() for column in columns}
    if unused:
        _log.info("%s: columns that the model does not take: %s", path, _listed(sorted(unused)))
    return {name: [by_name[column] for column in columns] for name, columns in wanted.items()}


def _column_names(name: str, column: InputColumn, there: Mapping[str, int]) -> list[str]:
    """Returns the names of the columns of an input."""
    if column.shape == [] or (column.shape is None and name in there):
        return [name]
    if column.shape is None or None in column.shape:
        numbers = itertools.takewhile(lambda number: f"{name}_{number}" in there, itertools.count())
        return [f"{name}_{number}" for number in numbers] or [f"{name}_0"]
    return [f"{name}_{number}" for number in range(math.prod(column.shape))]


def _values(
    path: str, line: int, rows: Sequence[Sequence[str]], indices: Sequence[int], column: InputColumn,
    header: Sequence[str],
) -> np.ndarray:
    """Returns the values of an input in some rows; `line` is that of the first row in the file."""
    short = next((number for number, row in enumerate(rows) if len(row) != len(header)), None)
    if short is not None:
        raise DataError(f"--input: {path}, line {line + short}: {len(rows[short])} columns; expected {len(header)}")
    cells: Any = [[row[index] for index in indices] for row in rows]
    if column.dtype == tf.string:
        values = np.array(cells, object)
    else:
        values = _numbers(path, line, cells, [header[index] for index in indices], column.dtype)
    shape = [-1 if size is None else size for size in column.shape or ([] if column.shape == [] else [len(indices)])]
    return values.reshape([len(rows), *shape])


def _numbers(path: str, line: int, cells: Any, names: Sequence[str], dtype: tf.DType) -> np.ndarray:
    kind = np.dtype(dtype.as_numpy_dtype)
    parse, expected = (_whole_numbers(np.iinfo(kind)) if kind.kind in "iu" else (float, "a number"))
    try:
        with np.errstate(over="ignore"):  # infinite values are refused below
            # At once, not by way of float64, which lacks large whole numbers.
            values = np.array([list(map(parse, row)) for row in cells], kind)
    except (ValueError, OverflowError):
        _refuse_first(path, line, expected, (
            (number, name, cell) for number, row in enumerate(cells)
            for name, cell in zip(names, row) if not _parses(parse, cell)))
        raise
    if kind.kind not in "iu":
        infinite = ((row, column, cells[row][column]) for row, column in np.argwhere(np.isinf(values)).tolist())
        _refuse_first(path, line, f"a number of at most {float(dtype.max):.6g}, the largest {dtype.name}", (
            (row, names[column], cell) for row, column, cell in infinite if "inf" not in cell.lower()))
    return values


def _refuse_first(path: str, line: int, expected: str, bad_cells: Iterable[tuple[int, str, str]]) -> None:
    """Raises DataError for the first bad cell, (row, name of the column, text); `line` is that of the first row."""
    for row, name, cell in bad_cells:
        place = f"{path}, line {line + row}, column {name}"
        raise DataError(f"--input: {place}: got {cell!r}; expected {expected}") from None


def _whole_numbers(limits: np.iinfo) -> tuple[Callable[[str], int], str]:
    """Returns a function that parses a whole number of a type, and its allowed values, in words."""
    lowest, highest = int(limits.min), int(limits.max)

    def parse(cell: str) -> int:
        number = int(cell)
        if not lowest <= number <= highest:  # numpy would take its lowest bits
            raise OverflowError
        return number

    return parse, f"a whole number from {lowest} to {highest}"


def _parses(parse: Callable[[str], Any], cell: str) -> bool:
    try:
        parse(cell)
    except (ValueError, OverflowError):
        return False
    return True


def _is_number(cell: str) -> bool:
    return _parses(float, cell)


def _listed(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:_MOST_LISTED]) + (f" and {len(names) - _MOST_LISTED} more"
                                              if len(names) > _MOST_LISTED else "")
