"""The rows of a table in a live model: which rows there are changes while predictions read them.

    variable     shape                    contents
    ids          [1 + exported] int64     the ids of the export, in ascending order; see `ExportedTable`
    numbers      [1 + exported] int64     the row number of each, -1 while it is dropped
    later        hash table               id -> row number, of ids that came later
    values       [1 + exported, ...]      the rows with the numbers from 0
    rows_1       [a quarter, ...]         those with the next numbers
    rows_2       [the rest, ...]          those with the next numbers, up to the capacity
    free         [...] int64              the numbers of rows that were dropped before the last commit
    dropped      [...] int64              those that were dropped since
    counts       [2] int64                numbers ever used; ids removed from `later` since it was built

    live_rows    ids, rows, dropped   --> rows, then numbers and `later`

So a search finds an id only when its row is there. A dropped row's number is given to another id only after the next
commit: a prediction that has found the number reads the row a moment later. A block of rows beyond `values` gets its
memory when a row comes that it is for.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.tables.exported import ExportedTable
from ps_train.parts.tables.id_map import FIRST_BUCKETS, IdMap
from ps_train.parts.tables.index import gather, make_variable, places_where, read_whole, replace_value, write_rows
from ps_train.parts.tables.rules import DELETED_KEY, TableSpec

_REMOVED_PART = 8  # the hash table is rebuilt when it has removed an eighth of its ids
_MIN_REMOVED = FIRST_BUCKETS // 8  # its ids and as many marks leave buckets empty; see `IdMap`
_FIRST_PART, _MIN_FIRST_ROWS = 4, 2**14  # the first block for new rows has a quarter of the exported ones
_EXPECTED_PART = 16  # the hash table has room for a sixteenth of the exported ids at first; it doubles when it is full


class _Block(NamedTuple):
    """The rows with the numbers from `begin` to `end` - 1, which the export does not have."""

    begin: int
    end: int
    rows: tf.Variable

    def holds(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns which numbers int64 [n] are in the block, bool [n]."""
        return (numbers >= self.begin) & (numbers < self.end)


class LiveTable(ExportedTable):
    """A table of one process whose rows can be set and dropped.

    Attributes:
      capacity: rows that it has room for.
    """

    def __init__(self, spec: TableSpec, *, num_rows: int, capacity: int, uid: str) -> None:
        """Adds the variables to the current graph.

        Args:
          num_rows: rows of the checkpoint.
          capacity: rows that it has room for, at least as many.
          uid: another one for each export, as a process may load several into one place for resources.
        """
        super().__init__(spec, num_rows)
        self.capacity, self._num_exported = capacity, num_rows
        name = f"ps_train/live/{uid}/{spec.name}"
        end, begin = 1 + capacity, 1 + num_rows
        middle = min(end, begin + max(math.ceil(num_rows / _FIRST_PART), _MIN_FIRST_ROWS))
        self._blocks = [
            _Block(first, last, make_variable(f"{name}/rows_{number}", tf.float32, [None, self.format.stored_width]))
            for number, (first, last) in enumerate([(begin, middle), (middle, end)], start=1) if first < last]
        self._later = IdMap(f"{name}/later")
        self._free, self._dropped = (make_variable(f"{name}/{part}", tf.int64, [None]) for part in ("free", "dropped"))
        self._counts = make_variable(f"{name}/counts", tf.int64, [2])

    def load(self) -> tf.Operation:
        """Returns the operation that prepares what the checkpoint of the model does not have."""
        none = tf.zeros([0], tf.int64)
        return tf.group(
            replace_value(self._counts, tf.stack([tf.constant(1 + self._num_exported, tf.int64), 0])),
            *(replace_value(variable, tf.identity(none)) for variable in (self._free, self._dropped)),
            *self._later.reset(tf.constant(self._num_exported // _EXPECTED_PART, tf.int64)))

    def find(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of the rows of ids, int64 [n], -1 for ids without a row."""
        return self._numbers_at(ids, self.places_of(ids))

    def _numbers_at(self, ids: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        is_reserved = ids <= DELETED_KEY  # the hash table fails at these, and no row has one
        later = self._later.find(tf.where(is_reserved, tf.zeros_like(ids), ids))
        numbers = tf.where(places < 0, later, gather(self.numbers, tf.maximum(places, 0)))
        return tf.where(is_reserved, -tf.ones_like(numbers), numbers)

    def rows_at(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the rows of these numbers int64 [n], as they are stored."""
        rows = gather(self.values, tf.where(numbers <= self._num_exported, numbers, tf.zeros_like(numbers)))
        for block in self._blocks:
            rows = self._with_rows_of(block, numbers, rows)
        return rows

    def _with_rows_of(self, block: _Block, numbers: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns rows, after those with numbers of a block are replaced by these."""
        places = places_where(block.holds(numbers))

        def replaced() -> tf.Tensor:
            found = gather(block.rows, tf.gather(numbers, places) - block.begin)
            return tf.tensor_scatter_nd_update(rows, places[:, tf.newaxis], found)

        # Without such rows it has no memory yet. It gets some by an assignment, which copies it if it was read before.
        return tf.cond(tf.size(places) > 0, replaced, lambda: tf.identity(rows))

    def change(self, ids: tf.Tensor, rows: tf.Tensor, dropped: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that drop rows and then set others; they must run exclusively.

        If an input is wrong, or there is no room, they fail before they change anything.

        Args:
          ids: int64 [n], each once.
          rows: float32 [n, dim]; of any second dimension if n is 0.
          dropped: int64 [m].
        """
        places = self.places_of(ids)
        known = self._numbers_at(ids, places)
        with tf.control_dependencies([*self._form_checks(ids, rows), self._room_check(known)]):
            # An id that comes with a row keeps it, so `known` stays right.
            removed = self._remove(tf.raw_ops.ListDiff(x=tf.unique(dropped)[0], y=ids).out)
        with tf.control_dependencies(removed):
            return self._set(ids, places, known, tf.reshape(rows, tf.stack([tf.size(ids), self.width])))

    def _form_checks(self, ids: tf.Tensor, rows: tf.Tensor) -> list[tf.Operation]:
        name, num_ids, shape = self.spec.name, tf.size(ids), tf.shape(rows)
        fits = tf.equal(shape[0], num_ids) & (tf.equal(num_ids, 0) | tf.equal(shape[1], self.width))
        least = tf.reduce_min(tf.concat([ids, [0]], 0))
        is_each_once = tf.equal(tf.size(tf.unique(ids)[0]), num_ids)
        return [
            ensure(fits, f"live_rows/{name}: got {{}} ids and rows of the shape {{}}; allowed: a row of {self.width} "
                   "floats for each id", num_ids, shape),
            ensure(least > DELETED_KEY, f"live_rows/{name}: got the id {{}}; allowed: above {DELETED_KEY}", least),
            ensure(is_each_once, f"live_rows/{name}: got {{}} ids, of which some come twice; give each once", num_ids)]

    def _room_check(self, known: tf.Tensor) -> tf.Operation:
        num_new = tf.reduce_sum(tf.cast(known < 0, tf.int64))
        room = self.capacity - self.num_used()
        return ensure(
            num_new <= room, f"live_rows/{self.spec.name}: got {{}} new ids, and there is room for {{}} of "
            f"{self.capacity} rows; export a new version of the model, with more --live_head_room", num_new, room)

    def _remove(self, ids: tf.Tensor) -> list[tf.Operation]:
        places = self.places_of(ids)
        numbers = self._numbers_at(ids, places)
        exported, later = (places_where(among & (numbers >= 0)) for among in (places >= 0, places < 0))
        removed = [
            write_rows(self.numbers, tf.gather(places, exported), -tf.ones_like(exported)),
            self._later.remove(tf.gather(ids, later))]
        dropped = tf.concat([read_whole(self._dropped), tf.gather(numbers, places_where(numbers >= 0))], 0)
        with tf.control_dependencies(removed):
            return [self._count(0, tf.size(later, out_type=tf.int64)),
                    tf.raw_ops.AssignVariableOp(resource=self._dropped.handle, value=dropped)]

    def _set(self, ids: tf.Tensor, places: tf.Tensor, known: tf.Tensor, rows: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that set rows float32 [n, dim] of ids int64 [n]; there must be room.

        Args:
          places: of the ids in `self.ids`.
          known: the numbers of their rows, -1 for those without one.
        """
        free, used = read_whole(self._free), read_whole(self._counts)[0]
        missing = places_where(known < 0)
        num_new, num_free = tf.size(missing, out_type=tf.int64), tf.size(free, out_type=tf.int64)
        num_reused = tf.minimum(num_new, num_free)
        new_numbers = tf.concat([free[:num_reused], used + tf.range(num_new - num_reused)], 0)
        numbers = tf.tensor_scatter_nd_update(known, missing[:, tf.newaxis], new_numbers)
        left_free = tf.identity(free[num_reused:])
        is_later = tf.gather(places, missing) < 0
        exported, later = places_where(~is_later), places_where(is_later)
        with tf.control_dependencies([numbers, left_free]):
            written = self._write(numbers, self.format.pack(rows))
        # Reads take no lock, so a row that they can find must have its contents.
        with tf.control_dependencies(written):
            published = [
                write_rows(self.numbers, tf.gather(places, tf.gather(missing, exported)),
                           tf.gather(new_numbers, exported)),
                self._later.insert(tf.gather(ids, tf.gather(missing, later)), tf.gather(new_numbers, later))]
        with tf.control_dependencies(published):
            return [self._count(num_new - num_reused, 0),
                    tf.raw_ops.AssignVariableOp(resource=self._free.handle, value=left_free)]

    def _write(self, numbers: tf.Tensor, stored: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that write rows, as they are stored, with these numbers."""
        exported = places_where(numbers <= self._num_exported)
        return [write_rows(self.values, tf.gather(numbers, exported), tf.gather(stored, exported)),
                *(self._write_to(block, numbers, stored) for block in self._blocks)]

    def _write_to(self, block: _Block, numbers: tf.Tensor, stored: tf.Tensor) -> tf.Operation:
        places = places_where(block.holds(numbers))

        def provide() -> tf.Tensor:
            # `Empty` leaves the memory as it is: a row is written before it is read.
            rows = tf.raw_ops.Empty(shape=tf.constant([block.end - block.begin, self.format.stored_width]),
                                    dtype=tf.float32, init=False)
            with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=block.rows.handle, value=rows)]):
                return tf.constant(True)

        def write() -> tf.Tensor:
            is_there = tf.raw_ops.VarIsInitializedOp(resource=block.rows.handle)
            with tf.control_dependencies([tf.cond(is_there, lambda: tf.constant(True), provide)]):
                written = write_rows(block.rows, tf.gather(numbers, places) - block.begin, tf.gather(stored, places))
            with tf.control_dependencies([written]):
                return tf.constant(True)

        return tf.cond(tf.size(places) > 0, write, lambda: tf.constant(True)).op

    def release(self) -> list[tf.Operation]:
        """Returns the operations that offer the rows that were dropped until now for new ids; run exclusively."""
        numbers = tf.concat([read_whole(self._free), read_whole(self._dropped)], 0)
        with tf.control_dependencies([numbers]):
            freed = [tf.raw_ops.AssignVariableOp(resource=self._free.handle, value=numbers),
                     tf.raw_ops.AssignVariableOp(resource=self._dropped.handle, value=tf.zeros([0], tf.int64))]
        used, removed = tf.unstack(read_whole(self._counts))
        num_later = used - 1 - self._num_exported
        is_due = removed > tf.maximum(num_later // _REMOVED_PART, _MIN_REMOVED)

        def rebuild() -> tf.Tensor:
            with tf.control_dependencies([self._later.rebuild()]):
                counted = self._count(0, -removed)
            with tf.control_dependencies([counted]):
                return tf.constant(True)

        return [*freed, tf.cond(is_due, rebuild, lambda: tf.constant(False)).op]

    def _count(self, num_used: Any, num_removed: Any) -> tf.Operation:
        changes = tf.stack([tf.cast(change, tf.int64) for change in (num_used, num_removed)])
        return tf.raw_ops.AssignAddVariableOp(resource=self._counts.handle, value=changes)

    def num_used(self) -> tf.Tensor:
        """Returns how many rows are taken, int64 scalar: by ids, and by rows dropped since the last commit."""
        return read_whole(self._counts)[0] - 1 - tf.size(read_whole(self._free), out_type=tf.int64)


def ensure(condition: tf.Tensor, message: str, *values: tf.Tensor) -> tf.Operation:
    """Returns an operation that fails with a message, whose `{}` are these values, if a condition does not hold."""
    return tf.raw_ops.Assert(condition=condition, data=[tf.strings.format(message, values)])
