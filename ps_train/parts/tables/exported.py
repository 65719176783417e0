"""The tables of a SavedModel, which TensorFlow reads without ps_train.

    checkpoint --> rows, piece by piece --> variables/   ids, numbers, values of each table

A lookup is a binary search in the sorted ids. An id without a row has its first value. The process that exports holds
16 bytes a row and one piece; the process that loads holds whole tables.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.tables import contents
from ps_train.parts.tables.index import gather, places_where, read_whole
from ps_train.parts.tables.rules import EMPTY_KEY, RowFormat, TableSpec

_PART_ROWS = 2**20  # of an array that is written in parts


class ExportedTable:
    """The rows of a table, to be read only.

    The first one belongs to EMPTY_KEY, which no lookup has. It precedes all ids, so each search finds a place.

    Attributes:
      spec: the table.
      ids: variable int64 [1 + rows], in ascending order.
      numbers: variable int64 [1 + rows], the place of each id's row in `values`.
      values: variable float32 [1 + rows, ...], rows as the table's `RowFormat` stores them, in the order of the
        checkpoint.
    """

    device = ""

    def __init__(self, spec: TableSpec, num_rows: int) -> None:
        """Adds the variables to the current graph."""
        self.spec, self.width, self.format = spec, spec.dim, spec.row_format
        name = f"ps_train/table/{spec.name}"
        self.ids = _variable(f"{name}/ids", tf.int64, [1 + num_rows])
        self.numbers = _variable(f"{name}/numbers", tf.int64, [1 + num_rows])
        self.values = _variable(f"{name}/values", tf.float32, [1 + num_rows, self.format.stored_width])

    def read(self, ids: tf.Tensor, *, with_slots: bool = False) -> tf.Tensor:
        """Returns the values of ids int64 [n], float32 [n, dim]; the first values of those without a row."""
        del with_slots  # it has none
        numbers = self.find(ids)
        values = self.format.values_in(self.rows_at(tf.maximum(numbers, 0)))
        missing = places_where(numbers < 0)
        return tf.tensor_scatter_nd_update(
            values, missing[:, tf.newaxis], self.spec.unseen_values(tf.gather(ids, missing)))

    def find(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of the rows of ids, int64 [n], -1 for ids without a row."""
        places = self.places_of(ids)
        return tf.where(places < 0, places, gather(self.numbers, tf.maximum(places, 0)))

    def places_of(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the places of ids in `self.ids`, int64 [n], -1 for those that are not there."""
        known = read_whole(self.ids)  # shares the memory of a variable that is never written
        places = tf.searchsorted(known, ids, side="right", out_type=tf.int64) - 1
        return tf.where(tf.equal(tf.gather(known, places), ids), places, -tf.ones_like(places))

    def rows_at(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the rows of these numbers int64 [n], as they are stored."""
        return gather(self.values, numbers)


def table_maker(path: str | None) -> Any:
    """Returns a function that makes a table with as many rows as it has in a checkpoint; with none for None."""
    def make(spec: TableSpec, **_: Any) -> ExportedTable:
        return ExportedTable(spec, 0 if path is None else contents.count_rows(path, spec.name))

    return make


class SliceWriter:
    """Writes variables that no process holds whole: slice by slice, to files that are one checkpoint in the end."""

    def __init__(self, folder: str) -> None:
        """Prepares; the folder exists, and is removed with the last file."""
        self._folder, self._prefixes = folder, []
        with tf.Graph().as_default() as graph:
            self._prefix, self._name, self._slice = (tf.placeholder(tf.string, []) for _ in range(3))
            self._pieces = {dtype: tf.placeholder(dtype) for dtype in (tf.int64, tf.float32)}
            self._save_ops = {dtype: tf.raw_ops.SaveV2(
                prefix=self._prefix, tensor_names=[self._name], shape_and_slices=[self._slice], tensors=[piece])
                for dtype, piece in self._pieces.items()}
            self._merged = tf.placeholder(tf.string, [None])
            self._merge_op = tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=self._merged, destination_prefix=self._prefix, delete_old_dirs=True)
        self._session = tf.Session(graph=graph)

    def write(self, variable: tf.Variable, pieces: Iterable[np.ndarray]) -> None:
        """Writes the rows of a variable, which come in pieces."""
        shape, begin = variable.shape.as_list(), 0
        for piece in filter(len, pieces):  # TensorFlow refuses an empty slice
            # The form of a partitioned variable's slice: "10 8 0,4:0,8" is [0:4, 0:8] of [10, 8].
            ranges = [f"{begin},{len(piece)}", *(f"0,{size}" for size in shape[1:])]
            self.write_tensor(variable.op.name, piece, " ".join([*map(str, shape), ":".join(ranges)]))
            begin += len(piece)

    def write_tensor(self, name: str, array: np.ndarray, part: str = "") -> None:
        """Writes int64 or float32 numbers under a name; `part` says which slice of it they are."""
        prefix = f"{self._folder}/{len(self._prefixes):06d}"
        dtype = tf.as_dtype(array.dtype)
        self._session.run(self._save_ops[dtype], {
            self._prefix: prefix, self._name: name, self._slice: part, self._pieces[dtype]: array})
        self._prefixes.append(prefix)

    def write_whole(self, variable: tf.Variable, array: np.ndarray) -> None:
        """Writes all rows of a variable."""
        self.write(variable, (array[begin:begin + _PART_ROWS] for begin in range(0, len(array), _PART_ROWS)))

    def merge(self, others: list[str], path: str) -> None:
        """Makes one checkpoint of these files and others."""
        self._session.run(self._merge_op, {self._merged: [*others, *self._prefixes], self._prefix: path})
        self._session.close()


class PiecewiseSaver(tf.train.Saver):
    """Saves the dense variables of a session, and tables from the pieces of a checkpoint; neither is ever whole.

    Attributes:
      variables: all that it saves, without mutable tables.
    """

    def __init__(
        self, dense: list[tf.Variable], tables: Mapping[str, ExportedTable], path: str, mutable: Iterable[Any] = (),
    ) -> None:
        """Adds the operations that restore to the graph; `mutable` are TensorFlow's tables with saved entries."""
        self.variables = [*dense, *(variable for table in tables.values() for variable in (
            table.ids, table.numbers, table.values))]
        super().__init__([*self.variables, *mutable])
        self._dense_saver = tf.train.Saver([*dense, *mutable])
        self._tables, self._path = tables, path

    def save(self, sess: tf.Session, save_path: str, *_: Any, **__: Any) -> str:
        """Writes everything to one checkpoint."""
        folder = f"{save_path}_temp"
        os.makedirs(folder)
        prefixes = [self._dense_saver.save(sess, f"{folder}/dense", write_meta_graph=False, write_state=False)]
        writer = SliceWriter(folder)
        for name, table in self._tables.items():
            saved = contents.read_tables(self._path)[name]
            ids = np.concatenate([[EMPTY_KEY], *contents.read_ids(self._path, saved)])
            numbers = np.argsort(ids, kind="stable")
            writer.write_whole(table.numbers, numbers)
            ids.sort()
            writer.write_whole(table.ids, ids)
            first = np.zeros([1, table.spec.dim], np.float32)
            writer.write(table.values, _as_stored(table.format, itertools.chain(
                [first], (values for _, values in contents.read_table(self._path, name)))))
        writer.merge(prefixes, save_path)
        return save_path


def _as_stored(row_format: RowFormat, groups: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yields groups of rows float32 [n, dim] as a table stores them."""
    with tf.Graph().as_default() as graph:
        rows = tf.placeholder(tf.float32, [None, row_format.dim])
        packed = row_format.pack(rows)
    with contextlib.closing(tf.Session(graph=graph)) as session:
        for values in groups:
            yield session.run(packed, {rows: values}) if row_format.is_rounded else values


def _variable(name: str, dtype: tf.DType, shape: list[int]) -> tf.Variable:
    # In the collection of global variables, by which TensorFlow finds the variables of a SavedModel.
    return tf.Variable(lambda: tf.zeros(shape, dtype), trainable=False, name=name, use_resource=True)
