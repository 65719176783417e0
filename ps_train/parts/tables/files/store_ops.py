"""The operations by which the rows of one store are saved, restored, counted and dropped, with their placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.tables.files.contents import PARTS
from ps_train.parts.tables.rows.id_table import FIRST_BUCKETS
from ps_train.parts.tables.rows.row_ops import COUNTS, Piece
from ps_train.parts.tables.rows.store import Store

_PIECE_BYTES = 16_000_000
_BYTES_PER_ROW = 12  # of its id and its mark, beside its floats
_COUNTED_ROWS = 2**20  # rows whose marks are looked at together
_REMOVED_PART = 0.125  # of the ids, after which an index is built anew
_VIRTUAL_BYTES = 4_000_000_000  # of a dynamic table without max_rows, on each ps


class StoreOps:
    """Operations on one store, each for `session.run(op, feed)`.

    Attributes:
      store: the store.
      num_saved: of a dynamic table that is only read, the rows of its checkpoint, for which there has to be room.
    """

    def __init__(self, store: Store) -> None:
        """Adds the operations to the current graph."""
        self.store = store
        self.num_saved: int | None = None
        with tf.device(None), tf.device(store.device or None):
            self._begin, self._end, self._number = (tf.placeholder(tf.int64, []) for _ in range(3))
            self._since = tf.placeholder(tf.int32, [])
            self._prefix, self._names = tf.placeholder(tf.string, []), tf.placeholder(tf.string, [len(PARTS)])
            piece = store.save_piece(self._begin, self._end, self._since)
            self._save_op = tf.raw_ops.SaveV2(
                prefix=self._prefix, tensor_names=self._names, shape_and_slices=[""] * len(PARTS), tensors=list(piece))
            self._count = store.count_since(self._begin, self._end, self._since)
            self._seen_name = tf.placeholder(tf.string, [])
            self._save_seen_op = self._load_seen_op = None
            if (seen := store.read_seen()) is not None:
                self._save_seen_op = tf.raw_ops.SaveV2(
                    prefix=self._prefix, tensor_names=[self._seen_name], shape_and_slices=[""], tensors=[seen])
                (saved,) = tf.raw_ops.RestoreV2(
                    prefix=self._prefix, tensor_names=[self._seen_name], shape_and_slices=[""], dtypes=[seen.dtype])
                self._load_seen_op = store.raise_seen(saved)
            self._keeps_present = tf.placeholder(tf.bool, [])
            self._load_op = store.load_piece(self._read_piece(), keeps_present=self._keeps_present)
            self._expected = tf.placeholder(tf.int64, [])
            self._reset_op = store.reset(self._number, self._expected)
            self._set_op = store.set_updates(self._number)
            self._drop_op = store.drop_rows(self._begin, self._end, self._since) if store.spec.is_dynamic else None
            self._build_op = store.build_index_anew() if store.spec.is_dynamic else None
            self._sample_op = store.sample_marks(self._number) if store.spec.is_dynamic else None
            self.counts = store.read_counts()

    def _read_piece(self) -> Piece:
        """Returns a piece of a checkpoint; without slots if the table is only read."""
        num_slots = self.store.width - self.store.spec.dim
        shapes = [[None], [None], [None, self.store.spec.dim], [None, num_slots]][:len(PARTS) if num_slots else 3]
        read = tf.raw_ops.RestoreV2(
            prefix=self._prefix, tensor_names=self._names[:len(shapes)], shape_and_slices=[""] * len(shapes),
            dtypes=[tf.int64, tf.int32, tf.float32, tf.float32][:len(shapes)])
        parts = [tf.ensure_shape(part, shape) for part, shape in zip(read, shapes)]
        return Piece(*parts, *([] if num_slots else [tf.zeros([tf.size(parts[0]), 0])]))

    @property
    def rows_per_piece(self) -> int:
        """The rows that are saved together."""
        return max(1, _PIECE_BYTES // self.row_bytes)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row with its slots, its id and its mark, as a checkpoint has it."""
        return 4 * self.store.width + _BYTES_PER_ROW

    @property
    def capacity(self) -> int:
        """The rows that this ps has room for."""
        if self.num_saved is not None and self.store.spec.is_dynamic:
            return max(1, self.num_saved)  # on as many ps as it was trained on, each had the room of a ps
        rows = self.store.spec.rows_on_each(self.store.num_ps)
        return _VIRTUAL_BYTES // self.row_bytes if rows is None else rows

    def reset(self, session: tf.Session) -> None:
        """Empties the store.

        Raises:
          tf.errors.ResourceExhaustedError: the ps has no room of that size.
        """
        capacity, expected = self.capacity, self.store.spec.expected_rows or 0
        session.run(self._reset_op, {self._number: capacity,
                                     self._expected: min(-(-expected // self.store.num_ps), capacity)})

    def set_updates(self, session: tf.Session, number: int) -> None:
        """Sets how many updates the store had."""
        session.run(self._set_op, {self._number: number})

    def is_large(self, counts: Mapping[str, int]) -> bool:
        """Returns whether the rows that exist, by the counts of this store, may be more than one piece."""
        return self._num_places(counts) > self.rows_per_piece

    def _num_places(self, counts: Mapping[str, int]) -> int:
        """Returns how many row numbers there are, with rows or without."""
        return counts["used" if self.store.spec.is_dynamic else "capacity"]

    def ranges(self, session: tf.Session, counts: Mapping[str, int], since: int) -> list[tuple[int, int]]:
        """Returns the ranges of row numbers, each of which has some rows to save, but not more than a piece."""
        last, found = self._num_places(counts), []
        for begin in range(0, last, _COUNTED_ROWS):
            end = min(begin + _COUNTED_ROWS, last)
            count = session.run(self._count, {self._begin: begin, self._end: end, self._since: since})
            size = (end - begin) if count <= self.rows_per_piece else self.rows_per_piece
            found += [(first, min(first + size, end)) for first in range(begin, end, size)] if count else []
        return found

    def save_call(self, prefix: str, name: str, rows: tuple[int, int], since: int) -> tuple[Any, dict[Any, Any]]:
        """Returns (operation, feed) that write a range of rows to a file of their own."""
        return self._save_op, {self._prefix: prefix, self._names: part_names(name), self._begin: rows[0],
                               self._end: rows[1], self._since: since}

    @property
    def counts_unseen(self) -> bool:
        """Whether this store counts how often ids without a row come."""
        return self._save_seen_op is not None

    def save_seen_call(self, prefix: str, name: str) -> tuple[Any, dict[Any, Any]]:
        """Returns (operation, feed) that write these counts to a file of their own."""
        return self._save_seen_op, {self._prefix: prefix, self._seen_name: name}

    def load_seen_call(self, path: str, name: str) -> tuple[Any, dict[Any, Any]]:
        """Returns (operation, feed) that raise these counts to those in a checkpoint."""
        return self._load_seen_op, {self._prefix: path, self._seen_name: name}

    def load_call(self, path: str, name: str, *, keeps_present: bool) -> tuple[Any, dict[Any, Any]]:
        """Returns (operation, feed) that read the rows of this ps from a piece; see `Store.load_piece`."""
        return self._load_op, {self._prefix: path, self._names: part_names(name), self._keeps_present: keeps_present}

    def sample_marks(self, session: tf.Session, count: int) -> np.ndarray:
        """Returns the marks of at most `count` rows, drawn at random."""
        return session.run(self._sample_op, {self._number: count})

    def drop(self, session: tf.Session, oldest: int, num_used: int) -> None:
        """Drops the rows that were last touched before update `oldest`."""
        for begin in range(0, num_used, _COUNTED_ROWS):
            session.run(self._drop_op, {self._begin: begin, self._end: min(begin + _COUNTED_ROWS, num_used),
                                        self._since: oldest})
        counts = dict(zip(COUNTS, session.run(self.counts)))
        # An id that was removed keeps its bucket. TensorFlow makes new buckets when four fifths are taken by ids.
        if counts["removed"] > _REMOVED_PART * max(counts["used"] - counts["free"], FIRST_BUCKETS):
            session.run(self._build_op)


def part_names(name: str) -> list[str]:
    """Returns the names of the tensors of a piece."""
    return [f"{name}/{part}" for part in PARTS]
