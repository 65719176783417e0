"""The hash table of a dynamic table: id -> row number, in TensorFlow's MutableDenseHashTable.

    insert --> table --find--> row number
    rebuild    table --ids that are left--> second table --> table
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from ps_train.parts.tables.hashing import scramble, scrambled
from ps_train.parts.tables.rules import DELETED_KEY, EMPTY_KEY

FIRST_BUCKETS, _MAX_BUCKETS = 2**14, 2**30
_MAX_LOAD = 0.8  # of the buckets: beyond it, TensorFlow doubles them
_MARGIN = 1.05  # no ps has exactly its share of the ids, and TensorFlow counts those of a batch as new ones
_EMPTY, _DELETED = scrambled(EMPTY_KEY), scrambled(DELETED_KEY)
_COPIED_BUCKETS = 2**18  # are put into the second table together


class IdMap:
    """Scrambled id -> row number, in TensorFlow's MutableDenseHashTable.

    An id that was removed leaves a mark in its bucket, which TensorFlow never clears. If ids and marks filled all
    buckets, every search for an unknown id would fail ("Internal error in MutableDenseHashTable lookup"). So after many
    removals the ids are copied to a second table, whose contents then replace those of the first in one operation.
    """

    def __init__(self, name: str) -> None:
        """Creates the hash tables; the name is unique in the process."""
        self._table, self._second = _make_table(name), _make_table(f"{name}_second")

    @property
    def resources(self) -> list[tf.Tensor]:
        """Both tables."""
        return [self._table, self._second]

    def over(self, resources: Sequence[tf.Tensor]) -> IdMap:
        """Returns this map over other tables."""
        other = copy.copy(self)
        vars(other).update(zip(("_table", "_second"), resources))
        return other

    def reset(self, expected: tf.Tensor | int) -> list[tf.Operation]:
        """Returns the operations that empty it and make room for so many ids; with more, it doubles."""
        return [_clear(self._table, _num_buckets(expected)), _clear(self._second, FIRST_BUCKETS)]

    def find(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns row numbers int64 [n], -1 for ids that it does not have."""
        rows = tf.raw_ops.LookupTableFindV2(
            table_handle=self._table, keys=_keys(ids), default_value=tf.constant([-1], tf.int64))
        return tf.reshape(rows, [-1])

    def insert(self, ids: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
        """Returns the operation that adds ids; one that is there would come twice where an id before it was removed."""
        return _insert(self._table, _keys(ids), rows)

    def remove(self, ids: tf.Tensor) -> tf.Operation:
        """Returns the operation that removes ids."""
        return tf.raw_ops.LookupTableRemoveV2(table_handle=self._table, keys=_keys(ids))

    def rebuild(self) -> tf.Operation:
        """Returns the operation that removes the marks of removed ids. Searches may run meanwhile, changes must not."""
        old = tf.raw_ops.LookupTableExportV2(table_handle=self._table, Tkeys=tf.int64, Tvalues=tf.int64)
        keys, rows = tf.reshape(old.keys, [-1]), tf.reshape(old.values, [-1])
        num_buckets = tf.size(keys, out_type=tf.int64)

        def copy(begin: tf.Tensor) -> tf.Tensor:
            end = tf.minimum(begin + _COPIED_BUCKETS, num_buckets)
            piece, numbers = keys[begin:end], rows[begin:end]
            with_id = tf.squeeze(tf.where(tf.not_equal(piece, _EMPTY) & tf.not_equal(piece, _DELETED)), 1)
            with tf.control_dependencies([_insert(
                    self._second, tf.gather(piece, with_id)[:, tf.newaxis], tf.gather(numbers, with_id))]):
                return tf.identity(end)

        copied = tf.while_loop(lambda begin: begin < num_buckets, copy, [tf.constant(0, tf.int64)],
                               parallel_iterations=1)
        with tf.control_dependencies([copied]):
            # Both tables share memory for a moment, until the second one gets new memory.
            exported = tf.raw_ops.LookupTableExportV2(table_handle=self._second, Tkeys=tf.int64, Tvalues=tf.int64)
        with tf.control_dependencies([_replace(self._table, exported.keys, exported.values)]):
            return _clear(self._second, FIRST_BUCKETS)


def _make_table(name: str) -> tf.Tensor:
    # Keys and values have the shape [1]: with scalars, TensorFlow's import, which empties a table, ends the process.
    return tf.raw_ops.MutableDenseHashTableV2(
        empty_key=tf.constant([_EMPTY], tf.int64), deleted_key=tf.constant([_DELETED], tf.int64),
        value_dtype=tf.int64, value_shape=[1], initial_num_buckets=FIRST_BUCKETS, shared_name=name, container="")


def _keys(ids: tf.Tensor) -> tf.Tensor:
    return tf.expand_dims(scramble(ids), 1)


def _insert(table: tf.Tensor, keys: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=keys, values=tf.expand_dims(rows, 1))


def _num_buckets(expected: tf.Tensor | int) -> tf.Tensor:
    """Returns the lowest power of two, as TensorFlow needs, of buckets that do not grow with so many ids."""
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
