"""The hash table of a dynamic table on one ps: scrambled id -> row number, in TensorFlow's MutableDenseHashTable.

An id that was removed leaves a mark in its bucket, which TensorFlow never clears. If ids and marks filled all buckets,
every search for an unknown id would fail ("Internal error in MutableDenseHashTable lookup"). So after many removals the
ids are copied to a second table, which then takes the place of the first in one operation.
"""

from __future__ import annotations

import math

import tensorflow.compat.v1 as tf

from ps_train.parts.tables.rows.dealing import scramble, scrambled
from ps_train.parts.tables.rows.row_ops import gather
from ps_train.parts.tables.spec import DELETED_KEY, EMPTY_KEY

FIRST_BUCKETS, _MAX_BUCKETS = 2**14, 2**30
_MAX_LOAD = 0.8  # of the buckets, from which on TensorFlow makes twice as many
_MARGIN = 1.05  # no ps has exactly its share of the ids, and TensorFlow counts those of a batch as new ones
_EMPTY = scrambled(EMPTY_KEY)
_COPIED_ROWS = 2**18  # are put into the second table together


class IdTable:
    """Adds the operations of a hash table to the current graph; the operations are on the current device."""

    def __init__(self, name: str) -> None:
        """Creates the table.

        Args:
          name: unique on the ps.
        """
        self._table = _make_table(name)
        self._second = _make_table(f"{name}_second")

    def find(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the row numbers of ids int64 [n], -1 for those without a row."""
        found = tf.raw_ops.LookupTableFindV2(
            table_handle=self._table, keys=_keys(ids), default_value=tf.constant([-1], tf.int64))
        return tf.reshape(found, [-1])

    def insert(self, ids: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
        """Returns the operation that gives ids int64 [n] their row numbers."""
        return _insert(self._table, ids, rows)

    def remove(self, ids: tf.Tensor) -> tf.Operation:
        """Returns the operation that removes ids int64 [n]."""
        return tf.raw_ops.LookupTableRemoveV2(table_handle=self._table, keys=_keys(ids))

    def clear(self, expected: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that empty it, and make it large enough for `expected` ids, an int64 scalar."""
        return [_clear(self._table, _num_buckets(expected)), _clear(self._second, FIRST_BUCKETS)]

    def build_anew(self, id_of_row: tf.Variable, used: tf.Tensor) -> tf.Operation:
        """Returns the operation that removes the marks of removed ids. Searches may run meanwhile, changes must not.

        Args:
          id_of_row: int64 [capacity], EMPTY_KEY for rows without an id.
          used: int64 scalar; only so many rows have ever had an id.
        """
        def copy(begin: tf.Tensor) -> tf.Tensor:
            end = tf.minimum(begin + _COPIED_ROWS, used)
            numbers = tf.range(begin, end)
            ids = gather(id_of_row, numbers)
            has_id = tf.not_equal(ids, EMPTY_KEY)
            with tf.control_dependencies([
                    _insert(self._second, tf.boolean_mask(ids, has_id), tf.boolean_mask(numbers, has_id))]):
                return tf.identity(end)

        copied = tf.while_loop(lambda begin: begin < used, copy, [tf.constant(0, tf.int64)], parallel_iterations=1)
        with tf.control_dependencies([copied]):
            # Both tables have the same memory for a moment, until the second one gets its own.
            made = tf.raw_ops.LookupTableExportV2(table_handle=self._second, Tkeys=tf.int64, Tvalues=tf.int64)
        with tf.control_dependencies([_replace(self._table, made.keys, made.values)]):
            return _clear(self._second, FIRST_BUCKETS)


def _make_table(name: str) -> tf.Tensor:
    # Keys and values have the shape [1]: with scalars, TensorFlow's import, which empties a table, ends the process.
    return tf.raw_ops.MutableDenseHashTableV2(
        empty_key=tf.constant([_EMPTY], tf.int64), deleted_key=tf.constant([scrambled(DELETED_KEY)], tf.int64),
        value_dtype=tf.int64, value_shape=[1], initial_num_buckets=FIRST_BUCKETS, shared_name=name, container="")


def _keys(ids: tf.Tensor) -> tf.Tensor:
    return scramble(ids)[:, tf.newaxis]


def _insert(table: tf.Tensor, ids: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=_keys(ids), values=rows[:, tf.newaxis])


def _num_buckets(expected: tf.Tensor) -> tf.Tensor:
    """Returns a power of two, as TensorFlow needs: the least number of buckets that so many ids do not make grow."""
    least = tf.cast(expected, tf.float64) * (_MARGIN / _MAX_LOAD) / FIRST_BUCKETS
    doublings = tf.cast(tf.math.ceil(tf.math.log(tf.maximum(least, 1.0)) / math.log(2.0)), tf.int64)
    num_buckets = tf.bitwise.left_shift(tf.constant(FIRST_BUCKETS, tf.int64), doublings)
    return tf.minimum(num_buckets, _MAX_BUCKETS)


def _clear(table: tf.Tensor, num_buckets: tf.Tensor | int) -> tf.Operation:
    # The table takes over the memory of what it imports, and writes to it later. So this must be new memory in each
    # run, which a constant is not.
    shape = tf.stack([tf.cast(num_buckets, tf.int32), 1])
    zeros = [tf.raw_ops.Empty(shape=shape, dtype=tf.int64, init=True) for _ in range(2)]
    return _replace(table, zeros[0] + _EMPTY, zeros[1])


def _replace(table: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Operation:
    # TensorFlow's check of shapes refuses keys that are not scalars where it knows their shape.
    keys = tf.placeholder_with_default(keys, None)
    return tf.raw_ops.LookupTableImportV2(table_handle=table, keys=keys, values=values)
