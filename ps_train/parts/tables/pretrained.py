"""Rows with which the tables of a new training begin: those of another checkpoint, or of a variable in it.

    a table of the checkpoint      each id has its row
    a variable [n, dim]            id i has row i, or `row_ids`  --> pieces of ids and values --> each ps takes its own
    a variable of DeepRec          NAME-keys, NAME-values, or those of NAME/part_0 and so on

Slots are new. The number of ps may be another one than that of the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.tables import contents
from ps_train.parts.tables.contents import SavedTable
from ps_train.parts.tables.rules import TableSpec
from ps_train.parts.tables.store_ops import Piece, StoreOps
from ps_train.parts.tables.table_files import TableFiles

_PIECE_BYTES = 16_000_000


class Origin(NamedTuple):
    """Where the rows of a table come from.

    Attributes:
      name: of the table or the variable in the checkpoint.
      saved: the table there; None for a variable.
      shape: of the variable; [] for a table.
      parts: of a variable of DeepRec, the names of its tensors without "-keys"; () for others.
      row_ids: the id int64 [n] of each row of a variable; None if they are 0 to n - 1.
    """

    name: str
    saved: SavedTable | None = None
    shape: Sequence[int] = ()
    parts: Sequence[str] = ()
    row_ids: np.ndarray | None = None

    def problem(self, spec: TableSpec) -> str | None:
        """Returns why these rows do not fit a model's table, or None."""
        if self.saved is None and len(self.shape) != 2:
            return f"table {spec.name}: {self.name} is a variable of the shape {list(self.shape)}, and not [ids, dim]"
        dim, num_rows = (self.saved.dim, self.saved.num_rows) if self.saved else (self.shape[1], self.shape[0])
        if dim != spec.dim:
            return f"table {spec.name}: dim {spec.dim} here, {dim} there"
        if not spec.is_dynamic and (num_rows is None or self.parts or num_rows > spec.num_rows):
            return f"table {spec.name}: num_rows {spec.num_rows} here, {num_rows or 'any ids'} there"
        if spec.num_hashes and num_rows != spec.num_rows:
            return (f"table {spec.name}: num_rows {spec.num_rows} here, {num_rows} there, and with num_hashes they say "
                    "which rows an id has")
        return None

    def num_rows(self, path: str) -> int:
        """Returns how many rows there are, or a few more."""
        return self.shape[0] if self.saved is None else contents.most_rows(path)[self.name]

    def tensor_names(self) -> list[str]:
        """Returns the names of all tensors that are read."""
        if self.parts:
            return [f"{part}{suffix}" for part in self.parts for suffix in ("-keys", "-values")]
        if self.saved is None:
            return [self.name]
        return [f"{piece}/{part}" for ps in range(len(self.saved.pieces)) for piece in self.saved.newest_first(ps)
                for part in ("ids", "values")]

    def pieces(self, path: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Returns an iterator over (ids int64 [n], values float32 [n, dim]), some MB each.

        A variable, or a part of one of DeepRec, is read whole.
        """
        if self.saved is not None:
            return contents.read_table(path, self.name)
        return (piece for whole in self._wholes(tf.train.load_checkpoint(path)) for piece in _cut(*whole))

    def _wholes(self, reader: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the ids and values of a variable, or of one part of it at a time."""
        for part in self.parts:
            yield np.asarray(reader.get_tensor(f"{part}-keys"), np.int64), reader.get_tensor(f"{part}-values")
        if not self.parts:
            values = np.asarray(reader.get_tensor(self.name), np.float32)
            yield np.arange(len(values)) if self.row_ids is None else self.row_ids, values


def _cut(ids: np.ndarray, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields pieces of rows: a message to a ps may have no more than 2 GB."""
    size = max(1, _PIECE_BYTES // (4 * max(1, values.shape[1])))
    for begin in range(0, len(ids), size):
        yield ids[begin:begin + size], values[begin:begin + size]


def deeprec_variables(shapes: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """Returns name -> parts of the embedding variables that DeepRec has saved, and of the slots of its optimizers.

    Args:
      shapes: of the tensors of a checkpoint, by name.
    """
    found: dict[str, list[str]] = {}
    for name in sorted(shapes):
        part = name.removesuffix("-keys")
        if part != name and f"{part}-values" in shapes:
            found.setdefault(re.sub(r"/part_\d+$", "", part), []).append(part)
    return found


class PretrainedRows:
    """Sets rows of the tables of a graph."""

    def __init__(self, files: TableFiles, local_device: str = "") -> None:
        """Adds the operations to the current graph.

        Args:
          files: those of the tables.
          local_device: the CPU of this task, which reads the checkpoint; "" in a graph of one process.
        """
        self._files = files
        self._ops: dict[str, tuple[tf.Tensor, tf.Tensor, list[tf.Operation]]] = {}
        for name, stores in files.stores.items():
            with tf.device(None), tf.device(local_device or None):
                ids = tf.placeholder(tf.int64, [None])
                values = tf.placeholder(tf.float32, [None, files.specs[name].dim])
                self._ops[name] = ids, values, [_load_op(store, ids, values) for store in stores]

    @property
    def specs(self) -> Mapping[str, TableSpec]:
        """The tables by name."""
        return self._files.specs

    def load(self, session: Any, path: str, origins: Mapping[str, Origin]) -> None:
        """Sets the rows of these tables, which must be empty; warns of those for which there is no room."""
        for name, origin in origins.items():
            self._files.make_room(session, name, origin.num_rows(path))
            ids, values, ops = self._ops[name]
            for own_ids, own_values in origin.pieces(path):
                session.run(ops, {ids: own_ids, values: own_values})
        self._files.warn_of_refused(session, path)


def _load_op(store: StoreOps, ids: tf.Tensor, values: tf.Tensor) -> tf.Operation:
    """Returns the operation that sets the rows of a ps, with new slots, as if the first update had touched them."""
    # On this machine: what belongs to other ps is not transferred.
    own = store.of_ps(Piece(ids, tf.ones_like(ids, tf.int32), values, tf.zeros([tf.size(ids), 0])))
    with store.store.on_ps():
        slots = store.store.spec.rule.slots_for(own.values)
    return store.load_piece(own._replace(slots=slots), keeps_present=tf.constant(False))
