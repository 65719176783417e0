"""The operations by which the rows of one store are saved, restored, counted and dropped, with their placeholders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.tables import index
from ps_train.parts.tables.contents import PARTS
from ps_train.parts.tables.hashing import owner_of
from ps_train.parts.tables.id_map import FIRST_BUCKETS
from ps_train.parts.tables.index import COUNTS
from ps_train.parts.tables.rules import LAST_MARK, MAX_ROWS_PER_PS
from ps_train.parts.tables.store import Store

_PIECE_BYTES = 16_000_000
_BYTES_PER_ROW = 12  # of its id and its mark, which come with its floats
_COUNTED_ROWS = 2**20  # rows whose marks are read together
_REMOVED_PART = 0.125  # of the ids, after which an index is rebuilt
_VIRTUAL_BYTES = 4_000_000_000  # of a dynamic table without max_rows, on each ps
_MORE_ROOM = 1.5  # times the rows of a checkpoint, if they need more than that
Call = tuple[Any, dict[Any, Any]]  # the arguments of `session.run`: an operation and its feed


class Piece(NamedTuple):
    """Rows as they are in a checkpoint.

    Attributes:
      ids: int64 [n].
      marks: int32 [n], the number of the update that last touched each row.
      values: float32 [n, dim].
      slots: float32 [n, number of slots].
    """

    ids: tf.Tensor
    marks: tf.Tensor
    values: tf.Tensor
    slots: tf.Tensor


class FileOps(NamedTuple):
    """The operations that write and read files, on one machine; the last two are None if nothing is unseen."""

    save: tf.Operation
    load: tf.Operation
    save_seen: tf.Operation | None
    load_seen: tf.Operation | None


class RowOps:
    """Makes operations on the rows of one store, each when it is asked for.

    Attributes:
      store: the store.
      num_saved: of a dynamic table that is only read, the rows of its checkpoint, for which there has to be room.
      num_coming: of a dynamic table without max_rows, its rows in a checkpoint, on all ps: there has to be room for
        them, also if there were more ps.
    """

    def __init__(self, store: Store) -> None:
        """Adds nothing to the graph."""
        self.store = store
        self.num_saved: int | None = None
        self.num_coming = 0

    @property
    def row_bytes(self) -> int:
        """The bytes of a row with its slots, its id and its mark in the memory of the ps."""
        return self.store.format.stored_bytes + _BYTES_PER_ROW

    @property
    def capacity(self) -> int:
        """The rows that this ps has room for."""
        if self.num_saved is not None and self.store.spec.is_dynamic:
            return max(1, self.num_saved)  # on as many ps as it was trained on, each had the room of a ps
        rows = self.store.spec.rows_on_each(self.store.num_ps)
        if rows is not None:
            return rows
        share = math.ceil(_MORE_ROOM * self.num_coming / self.store.num_ps)
        return min(max(_VIRTUAL_BYTES // self.row_bytes, share), MAX_ROWS_PER_PS)

    @property
    def advice_on_room(self) -> str:
        """What helps if there is no memory for these rows."""
        spec = self.store.spec
        if spec.is_dynamic and self.num_saved is not None:
            return "evaluate with --evaluate_with=workers, or where there is more memory"
        if not spec.is_dynamic or spec.max_rows is not None:
            return f"use more ps, or a smaller {'max_rows' if spec.is_dynamic else 'num_rows'}"
        if self.capacity > _VIRTUAL_BYTES // self.row_bytes:  # for the rows of a checkpoint
            return "use more ps, or give them more memory"
        return "give the table max_rows, without which each ps makes room for 4 GB, or more memory to the ps"

    def reset_op(self, capacity: tf.Tensor, expected: tf.Tensor) -> tf.Operation:
        """Returns the operation that empties the store.

        Args:
          capacity: int64 scalar, the rows that it has room for from then on.
          expected: int64 scalar, the rows for which the index of a dynamic table has room; it grows if there are more.
        """
        # `Empty` leaves the memory as it is: a row is written before it is read.
        shape = tf.stack([tf.cast(capacity, tf.int32), self.store.format.stored_width])
        rows = tf.raw_ops.Empty(shape=shape, dtype=tf.float32, init=False)
        counts = index.changes_of({"capacity": capacity})
        return tf.group(index.replace_value(self.store.rows, rows), index.replace_value(self.store.counts, counts),
                        *self.store.index.reset(capacity, expected))

    def piece(self, begin: tf.Tensor, end: tf.Tensor, since: tf.Tensor) -> list[tf.Tensor]:
        """Returns the rows with numbers from begin to end - 1 that were touched after update `since`, at one moment."""
        store, parts = self.store, []  # made in the critical section

        def body() -> list[tf.Operation]:
            numbers = store.index.changed(begin, end, since)
            values, slots = tf.split(
                store.rows_at(numbers), [store.spec.dim, store.width - store.spec.dim], axis=1)
            parts[:] = [store.index.ids_of(numbers), index.gather(store.marks, numbers), values, slots]
            return [part.op for part in parts]

        # Otherwise a row could be dropped and made again, for another id, after its id was read.
        with tf.control_dependencies([store.exclusively([begin, end, since], body)]):
            return [tf.identity(part) for part in parts]

    def of_ps(self, piece: Piece) -> Piece:
        """Returns the rows of a piece that this ps has."""
        owners = owner_of(piece.ids, self.store.num_ps, is_dynamic=self.store.spec.is_dynamic)
        numbers = index.places_where(tf.equal(owners, self.store.ps))
        return Piece(*(tf.gather(part, numbers) for part in piece))

    def load_piece(self, piece: Piece, *, keeps_present: tf.Tensor) -> tf.Operation:
        """Returns the operation that sets rows of this ps.

        Args:
          keeps_present: bool scalar, whether rows that exist stay as they are.
        """
        store = self.store

        def body() -> list[tf.Operation]:
            placement = store.index.place(loaded.ids, index.read_whole(store.counts), admits_all=True)
            rows = tf.concat([loaded.values, loaded.slots], 1) if store.width > store.spec.dim else loaded.values
            return store.write_all(placement, placement.of_kept(rows), placement.of_kept(loaded.marks),
                                   {**placement.counted, "admitted": 0})

        with store.on_ps():
            arrived = Piece(*(tf.identity(part) for part in piece))
            is_kept = keeps_present & (store.index.find(arrived.ids) >= 0)
            wanted = index.places_where(~is_kept)
            loaded = Piece(*(tf.gather(part, wanted) for part in arrived))
            return store.exclusively(list(loaded), body)


class StoreOps(RowOps):
    """Operations on one store, on its ps.

    Attributes:
      uses_ps_files: whether the ps writes and reads the files itself; otherwise the chief does.
      counts: int64 [number of COUNTS].
      counts_unseen: whether the store counts how often ids without a row come.
    """

    def __init__(self, store: Store, local_device: str = "") -> None:
        """Adds the operations to the current graph; `local_device` is "" in a graph of one process."""
        super().__init__(store)
        self.uses_ps_files = True
        with store.on_ps():
            self._begin, self._end, self._number, self._expected = (tf.placeholder(tf.int64, []) for _ in range(4))
            self._since = tf.placeholder(tf.int32, [])
            self._threshold, self._part = (tf.placeholder(tf.float32, []) for _ in range(2))
            self._prefix, self._seen_name = (tf.placeholder(tf.string, []) for _ in range(2))
            self._names = tf.placeholder(tf.string, [len(PARTS)])
            self._keeps_present = tf.placeholder(tf.bool, [])
            rows = [tf.identity(placeholder) for placeholder in (self._begin, self._end, self._since)]
            self.counts = index.read_whole(store.counts)
            self._reset_op = self.reset_op(tf.identity(self._number), tf.identity(self._expected))
            self._set_op = tf.raw_ops.ResourceScatterUpdate(
                resource=store.counts.handle, indices=COUNTS.index("updates"), updates=self._number)
            self._count = tf.size(store.index.changed(*rows), out_type=tf.int64)
            piece, seen = self.piece(*rows), store.index.read_seen() if store.spec.is_dynamic else None
            self.counts_unseen = seen is not None
            self._file_ops = {True: self._make_file_ops(store.device, piece, seen)}
            if local_device:
                self._file_ops[False] = self._make_file_ops(local_device, piece, seen)
            if store.spec.is_dynamic:
                self._drop_op, self._drop_small_op = self._drop(*rows), self._drop_small(*rows[:2])
                self._rebuild_op = self._rebuild()
                self._sample_op = store.index.sample_marks(tf.identity(self._number))

    def _drop(self, begin: tf.Tensor, end: tf.Tensor, oldest: tf.Tensor) -> tf.Operation:
        """Returns the operation that drops the rows with numbers from begin to end - 1 that `drop` names."""
        part = tf.identity(self._part)
        return self._drop_exclusively(
            [begin, end, oldest, part], lambda: self.store.index.drop(begin, end, oldest=oldest, part=part))

    def _drop_small(self, begin: tf.Tensor, end: tf.Tensor) -> tf.Operation:
        """Returns the operation that drops the rows with these numbers whose value has a norm below `_threshold`."""
        threshold = tf.identity(self._threshold)

        def drop() -> tuple[list[tf.Operation], tf.Tensor]:
            numbers = tf.range(begin, end)
            values = tf.slice(self.store.rows_at(numbers), [0, 0], [-1, self.store.spec.dim])
            return self.store.index.drop_where(numbers, tf.norm(values, axis=1) < threshold)

        return self._drop_exclusively([begin, end, threshold], drop)

    def _drop_exclusively(
        self, arrived: Sequence[tf.Tensor], drop: Callable[[], tuple[list, tf.Tensor]]
    ) -> tf.Operation:
        def body() -> list[tf.Operation]:
            ops, num_dropped = drop()
            changes = {"free": num_dropped, "evicted": num_dropped, "removed": num_dropped}
            with tf.control_dependencies(ops):
                return [self.store.count(index.changes_of(changes))]

        return self.store.exclusively(arrived, body)

    def _rebuild(self) -> tf.Operation:
        """Returns the operation that removes the marks of dropped rows from the index of a dynamic table."""
        def body() -> list[tf.Operation]:
            removed = index.count_of(index.read_whole(self.store.counts), "removed")
            with tf.control_dependencies([removed, self.store.index.rebuild()]):
                return [self.store.count(index.changes_of({"removed": -removed}))]

        return self.store.exclusively([], body)

    def _make_file_ops(self, device: str, piece: Sequence[tf.Tensor], seen: tf.Tensor | None) -> FileOps:
        """Adds the operations with files that the machine of `device` writes and reads."""
        with tf.device(device or None):
            save = tf.raw_ops.SaveV2(prefix=self._prefix, tensor_names=self._names, tensors=piece,
                                     shape_and_slices=[""] * len(PARTS))
            loaded = self.of_ps(self._saved_piece())  # here: what belongs to other ps is not transferred
        load = self.load_piece(loaded, keeps_present=self._keeps_present)
        if seen is None:
            return FileOps(save, load, None, None)
        with tf.device(device or None):
            slices = {"prefix": self._prefix, "tensor_names": [self._seen_name], "shape_and_slices": [""]}
            save_seen = tf.raw_ops.SaveV2(**slices, tensors=[seen])
            (saved,) = tf.raw_ops.RestoreV2(**slices, dtypes=[seen.dtype])
        arrived = tf.identity(saved)
        load_seen = self.store.exclusively([arrived], lambda: [self.store.index.raise_seen(arrived)])
        return FileOps(save, load, save_seen, load_seen)

    def _saved_piece(self) -> Piece:
        """Returns a piece of a checkpoint; without slots if the table is only read."""
        num_slots = self.store.width - self.store.spec.dim
        num_parts = len(PARTS) if num_slots else 3
        read = tf.raw_ops.RestoreV2(
            prefix=self._prefix, tensor_names=self._names[:num_parts], shape_and_slices=[""] * num_parts,
            dtypes=[tf.int64, tf.int32, tf.float32, tf.float32][:num_parts])
        shapes = [[None], [None], [None, self.store.spec.dim], [None, num_slots]]
        parts = [tf.ensure_shape(part, shape) for part, shape in zip(read, shapes)]
        return Piece(*parts, *([] if num_slots else [tf.zeros([tf.size(parts[0]), 0])]))

    @property
    def _files(self) -> FileOps:
        return self._file_ops[self.uses_ps_files]

    @property
    def rows_per_piece(self) -> int:
        """The rows that are saved together."""
        return max(1, _PIECE_BYTES // (tf.float32.size * self.store.width + _BYTES_PER_ROW))

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
        num_places, ranges = self._num_places(counts), []
        for begin in range(0, num_places, _COUNTED_ROWS):
            end = min(begin + _COUNTED_ROWS, num_places)
            count = session.run(self._count, {self._begin: begin, self._end: end, self._since: _mark_before(since)})
            size = (end - begin) if count <= self.rows_per_piece else self.rows_per_piece
            ranges += [(first, min(first + size, end)) for first in range(begin, end, size)] if count else []
        return ranges

    def save_call(self, prefix: str, name: str, rows: tuple[int, int], since: int) -> Call:
        """Returns the call that writes a range of rows to a file."""
        return self._files.save, {self._prefix: prefix, self._names: _part_names(name), self._begin: rows[0],
                               self._end: rows[1], self._since: _mark_before(since)}

    def load_call(self, path: str, name: str, *, keeps_present: bool) -> Call:
        """Returns the call that reads the rows of this ps from a piece; see `load_piece`."""
        return self._files.load, {self._prefix: path, self._names: _part_names(name),
                                  self._keeps_present: keeps_present}

    def save_seen(self, session: tf.Session, prefix: str, name: str) -> None:
        """Writes how often ids without a row were seen to a file; only if `counts_unseen`."""
        session.run(self._files.save_seen, {self._prefix: prefix, self._seen_name: name})

    def load_seen(self, session: tf.Session, path: str, name: str) -> None:
        """Raises these counts to those in a checkpoint."""
        session.run(self._files.load_seen, {self._prefix: path, self._seen_name: name})

    def sample_marks(self, session: tf.Session, count: int) -> np.ndarray:
        """Returns the marks of at most `count` rows, drawn at random."""
        return session.run(self._sample_op, {self._number: count})

    def drop(self, session: tf.Session, oldest: int, num_used: int, *, part: float = 0.0) -> None:
        """Drops the rows that were last touched before update `oldest`, and this part of those touched by just that."""
        self._drop_pieces(session, num_used, self._drop_op, {self._since: min(oldest, LAST_MARK), self._part: part})

    def drop_small(self, session: tf.Session, threshold: float, num_used: int) -> None:
        """Drops the rows whose value has a Euclidean norm below `threshold`."""
        self._drop_pieces(session, num_used, self._drop_small_op, {self._threshold: threshold})

    def _drop_pieces(self, session: tf.Session, num_used: int, op: tf.Operation, feed: Mapping[Any, Any]) -> None:
        for begin in range(0, num_used, _COUNTED_ROWS):
            session.run(op, {self._begin: begin, self._end: min(begin + _COUNTED_ROWS, num_used), **feed})
        counts = dict(zip(COUNTS, session.run(self.counts)))
        # An id that was removed keeps its bucket. TensorFlow makes new buckets when four fifths are taken by ids.
        if counts["removed"] > _REMOVED_PART * max(counts["used"] - counts["free"], FIRST_BUCKETS):
            session.run(self._rebuild_op)


def _mark_before(number: int) -> int:
    """Returns a mark below those of all later updates than that with the number."""
    return min(number, LAST_MARK - 1)


def _part_names(name: str) -> list[str]:
    return [f"{name}/{part}" for part in PARTS]
