"""Where the features to predict from come from: the dataset in mode "infer", or a file.

    dataset      mini-batches as input_fn makes them
    FILE.npz     an array for each feature                               } batches of --batch_size
    FILE.csv     columns, see `csv_columns.py`                           }

Process `index` of `count` takes the batches whose number modulo `count` is `index`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, DataError
from ps_train.graph.input import bad_records
from ps_train.graph.input.arrays import input_feed
from ps_train.graph.input.batches import Batches
from ps_train.parts.inference import csv_columns, serving
from ps_train.parts.inference.predictor import Batch, InputColumn
from ps_train.plugins.contracts import PREDICT, Dataset
from ps_train.training import queues

_log = logging.getLogger(__name__)


def dataset_batches(
    dataset: Dataset, params: Mapping[str, Any], inputs: Mapping[str, InputColumn], share: tuple[int, int]
) -> Iterator[Batch]:
    """Yields the features of the dataset in mode "infer", in order.

    Args:
      inputs: what the model takes.

    Raises:
      ConfigError: the dataset does not have what a SavedModel takes, or the examples do not end.
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
        skipped = [one.op for one in tf.nest.flatten(features, expand_composites=True)]
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
                found = session.run(features if number % count == index else skipped)
            except tf.errors.InvalidArgumentError as error:
                bad_records.raise_if_bad(error)
                raise
            if number % count == index:
                yield found
            number += 1


def file_batches(
    path: str, inputs: Mapping[str, InputColumn], batch_size: int, share: tuple[int, int]
) -> Iterator[Batch]:
    """Yields the features in a file, in order.

    Args:
      inputs: what the model takes.

    Raises:
      DataError: the file is missing or damaged, or a column is missing or has another form; the error says which.
    """
    if not os.path.exists(path):
        raise DataError(f"--input: there is no file {path!r}")
    sparse = [name for name, column in inputs.items() if column.is_sparse]
    if sparse:
        raise DataError(f"--input: the model takes sparse {', '.join(sparse)}, which no file has; predict from the "
                        "dataset")
    if path.endswith(".csv"):
        yield from csv_columns.read_batches(path, inputs, batch_size, share)
        return
    arrays = read_arrays(path, inputs, is_first=share[0] == 0)
    num_examples = len(next(iter(arrays.values())))
    for begin in range(share[0] * batch_size, num_examples, share[1] * batch_size):
        yield {name: array[begin:begin + batch_size] for name, array in arrays.items()}


def read_arrays(path: str, inputs: Mapping[str, InputColumn], is_first: bool = True) -> dict[str, np.ndarray]:
    """Returns name -> array [n, ...] of an npz file; one input takes the only array, whatever its name.

    Args:
      is_first: whether this is the first process that reads the file, which logs what all of them do.

    Raises:
      DataError: an array is missing, or has another shape, type or length; the error says which.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"--input: cannot read {path}: {error}") from None
    if len(inputs) == len(found) == 1:
        [wanted], [name] = inputs, found
        if name != wanted and is_first:
            _log.info("--input: %s has no array %r; its only array, %r, is used", path, wanted, name)
        found = {wanted: found[name]}
    missing = [name for name in inputs if name not in found]
    if missing:
        raise DataError(f"--input: {path} has no array {missing[0]!r}; it has {', '.join(found) or 'none'}, and the "
                        f"model takes {describe_inputs(inputs)}")
    arrays = {name: _checked(path, name, found[name], column) for name, column in inputs.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"--input: {path}: the arrays differ in their number of examples: "
                        f"{', '.join(f'{name} {length}' for name, length in lengths.items())}")
    return arrays


def describe_inputs(inputs: Mapping[str, InputColumn]) -> str:
    """Returns what the model takes, in words."""
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
