"""How a store finds the row of an id, and where it makes new rows: by the id itself, or by a hash table.

    FixedIndex   row number = hashing.fixed_row_of; a row exists once it has a mark
    HashIndex    id -> row number in a hash table; new ids get the numbers of dropped rows, then unused ones

The hash table is in `id_map.py`. And the operations on the variables of a store, which touch single rows and never copy
a whole table.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.tables.hashing import fixed_id_of, fixed_row_of, random_bits
from ps_train.parts.tables.id_map import IdMap
from ps_train.parts.tables.rules import EMPTY_KEY

_SEEN_BITS = 22
_NUM_SEEN = 2**_SEEN_BITS  # counters for ids without a row
# The elements of the variable `counts` of a store: updates; rows ever used, dropped rows that can be reused, the
# capacity; ids that updates have found, and not found; rows made, dropped; ids refused because the store was full; rows
# dropped since the index was built.
COUNTS = ("updates", "used", "free", "capacity", "hits", "misses", "admitted", "evicted", "refused", "removed")


class Handle(NamedTuple):
    """A variable of which only the handle is known, such as an input of a function."""

    handle: tf.Tensor
    dtype: tf.DType
    shape: tf.TensorShape

    @classmethod
    def like(cls, variable: tf.Variable | Handle, handle: tf.Tensor) -> Handle:
        """Returns one of the type and the shape of a variable."""
        return cls(handle, variable.dtype, variable.shape)

    @classmethod
    def make(cls, name: str, dtype: tf.DType, shape: Sequence[int | None]) -> Handle:
        """Returns one with an operation of its own, where `make_variable` would add seven."""
        shape = tf.TensorShape(shape)
        return cls(tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=name, name=name), dtype, shape)

    def ref(self) -> Any:
        """Returns what stands for it as a key."""
        return self.handle.ref()

    def is_initialized(self) -> tf.Tensor:
        """Returns whether it has a value, a bool scalar."""
        return tf.raw_ops.VarIsInitializedOp(resource=self.handle)


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

    def __init__(
        self, name: str, marks: tf.Variable | Handle, counts: tf.Variable | Handle, *, min_count: int, make: Callable
    ) -> None:
        """Creates the hash tables and the variables.

        Args:
          name: of the store, unique on the ps.
          marks, counts: variables of the store.
          min_count: see `TableSpec`.
          make: `make_variable`, or `Handle.make`.
        """
        self._marks, self._counts, self._min_count = marks, counts, min_count
        self._ids, self._free = (make(f"{name}/{part}", tf.int64, [None]) for part in ("ids", "free"))
        self._seen = make(f"{name}/seen", tf.int32, [_NUM_SEEN]) if min_count > 1 else None
        self._map = IdMap(f"{name}/index")

    @property
    def resources(self) -> list[tf.Tensor]:
        """Its variables and tables, without those of the store."""
        variables = (self._ids, self._free, *([] if self._seen is None else [self._seen]))
        return [*(variable.handle for variable in variables), *self._map.resources]

    def over(self, resources: Sequence[tf.Tensor], marks: Handle, counts: Handle) -> HashIndex:
        """Returns this index over other resources, such as the inputs of a function."""
        other, taken = copy.copy(self), iter(resources)
        ids, free = (Handle.like(variable, next(taken)) for variable in (self._ids, self._free))
        seen = None if self._seen is None else Handle.like(self._seen, next(taken))
        vars(other).update(
            _marks=marks, _counts=counts, _ids=ids, _free=free, _seen=seen, _map=self._map.over(list(taken)))
        return other

    def reset(self, capacity: tf.Tensor, expected: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that empty the index; see `StoreOps`."""
        shape = tf.cast(tf.reshape(capacity, [1]), tf.int32)
        # The system provides memory as it is written, and only rows that exist are ever read.
        emptied = [replace_value(variable, tf.raw_ops.Empty(shape=shape, dtype=variable.dtype.base_dtype, init=False))
                   for variable in (self._ids, self._free, self._marks)]
        return [*emptied, *self._map.reset(expected), *([] if self._seen is None else [
            tf.raw_ops.AssignVariableOp(resource=self._seen.handle, value=tf.zeros([_NUM_SEEN], tf.int32))])]

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
        # Of all bits of an id, mixed: ids with the number of a field in their upper bits must not share both counters.
        return tf.unstack(random_bits(ids, 2, _SEEN_BITS, seed="sightings", number=0), axis=1)

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

    def drop(
        self, begin: tf.Tensor, end: tf.Tensor, *, oldest: tf.Tensor, part: tf.Tensor
    ) -> tuple[list[tf.Operation], tf.Tensor]:
        """Returns the operations that drop rows, and how many rows these are.

        Args:
          begin, end: the row numbers, as of `range`.
          oldest: rows with a lower mark are dropped.
          part: of the rows with just this mark, the part that is dropped, drawn at random; float32.
        """
        numbers = tf.range(begin, end)
        marks, drawn = gather(self._marks, numbers), tf.random.uniform(tf.shape(numbers))
        return self.drop_where(numbers, (marks < oldest) | (tf.equal(marks, oldest) & (drawn < part)))

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
    """Returns the operation that replaces the value, without a copy; the new one may follow from the old one."""
    # A variable whose rows were read or written once copies what it is assigned, and so would take all of its memory.
    with tf.control_dependencies([value]):  # what reads the old value for the new one would not find the variable
        destroyed = tf.raw_ops.DestroyResourceOp(resource=variable.handle, ignore_lookup_error=True)
    with tf.control_dependencies([destroyed]):
        return tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def write_rows(variable: tf.Variable, numbers: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    """Returns the operation that sets rows; 4 to 6 times as fast as one that adds to them."""
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=numbers, updates=rows)
