"""Writes predictions, batch by batch and in order, as CSV, npz or TFRecord.

    classes int64 [n], probabilities float32 [n, 3]
    .csv        classes,probabilities_0,probabilities_1,probabilities_2     a line for each example
    .npz        an array for each prediction
    .tfrecord   a tf.train.Example for each example, with a feature for each prediction

The file gets its name when it is complete.
"""

from __future__ import annotations

import contextlib
import csv
import os
import sys
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, UserCodeError
from ps_train.runtime import tensorflow_errors

Predictions = Mapping[str, np.ndarray]
WriteBatch = Callable[[Predictions], None]


@contextlib.contextmanager
def writing(path: str) -> Iterator[WriteBatch]:
    """Yields a function that writes a batch of predictions; at the end of its body the file is complete.

    Raises:
      ConfigError: the file cannot be written.
      UserCodeError: a prediction cannot be in a file of that format: its shape differs between batches, a text ends
        with a byte that numpy leaves out, or a number is too large for a tf.train.Example.
    """
    form = {".csv": _writing_csv, ".npz": _writing_npz, ".tfrecord": _writing_records}[os.path.splitext(path)[1]]
    if os.path.isdir(path):
        raise ConfigError("file_not_writable", f"--output: {path!r} is a folder; give a file in it")
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.part"  # another prediction may write a file of that name, too
    stack = contextlib.ExitStack()
    try:
        with _writable(path):
            with open(temporary, "wb"):
                pass
            write = stack.enter_context(form(temporary))

        def write_known(batch: Predictions) -> None:
            with _writable(path):
                write({name: _known(values) for name, values in batch.items()})

        yield write_known
        with _writable(path):
            stack.close()
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError, tf.errors.OpError):  # of a full disk once more, on which it cannot be closed
            stack.__exit__(*sys.exc_info())
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


@contextlib.contextmanager
def _writable(path: str) -> Iterator[None]:
    """Raises ConfigError where its body cannot write the file; what is predicted is computed outside of it."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or tensorflow_errors.reason(error)
        raise ConfigError("file_not_writable", f"--output: cannot write {path!r}: {reason}; give a file that this user "
                          "may write, on a disk with room for it") from None


@contextlib.contextmanager
def _writing_csv(path: str) -> Iterator[WriteBatch]:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        has_header: list[bool] = []
        check = _shape_check()

        def write(batch: Predictions) -> None:
            check(batch)
            flat = {name: _flat(values) for name, values in batch.items()}
            if not has_header:
                writer.writerow([column for name, values in batch.items()
                                 for column in _column_names(name, values)])
                has_header.append(True)
            # str() of a numpy float is its shortest exact representation.
            writer.writerows([_cell(value) for values in rows for value in values]
                             for rows in zip(*flat.values()))

        yield write


def _known(values: np.ndarray) -> np.ndarray:
    """Returns values of a type that numpy itself has: bfloat16 is one of TensorFlow's."""
    return values.astype(np.float32) if values.dtype.kind == "V" else values


def _flat(values: np.ndarray) -> np.ndarray:
    """Returns [n, k] of [n, ...], for n = 0, too."""
    return values.reshape(len(values), int(np.prod(values.shape[1:])))


def _shape_check() -> WriteBatch:
    """Returns a function that raises UserCodeError if a prediction has another width than in the first batch."""
    first_shapes: dict[str, tuple[int, ...]] = {}

    def check(batch: Predictions) -> None:
        for name, values in batch.items():
            first_shape, shape = first_shapes.setdefault(name, values.shape[1:]), values.shape[1:]
            if shape != first_shape:
                raise UserCodeError("prediction_shape_varies",
                                    f"--output: prediction {name!r} has the shape {_shape(shape)} after "
                                    f"{_shape(first_shape)} in an earlier batch; in CSV and npz all examples need the "
                                    "same: pad it in model_fn, leave it out with --outputs, or write FILE.tfrecord")

    return check


def _shape(sizes: Sequence[int]) -> str:
    return f"[{', '.join(['n', *map(str, sizes)])}]"


def _column_names(name: str, values: np.ndarray) -> list[str]:
    return [name] if values.ndim == 1 else [f"{name}_{number}" for number in range(int(np.prod(values.shape[1:])))]


def _cell(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


@contextlib.contextmanager
def _writing_npz(path: str) -> Iterator[WriteBatch]:
    batches: list[Predictions] = []
    check = _shape_check()

    def write(batch: Predictions) -> None:
        check(batch)
        for name, values in batch.items():
            if values.dtype == object and any(text.endswith(b"\0") for text in values.flat):
                raise UserCodeError("prediction_ends_with_nul", f"--output: prediction {name!r} has a text that ends "
                                    "with a zero byte, which an array of numpy does not keep; write FILE.tfrecord, or "
                                    "leave it out with --outputs")
        batches.append(batch)

    yield write
    arrays = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]} if batches else {}
    with zipfile.ZipFile(path, "w") as file:  # not by np.savez, which takes the names `file` and `allow_pickle` itself
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array.astype("S") if array.dtype == object else array,
                                          allow_pickle=False)


@contextlib.contextmanager
def _writing_records(path: str) -> Iterator[WriteBatch]:
    with tf.io.TFRecordWriter(path) as writer:
        def write(batch: Predictions) -> None:
            for name, values in batch.items():
                _refuse_too_large(name, values)
            for rows in zip(*map(_flat, batch.values())):
                features = {name: _feature(row) for name, row in zip(batch, rows)}
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())

        yield write


def _refuse_too_large(name: str, values: np.ndarray) -> None:
    """Refuses numbers that an Example would change: it has int64 and float32."""
    kind = {"uint64": np.int64, "float64": np.float32}.get(values.dtype.name)
    if kind is None:
        return
    with np.errstate(over="ignore"):
        is_lost = values > np.iinfo(kind).max if kind is np.int64 else (
            np.isfinite(values) & np.isinf(values.astype(kind)))
    if is_lost.any():
        raise UserCodeError("prediction_too_large", f"--output: prediction {name!r} has the {values.dtype} "
                            f"{values[is_lost][0]}, and a tf.train.Example has {np.dtype(kind)}; write FILE.csv or "
                            "FILE.npz, cast it in model_fn, or leave it out with --outputs")


def _feature(row: np.ndarray) -> tf.train.Feature:
    if row.dtype.kind in "iub":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=row.astype(np.int64)))
    if row.dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=row))
    values = [value if isinstance(value, bytes) else str(value).encode() for value in row.tolist()]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
