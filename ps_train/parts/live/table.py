"""The rows of a table in a live model: which rows there are changes while predictions read them.

    main_op    pieces in variables/ --> rows, index          when the model is loaded
    live_rows  ids, rows, dropped   --> rows, then index     so a search finds an id only when its row is there

A dropped row's number is given to another id only after the next commit: a prediction that has found the number reads
the row a moment later. All kinds of tables have an index here, so memory is used for rows that exist.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.tables import index
from ps_train.parts.tables.index import count_of, make_variable, read_whole, replace_value
from ps_train.parts.tables.rules import DELETED_KEY, Frozen, TableSpec
from ps_train.parts.tables.store import Store

_REMOVED_PART = 8  # an index is rebuilt when it has removed an eighth of its rows
_MIN_REMOVED = 2**13


class LiveTable(Store):
    """A table of one process whose rows can be set and dropped.

    Attributes:
      spec: the table, as one with an index.
      capacity: rows that it has room for.
      scope: of the names in the checkpoint.
    """

    index: Any  # a HashIndex

    def __init__(self, spec: TableSpec, *, capacity: int, expected: int, uid: str) -> None:
        """Adds the variables to the current graph.

        Args:
          capacity: rows that it has room for.
          expected: rows for which its index has room at first; it grows if there are more.
          uid: another one for each export, as a process may load several into one place for resources.
        """
        self.capacity, self._expected, self._uid = capacity, expected, uid
        self.scope = f"ps_train/live/{spec.name}"
        super().__init__(
            dataclasses.replace(spec, rule=Frozen(learning_rate=0.0), num_rows=None, num_hashes=0, min_count=1,
                                max_rows=None, expected_rows=None, ttl_steps=None, ttl_secs=None),
            ps=0, num_ps=1, device="")
        with self.on_ps():
            # The numbers of rows that were dropped since the last commit.
            self._dropped = make_variable(f"{self._name}/dropped", tf.int64, [None])

    @property
    def _name(self) -> str:
        return f"ps_train/live/{self._uid}/{self.spec.name}"

    def load(self, prefix: tf.Tensor) -> tf.Operation:
        """Returns the operation that reads all pieces of a checkpoint, one at a time, into an empty table."""
        with tf.control_dependencies(self._empty()):
            num_pieces = _restore(prefix, [f"{self.scope}/num_pieces"], [tf.int64])[0]

        def load_piece(number: tf.Tensor) -> tf.Tensor:
            begin = tf.strings.join([f"{self.scope}/", tf.strings.as_string(number), "/"])
            names = tf.stack([begin + part for part in ("ids", "rows")])
            ids, rows = _restore(prefix, names, [tf.int64, tf.float32])
            with tf.control_dependencies(self._set(ids, rows, tf.constant(0, tf.int64))):
                return number + 1

        return tf.while_loop(lambda number: number < tf.reshape(num_pieces, []), load_piece,
                             [tf.constant(0, tf.int64)], parallel_iterations=1, back_prop=False).op

    def _empty(self) -> list[tf.Operation]:
        # `Empty` leaves the memory as it is: a row is written before it is read.
        rows = tf.raw_ops.Empty(
            shape=tf.constant([self.capacity, self.format.stored_width]), dtype=tf.float32, init=False)
        capacity = tf.constant(self.capacity, tf.int64)
        return [replace_value(self.rows, rows),
                replace_value(self.counts, index.changes_of({"capacity": capacity})),
                tf.raw_ops.AssignVariableOp(resource=self._dropped.handle, value=tf.zeros([0], tf.int64)),
                *self.index.reset(capacity, tf.constant(self._expected, tf.int64))]

    def _set(self, ids: tf.Tensor, rows: tf.Tensor, number: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that set rows float32 [n, dim] of ids int64 [n]; there must be room."""
        ids, rows = tf.reshape(ids, [-1]), tf.reshape(rows, [-1, self.width])
        placement = self.index.place(ids, read_whole(self.counts), admits_all=True)
        marks = tf.fill(tf.shape(placement.rows), tf.cast(number, tf.int32))
        return self.write_all(placement, placement.of_kept(rows), marks, placement.counted)

    def change(self, ids: tf.Tensor, rows: tf.Tensor, dropped: tf.Tensor, number: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that drop rows and then set others; they must run exclusively.

        If an input is wrong, or there is no room, they fail before they change anything.

        Args:
          ids: int64 [n], each once.
          rows: float32 [n, dim]; of any second dimension if n is 0.
          dropped: int64 [m].
          number: int64 scalar, of the push.
        """
        with tf.control_dependencies([*self._form_checks(ids, rows), self._room_check(ids)]):
            # An id that comes with a row keeps it.
            removed = self._remove(tf.raw_ops.ListDiff(x=tf.unique(dropped)[0], y=ids).out)
        with tf.control_dependencies(removed):
            shaped = tf.reshape(rows, tf.stack([tf.size(ids), self.width]))
            return self._set(tf.identity(ids), shaped, number)

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

    def _room_check(self, ids: tf.Tensor) -> tf.Operation:
        num_new = tf.reduce_sum(tf.cast(self.index.find(ids) < 0, tf.int64))
        room = self.capacity - self.num_used()
        return ensure(
            num_new <= room, f"live_rows/{self.spec.name}: got {{}} new ids, and there is room for {{}} of "
            f"{self.capacity} rows; export a new version of the model, with more --live_head_room", num_new, room)

    def _remove(self, ids: tf.Tensor) -> list[tf.Operation]:
        found = self.index.find(ids)
        exists = found >= 0
        numbers = tf.boolean_mask(found, exists)
        removed = self.index.remove(tf.boolean_mask(ids, exists), numbers)
        changes = index.changes_of({"removed": tf.size(numbers), "evicted": tf.size(numbers)})
        return [*removed, self.count(changes), tf.raw_ops.AssignVariableOp(
            resource=self._dropped.handle, value=tf.concat([read_whole(self._dropped), numbers], 0))]

    def release(self) -> list[tf.Operation]:
        """Returns the operations that offer the rows that were dropped until now for new ids; run exclusively."""
        numbers = read_whole(self._dropped)
        with tf.control_dependencies([self.index.free(numbers)]):
            freed = self.count(index.changes_of({"free": tf.size(numbers)}))
        with tf.control_dependencies([freed]):
            emptied = tf.raw_ops.AssignVariableOp(resource=self._dropped.handle, value=tf.zeros([0], tf.int64))
            counts = read_whole(self.counts)
        removed = count_of(counts, "removed")
        is_due = removed > tf.maximum(count_of(counts, "used") // _REMOVED_PART, _MIN_REMOVED)

        def rebuild() -> tf.Tensor:
            with tf.control_dependencies([self.index.rebuild()]):
                counted = self.count(index.changes_of({"removed": -removed}))
            with tf.control_dependencies([counted]):
                return tf.constant(True)

        return [emptied, tf.cond(is_due, rebuild, lambda: tf.constant(False)).op]

    def num_used(self) -> tf.Tensor:
        """Returns how many row numbers are taken, int64 scalar: by ids, and by rows dropped since the last commit."""
        counts = read_whole(self.counts)
        return count_of(counts, "used") - count_of(counts, "free")


def ensure(condition: tf.Tensor, message: str, *values: tf.Tensor) -> tf.Operation:
    """Returns an operation that fails with a message, whose `{}` are these values, if a condition does not hold."""
    return tf.raw_ops.Assert(condition=condition, data=[tf.strings.format(message, values)])


def _restore(prefix: tf.Tensor, names: Any, dtypes: list[tf.DType]) -> list[tf.Tensor]:
    return tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(dtypes), dtypes=dtypes)
