"""Reads features from CSV: which column belongs to which feature, and what is wrong with a file.

    inputs {"age": int64 [n], "pixels": float32 [n, 3]}      age,pixels_0,pixels_1,pixels_2
    one input float32 [n, 784]                               any 784 columns in their order; the header may be left out
"""

from __future__ import annotations

import csv
import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import DataError
from ps_train.inference.predictor import Batch, InputColumn

_MOST_LISTED = 12
_log = logging.getLogger(__name__)


def read_batches(
    path: str, inputs: Mapping[str, InputColumn], batch_size: int, share: tuple[int, int]
) -> Iterator[Batch]:
    """Yields the batches of a share; see `examples.file_batches`.

    Raises:
      DataError: a column is missing, or a cell is wrong; the error names file, line and column.
    """
    index, count = share
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.reader(file)
        first = next(rows, None)
        if first is None:
            raise DataError(f"--input: {path} is empty")
        has_header = not all(map(_is_number, first))
        columns = find_columns(path, first if has_header else None, len(first), inputs)
        lines = itertools.chain([] if has_header else [first], rows)
        number, line = 0, 1 + has_header
        while chunk := list(itertools.islice(lines, batch_size)):
            if number % count == index:
                yield {name: _values(path, line, chunk, columns[name], column, first)
                       for name, column in inputs.items()}
            number, line = number + 1, line + len(chunk)


def find_columns(
    path: str, header: Sequence[str] | None, num_columns: int, inputs: Mapping[str, InputColumn]
) -> dict[str, list[int]]:
    """Returns name of an input -> the indices of its columns.

    Raises:
      DataError: a column is missing, or there are too many or too few.
    """
    by_name = {name.strip(): index for index, name in enumerate(header or ())}
    wanted = {name: _column_names(name, column, by_name) for name, column in inputs.items()}
    missing = [one for names in wanted.values() for one in names if one not in by_name]
    if len(inputs) == 1 and missing:
        [column] = inputs.values()
        size = num_columns if column.shape is None or None in column.shape else math.prod(column.shape)
        if size == num_columns:
            return {name: list(range(num_columns)) for name in inputs}
        raise DataError(f"--input: {path} has {num_columns} columns; the model takes {size} for {next(iter(inputs))} "
                        f"{column}")
    if header is None:
        raise DataError(f"--input: {path} has no header; its first line must name the columns "
                        f"{_listed(one for names in wanted.values() for one in names)}")
    if missing:
        raise DataError(f"--input: {path} has no column {missing[0]!r}; it has {_listed(by_name)}, and the model takes "
                        f"{_listed(one for names in wanted.values() for one in names)}")
    unused = by_name.keys() - {one for names in wanted.values() for one in names}
    if unused:
        _log.info("%s: columns that the model does not take: %s", path, _listed(sorted(unused)))
    return {name: [by_name[one] for one in names] for name, names in wanted.items()}


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
    """Returns the values of an input in some rows, of which the first is that line of the file."""
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
    parse = int if kind.kind in "iu" else float
    try:
        return np.array([list(map(parse, row)) for row in cells]).astype(kind)
    except (ValueError, OverflowError):
        for number, row in enumerate(cells):
            for name, cell in zip(names, row):
                if not _parses(parse, cell):
                    raise DataError(f"--input: {path}, line {line + number}, column {name}: got {cell!r}; expected "
                                    f"{'a whole number' if parse is int else 'a number'}") from None
        raise


def _parses(parse: Any, cell: str) -> bool:
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
