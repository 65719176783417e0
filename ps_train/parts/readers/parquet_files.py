"""Parquet files: where their row groups are, and their columns as numpy arrays.

    row group --pyarrow--> columns of some rows --cast, fill--> numpy arrays: [rows], or [rows, k] for lists of k

A row group is known by the byte at which its first column begins: it is in the range of the file in which that lies.
pyarrow decodes whole columns at once, in C++; no function of Python runs for each row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, DataError
from ps_train.parts.readers.files import check_size, is_in_store, open_buffered


class ArrowColumn(NamedTuple):
    """What a column becomes.

    Attributes:
      name: its name in the file.
      dtype: that of its tensor.
      width: the length k of the lists in it; None for plain values.
      fill: what a missing value becomes; None if none may be missing.
    """

    name: str
    dtype: tf.DType
    width: int | None
    fill: Any


def row_group_cuts(name: str, size: int, range_bytes: int) -> list[int]:
    """Returns the first bytes of ranges of row groups, and the end of the file; [] if it has no rows.

    Args:
      size: of the file.
      range_bytes: how far cuts are apart, at least.

    Raises:
      DataError: it is no Parquet file.
      ConfigError: pyarrow is not installed.
    """
    with opened(name, size) as file:
        cuts: list[int] = []
        for position in sorted(_positions(file).values()):
            if not cuts or position - cuts[-1] >= range_bytes:
                cuts.append(position)
    return [*cuts, size] if cuts else []


def check_columns(name: str, columns: Sequence[str]) -> None:
    """Raises a DataError if a file lacks a column, and as `row_group_cuts` does."""
    with opened(name) as file:
        _check_columns(name, file, columns)


def _check_columns(name: str, file: Any, columns: Sequence[str]) -> None:
    present = file.schema_arrow.names
    if missing := [column for column in columns if present.count(column) != 1]:
        raise DataError("column_missing", f"{name}: column {missing[0]!r} is there {present.count(missing[0])} times; "
                        f"expected once among the columns {', '.join(present)}")


def chunks(
    name: str, start: int, stop: int, columns: Sequence[ArrowColumn], chunk_rows: int,
    check: Callable[[Mapping[str, np.ndarray]], None], file_bytes: int = -1,
) -> Iterator[Mapping[str, np.ndarray]]:
    """Yields the columns of the row groups that begin in [start, stop), some rows at a time.

    Args:
      chunk_rows: rows at a time, at most.
      check: is called with what is to be yielded, and raises DataError if it is malformed.
      file_bytes: the size that the file had when its ranges were made; below 0 if that is not known.

    Raises:
      DataError: the file is damaged or has changed, or a column does not fit.
      ConfigError: pyarrow is not installed.
    """
    with opened(name) as file:
        check_size(name, file_bytes)
        _check_columns(name, file, [column.name for column in columns])
        positions = _positions(file)
        groups = [number for number, position in positions.items() if start <= position < stop]
        if start and start not in positions.values():
            raise DataError("input_file_changed", f"{name}: no row group begins at byte {start}; the file has changed "
                            "since training began, start again")
        first_row = 0
        for batch in file.iter_batches(chunk_rows, row_groups=groups, columns=[column.name for column in columns]):
            if batch.num_rows:
                try:
                    arrays = {column.name: _as_numpy(batch.column(column.name), column) for column in columns}
                    check(arrays)
                except DataError as error:
                    raise DataError(error.code, f"{name}, rows {first_row} to {first_row + batch.num_rows - 1} from "
                                    f"byte {start} on: {error}") from None
                yield arrays
            first_row += batch.num_rows


def _as_numpy(array: Any, column: ArrowColumn) -> np.ndarray:
    """Returns a column of a batch: [rows], or [rows, width]."""
    import pyarrow  # noqa: PLC0415 (an extra; `opened` has found it)

    place = f"column {column.name!r}"
    if column.width is not None:
        if not _has_lists(array, column.width):
            raise DataError("column_misfit", f"{place}: is {array.type}; expected lists of {column.width} values each")
        array = array.flatten()
    if array.null_count and column.fill is None:
        raise DataError("value_missing", f"{place}: {array.null_count} values are missing (null); write the file "
                        "without, or say in `fill` of ParquetReader what a missing one becomes")
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_text = column.dtype == tf.string
    try:
        wanted = pyarrow.binary() if is_text else pyarrow.from_numpy_dtype(column.dtype.as_numpy_dtype)
        if is_text and not _is_binary(array.type):
            array = _digits(array)
        # Numbers may lose digits as floats; as integers they may not.
        given, array = array, array.cast(wanted, safe=not column.dtype.is_floating)
        if not _is_binary(given.type) and _num_infinite(array) > _num_infinite(given):
            raise DataError("column_misfit", f"{place}: is {given.type}, and has a number that is infinite as "
                            f"{column.dtype.name}; read it as tf.float64, or correct it")
        if array.null_count:
            array = array.fill_null(pyarrow.scalar(column.fill, wanted))
    except (pyarrow.ArrowException, TypeError) as error:
        raise DataError("column_misfit", f"{place}: is {array.type}, and does not fit {column.dtype.name}: "
                        f"{_one_line(error)}") from None
    values = array.to_numpy(zero_copy_only=False)
    return values if column.width is None else values.reshape(-1, column.width)


def _digits(array: Any) -> Any:
    """Returns values as text, a whole number as its digits, as pyarrow does not if it is a large float.

    pandas writes a column of integers as floats if a value is missing, so the files of one column may have both.
    """
    import pyarrow  # noqa: PLC0415 (as above)
    from pyarrow import compute  # noqa: PLC0415 (as above)

    texts = array.cast(pyarrow.string())
    if not pyarrow.types.is_floating(array.type):
        return texts
    numbers = array.cast(pyarrow.float64())
    is_whole = compute.and_(compute.equal(compute.floor(numbers), numbers), compute.less(compute.abs(numbers), 2.0**63))
    whole = compute.if_else(is_whole, numbers, 0.0).cast(pyarrow.int64())
    return compute.if_else(is_whole, whole.cast(pyarrow.string()), texts)


def _num_infinite(array: Any) -> int:
    from pyarrow import compute, types  # noqa: PLC0415 (as above)

    return compute.sum(compute.is_inf(array)).as_py() or 0 if types.is_floating(array.type) else 0


def _has_lists(array: Any, width: int) -> bool:
    """Returns whether each value is a list of `width` values."""
    from pyarrow import compute, types  # noqa: PLC0415 (as above)

    if not (types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type)):
        return False
    is_sound = compute.equal(compute.list_value_length(array), width)  # null for a list that is missing
    return bool(compute.all(is_sound, skip_nulls=False, min_count=0).as_py())


def _is_binary(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415 (as above)

    return any(is_kind(kind) for is_kind in (
        types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary))


def _positions(file: Any) -> dict[int, int]:
    """Returns row group -> where it begins, of those that have rows."""
    positions = {}
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if group.num_rows:
            first = group.column(0)
            positions[number] = min(first.data_page_offset, first.dictionary_page_offset or first.data_page_offset)
    return positions


@contextlib.contextmanager
def opened(name: str, size: int | None = None) -> Iterator[Any]:
    """Opens a file as a `pyarrow.parquet.ParquetFile`; raises as `row_group_cuts` does.

    Args:
      size: of the file, if it is known.
    """
    try:
        import pyarrow  # noqa: PLC0415 (an extra)
        from pyarrow import parquet  # noqa: PLC0415 (an extra)
    except ImportError as error:  # not installed, or, since pyarrow 26, NumPy is older than 2
        raise ConfigError("package_missing", f"{name} is a Parquet file and needs pyarrow: {error}; pip install "
                          "'ps_train[parquet]', and where NumPy is older than 2, pip install 'pyarrow<26'") from None
    try:
        # pyarrow opens a file of this machine itself, and reads it without Python.
        with open_buffered(name, size) if "://" in name else contextlib.nullcontext(name) as source, \
                parquet.ParquetFile(source, pre_buffer=is_in_store(name)) as file:
            yield file
    except (FileNotFoundError, tf.errors.NotFoundError):
        raise DataError("input_file_missing", f"{name}: no such file any more, and it was not read yet; restore it, "
                        "or start again without it") from None
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError("bad_parquet_file", f"{name}: no Parquet file, or damaged: {_one_line(error)}; copy it "
                        "again") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
