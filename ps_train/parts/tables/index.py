"""How a store finds the row of an id, and where it makes new rows: by the id itself, or by a hash table.

    FixedIndex   row number = hashing.fixed_row_of; a row exists once it has a mark
    HashIndex    id -> row number in a hash table; new ids get the numbers of dropped rows, then unused ones
    IdMap        that hash table

And the operations on the variables of a store, which touch single rows and never copy a whole table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.tables.hashing import fixed_id_of, fixed_row_of, scramble, scrambled
from ps_train.parts.tables.rules import DELETED_KEY, EMPTY_KEY

FIRST_BUCKETS, _MAX_BUCKETS = 2**14, 2**30
_MAX_LOAD = 0.8  # of the buckets: beyond it, TensorFlow doubles them
_MARGIN = 1.05  # no ps has exactly its share of the ids, and TensorFlow counts those of a batch as new ones
_EMPTY, _DELETED = scrambled(EMPTY_KEY), scrambled(DELETED_KEY)
_COPIED_BUCKETS = 2**18  # are put into the second table together
_NUM_SEEN = 2**22  # counters for ids without a row
# The elements of the variable `counts` of a store: updates; rows ever used, dropped rows that can be reused, the
# capacity; ids that updates have found, and not found; rows made, dropped; ids refused because the store was full; rows
# dropped since the index was built.
COUNTS = ("updates", "used", "free", "capacity", "hits", "misses", "admitted", "evicted", "refused", "removed")


class Placement(NamedTuple):
    """Where the rows of ids are.

    Attributes:
      kept: int64 [m], the positions of the ids that have rows now; None if all have.
      ids: int64 [m], these ids.
      rows: int64 [m], their row numbers.
      new: int64 [k], the positions in `rows` of new rows, which have no contents yet.
      publish: returns the operations after which a search finds the new rows. They come last: a search takes no lock,
        and the rows that it finds must have contents.
      counted: changes of the store's counts.
    """

    kept: tf.Tensor | None
    ids: tf.Tensor
    rows: tf.Tensor
    new: tf.Tensor
    publish: Callable[[], list[tf.Operation]]
    counted: Mapping[str, tf.Tensor]

    def of_kept(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the values [n, ...] of the ids that have rows, [m, ...]."""
        return values if self.kept is None else tf.gather(values, self.kept)


class FixedIndex:
    """Rows of a table with a fixed number of rows."""

    def __init__(self, marks: tf.Variable, *, ps: int, num_ps: int) -> None:
        """Takes the marks of a store; adds no variables."""
        self._marks, self._ps, self._num_ps = marks, ps, num_ps

    def reset(self, capacity: tf.Tensor, expected: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that empty the index; the marks must be zeros here."""
        del expected  # nothing grows
        return [replace_value(self._marks, tf.zeros(tf.reshape(capacity, [1]), tf.int32))]

    def find(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns row numbers int64 [n], -1 for ids without a row."""
        numbers = fixed_row_of(ids, self._num_ps)
        exists = gather(self._marks, numbers) > 0
        return tf.where(exists, numbers, tf.fill(tf.shape(numbers), tf.constant(-1, tf.int64)))

    def place(self, ids: tf.Tensor, counts: tf.Tensor, *, admits_all: bool = False) -> Placement:
        """Returns where the rows of ids are; each id has one."""
        del counts, admits_all  # for dynamic tables
        new = places_where(self.find(ids) < 0)
        return Placement(None, ids, fixed_row_of(ids, self._num_ps), new, list,
                         {"used": tf.size(new, out_type=tf.int64), "admitted": tf.size(new, out_type=tf.int64)})

    def changed(self, begin: tf.Tensor, end: tf.Tensor, since: tf.Tensor) -> tf.Tensor:
        """Returns the numbers from begin to end - 1 of the rows with a mark above `since`."""
        numbers = tf.range(begin, end)
        return tf.gather(numbers, places_where(gather(self._marks, numbers) > tf.maximum(since, 0)))

    def ids_of(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the ids of row numbers."""
        return fixed_id_of(numbers, self._ps, self._num_ps)


class HashIndex:
    """Rows of a dynamic table."""

    def __init__(self, name: str, marks: tf.Variable, counts: tf.Variable, *, min_count: int) -> None:
        """Creates the hash tables and the variables.

        Args:
          name: of the store, unique on the ps.
          marks, counts: variables of the store.
          min_count: see `TableSpec`.
        """
        self._marks, self._counts, self._min_count = marks, counts, min_count
        self._ids = make_variable(f"{name}/ids", tf.int64, [None])
        self._free = make_variable(f"{name}/free", tf.int64, [None])
        self._seen = make_variable(f"{name}/seen", tf.int32, [_NUM_SEEN]) if min_count > 1 else None
        self._map = IdMap(f"{name}/index")

    def reset(self, capacity: tf.Tensor, expected: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that empty the index; see `StoreOps`."""
        shape = tf.cast(tf.reshape(capacity, [1]), tf.int32)
        # The system provides memory as it is written, and only rows that exist are ever read.
        emptied = [replace_value(variable, tf.raw_ops.Empty(shape=shape, dtype=variable.dtype.base_dtype, init=False))
                   for variable in (self._ids, self._free, self._marks)]
        return [*emptied, *self._map.reset(expected), *([] if self._seen is None else [self._seen.initializer])]

    def find(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns row numbers int64 [n], -1 for ids without a row."""
        return self._map.find(ids)

    def read_seen(self) -> tf.Tensor | None:
        """Returns how often ids without a row were seen, by hash, uint16 [2^22]; None if this is not counted."""
        if self._seen is None:
            return None
        return tf.cast(tf.minimum(read_whole(self._seen), tf.uint16.max), tf.uint16)

    def raise_seen(self, minimum: tf.Tensor) -> tf.Operation:
        """Returns the operation that raises these counts to at least `minimum`, uint16 [2^22]."""
        minimum = tf.cast(tf.ensure_shape(minimum, [_NUM_SEEN]), tf.int32)
        raised = tf.maximum(read_whole(self._seen), minimum)
        return tf.raw_ops.AssignVariableOp(resource=self._seen.handle, value=raised)

    def raise_seen_of(self, ids: tf.Tensor, minimum: tf.Tensor) -> tf.Operation:
        """Returns the operation that raises the counts of ids without a row, int64 [n], to at least int32 [n]."""
        return tf.group(*[tf.raw_ops.ResourceScatterMax(resource=self._seen.handle, indices=places, updates=minimum)
                          for places in self._places_of_counters(ids)])

    def place(self, ids: tf.Tensor, counts: tf.Tensor, *, admits_all: bool = False) -> Placement:
        """Returns where the rows of ids are, after making rows for admitted ids while there is room.

        Args:
          counts: the store's counts.
          admits_all: whether to admit ids that were seen fewer than `min_count` times.
        """
        used, free, capacity = (count_of(counts, name) for name in ("used", "free", "capacity"))
        known = self.find(ids)
        missing = places_where(known < 0)
        if self._seen is not None and not admits_all:
            missing = tf.gather(missing, places_where(self._is_admitted(tf.gather(ids, missing))))
        num_wanted = tf.size(missing, out_type=tf.int64)
        num_reused = tf.minimum(num_wanted, free)
        num_fresh = tf.minimum(num_wanted - num_reused, capacity - used)
        num_new = num_reused + num_fresh
        missing = missing[:num_new]
        order = tf.range(num_new)
        # Where nothing is free, element 0 is read, which always exists, and is not used.
        reused = gather(self._free, tf.maximum(free - 1 - order, 0))
        new_rows = tf.where(order < num_reused, reused, used + order - num_reused)
        new_ids = tf.gather(ids, missing)

        def publish() -> list[tf.Operation]:
            return [self._map.insert(new_ids, new_rows), write_rows(self._ids, new_rows, new_ids)]

        rows = tf.tensor_scatter_nd_update(known, tf.expand_dims(missing, 1), new_rows)
        kept = places_where(rows >= 0)
        return Placement(
            kept=kept, ids=tf.gather(ids, kept), rows=tf.gather(rows, kept),
            new=places_where(tf.gather(known, kept) < 0), publish=publish,
            counted={"used": num_fresh, "free": -num_reused, "admitted": num_new, "refused": num_wanted - num_new})

    def _is_admitted(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns whether ids without a row were seen often enough, this time included; bool [n].

        Each id has two counters, which others share, and the smaller count holds. So few ids are admitted early.
        """
        places = self._places_of_counters(ids)
        ones = tf.ones_like(ids, tf.int32)
        added = [tf.raw_ops.ResourceScatterAdd(resource=self._seen.handle, indices=place, updates=ones)
                 for place in places]
        with tf.control_dependencies(added):
            counts = [gather(self._seen, place) for place in places]
        return tf.minimum(*counts) >= self._min_count

    def _places_of_counters(self, ids: tf.Tensor) -> list[tf.Tensor]:
        return [tf.math.floormod(ids * factor + ids // _NUM_SEEN, _NUM_SEEN) for factor in (1, -7046029254386353131)]

    def changed(self, begin: tf.Tensor, end: tf.Tensor, since: tf.Tensor) -> tf.Tensor:
        """Returns the numbers from begin to end - 1 of the rows with a mark above `since`."""
        numbers = tf.range(begin, end)
        exists = tf.not_equal(gather(self._ids, numbers), EMPTY_KEY)
        return tf.gather(numbers, places_where(exists & (gather(self._marks, numbers) > since)))

    def ids_of(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the ids of row numbers."""
        return gather(self._ids, numbers)

    def sample_marks(self, count: tf.Tensor) -> tf.Tensor:
        """Returns the marks of all rows, or of `count` of them if there are more, drawn at random; int32 [n]."""
        used = count_of(read_whole(self._counts), "used")
        numbers = tf.cond(used <= count, lambda: tf.range(used),
                          lambda: tf.random.uniform(tf.reshape(count, [1]), maxval=used, dtype=tf.int64))
        exists = tf.not_equal(gather(self._ids, numbers), EMPTY_KEY)
        return gather(self._marks, tf.gather(numbers, places_where(exists)))

    def drop(self, begin: tf.Tensor, end: tf.Tensor, oldest: tf.Tensor) -> tuple[list[tf.Operation], tf.Tensor]:
        """Returns the operations that drop rows with a mark below `oldest`, and how many rows these are."""
        numbers = tf.range(begin, end)
        return self.drop_where(numbers, gather(self._marks, numbers) < oldest)

    def drop_where(self, numbers: tf.Tensor, is_dropped: tf.Tensor) -> tuple[list[tf.Operation], tf.Tensor]:
        """Returns the operations that drop rows, bool [n] for row numbers [n], and how many rows these are."""
        ids = gather(self._ids, numbers)
        places = places_where(tf.not_equal(ids, EMPTY_KEY) & is_dropped)
        dropped = tf.gather(numbers, places)
        removed = self.remove(tf.gather(ids, places), dropped)
        return [*removed, self.free(dropped)], tf.size(dropped, out_type=tf.int64)

    def remove(self, ids: tf.Tensor, numbers: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations after which no search finds these ids int64 [n] of rows."""
        removed = self._map.remove(ids)
        empty = tf.fill(tf.shape(numbers), tf.constant(EMPTY_KEY, tf.int64))
        with tf.control_dependencies([removed]):
            return [removed, write_rows(self._ids, numbers, empty)]

    def free(self, numbers: tf.Tensor) -> tf.Operation:
        """Returns the operation that offers the numbers of removed rows for new ones; `free` must be counted, too."""
        free = count_of(read_whole(self._counts), "free")
        return write_rows(self._free, free + tf.range(tf.size(numbers, out_type=tf.int64)), numbers)

    def rebuild(self) -> tf.Operation:
        """Returns the operation that removes the marks of removed ids. Searches may run meanwhile, changes must not."""
        return self._map.rebuild()


class IdMap:
    """Scrambled id -> row number, in TensorFlow's MutableDenseHashTable.

    An id that was removed leaves a mark in its bucket, which TensorFlow never clears. If ids and marks filled all
    buckets, every search for an unknown id would fail ("Internal error in MutableDenseHashTable lookup"). So after many
    removals the ids are copied to a second table, whose contents then replace those of the first in one operation.
    """

    def __init__(self, name: str) -> None:
        """Creates the hash tables; the name is unique in the process."""
        self._table, self._second = _make_table(name), _make_table(f"{name}_second")

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
            with_id = places_where(tf.not_equal(piece, _EMPTY) & tf.not_equal(piece, _DELETED))
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


def count_of(counts: tf.Tensor, name: str) -> tf.Tensor:
    """Returns one of a store's counts, int64 scalar."""
    return tf.unstack(counts)[COUNTS.index(name)]


def changes_of(counted: Mapping[str, tf.Tensor | int]) -> tf.Tensor:
    """Returns changes of the counts, int64 [number of COUNTS], by name."""
    zero = tf.constant(0, tf.int64)
    return tf.stack([tf.cast(counted[name], tf.int64) if name in counted else zero for name in COUNTS])


def places_where(condition: tf.Tensor) -> tf.Tensor:
    """Returns the positions at which a condition bool [n] holds, int64 [m]."""
    # In two operations; an index or `boolean_mask` makes 5 to 15, most of them constants, and a store has many such.
    return tf.squeeze(tf.where(condition), 1)


def gather(variable: tf.Variable, numbers: tf.Tensor) -> tf.Tensor:
    """Returns rows of a variable; never the whole of it, which would be copied."""
    rows = tf.raw_ops.ResourceGather(resource=variable.handle, indices=numbers, dtype=variable.dtype.base_dtype)
    rows.set_shape([None, *variable.shape[1:]])
    return rows


def make_variable(name: str, dtype: tf.DType, shape: Sequence[int | None]) -> tf.Variable:
    """Returns a variable in no collection: TensorFlow neither initialises, checks nor saves it."""
    first = [0 if size is None else size for size in shape]
    return tf.Variable(lambda: tf.zeros(first, dtype), trainable=False, collections=[], validate_shape=False, name=name,
                       shape=tf.TensorShape(shape), use_resource=True)


def read_whole(variable: tf.Variable) -> tf.Tensor:
    """Returns the whole value of a small variable."""
    value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype.base_dtype)
    value.set_shape(variable.shape)
    return value


def replace_value(variable: tf.Variable, value: tf.Tensor) -> tf.Operation:
    """Returns the operation that replaces the value, without a copy."""
    # A variable whose rows were read or written once copies what it is assigned, and so would take all of its memory.
    destroyed = tf.raw_ops.DestroyResourceOp(resource=variable.handle, ignore_lookup_error=True)
    with tf.control_dependencies([destroyed]):
        return tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def write_rows(variable: tf.Variable, numbers: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    """Returns the operation that sets rows; 4 to 6 times as fast as one that adds to them."""
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=numbers, updates=rows)
