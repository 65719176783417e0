"""How a store finds the row of an id, and where it makes new rows: by the id itself, or by a hash table.

    FixedIndex   row number = dealing.fixed_row_of; a row exists once it has a mark
    HashIndex    id -> row number in a hash table; new ids get the numbers of dropped rows, then unused ones
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.tables.rows.dealing import fixed_id_of, fixed_row_of
from ps_train.parts.tables.rows.id_table import IdTable
from ps_train.parts.tables.rows.row_ops import count_of, gather, make_variable, read_whole, replace_value, write_rows
from ps_train.parts.tables.spec import EMPTY_KEY

_NUM_SEEN = 2**22  # counters for ids without a row


class Placed(NamedTuple):
    """Where the rows of ids are.

    Attributes:
      kept: int64 [m], the positions of the ids that have rows now; None if all have.
      ids: int64 [m], these ids.
      rows: int64 [m], their row numbers.
      new: int64 [k], the positions in `rows` of those that were just made, and have no contents.
      publish: returns the operations after which a search finds the new rows. They come last: a search takes no lock,
        and what it finds must have contents.
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
        """Uses the marks of a store; it has no variables of its own."""
        self._marks, self._ps, self._num_ps = marks, ps, num_ps

    def reset(self, capacity: tf.Tensor, expected: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that empty the index; the marks must be zeros here."""
        del expected  # there is nothing that grows
        marks = tf.zeros(tf.reshape(capacity, [1]), tf.int32)
        return [replace_value(self._marks, marks)]

    def find(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns row numbers int64 [n], -1 for ids without a row."""
        numbers = self._numbers(ids)
        exists = gather(self._marks, numbers) > 0
        return tf.where(exists, numbers, tf.fill(tf.shape(numbers), tf.constant(-1, tf.int64)))

    def place(self, ids: tf.Tensor, counts: tf.Tensor, *, admits_all: bool = False) -> Placed:
        """Returns where the rows of ids are; each id has one."""
        del counts, admits_all  # for dynamic tables
        new = tf.where(self.find(ids) < 0)[:, 0]
        return Placed(None, ids, self._numbers(ids), new, list,
                      {"used": tf.size(new, out_type=tf.int64), "admitted": tf.size(new, out_type=tf.int64)})

    def _numbers(self, ids: tf.Tensor) -> tf.Tensor:
        return fixed_row_of(ids, self._num_ps)

    def changed(self, begin: tf.Tensor, end: tf.Tensor, since: tf.Tensor) -> tf.Tensor:
        """Returns the numbers from begin to end - 1 of the rows with a mark above `since`."""
        numbers = tf.range(begin, end)
        return tf.boolean_mask(numbers, gather(self._marks, numbers) > tf.maximum(since, 0))

    def ids_of(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the ids of row numbers."""
        return fixed_id_of(numbers, self._ps, self._num_ps)


class HashIndex:
    """Rows of a dynamic table."""

    def __init__(self, name: str, marks: tf.Variable, counts: tf.Variable, *, min_count: int) -> None:
        """Creates the hash table and its variables.

        Args:
          name: of the store, unique on the ps.
          marks, counts: variables of the store.
          min_count: see `TableSpec`.
        """
        self._marks, self._counts, self._min_count = marks, counts, min_count
        self._ids = make_variable(f"{name}/ids", tf.int64, [None])
        self._free = make_variable(f"{name}/free", tf.int64, [None])
        self._seen = make_variable(f"{name}/seen", tf.int32, [_NUM_SEEN]) if min_count > 1 else None
        self._table = IdTable(f"{name}/index")

    def reset(self, capacity: tf.Tensor, expected: tf.Tensor) -> list[tf.Operation]:
        """Returns the operations that empty the index; see `Store.reset`."""
        shape = tf.cast(tf.reshape(capacity, [1]), tf.int32)
        # The system gives memory when it is written, and only rows that were made are ever read.
        made = [replace_value(variable, tf.raw_ops.Empty(shape=shape, dtype=variable.dtype.base_dtype, init=False))
                for variable in (self._ids, self._free, self._marks)]
        made += self._table.clear(expected)
        if self._seen is not None:
            made.append(self._seen.initializer)
        return made

    def find(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns row numbers int64 [n], -1 for ids without a row."""
        return self._table.find(ids)

    def read_seen(self) -> tf.Tensor | None:
        """Returns how often ids without a row were seen, by hash, uint16 [2^22]; None if nobody counts."""
        if self._seen is None:
            return None
        return tf.cast(tf.minimum(read_whole(self._seen), tf.uint16.max), tf.uint16)

    def raise_seen(self, least: tf.Tensor) -> tf.Operation:
        """Returns the operation that raises these counts to at least `least`, uint16 [2^22]."""
        least = tf.cast(tf.ensure_shape(least, [_NUM_SEEN]), tf.int32)
        raised = tf.maximum(read_whole(self._seen), least)
        return tf.raw_ops.AssignVariableOp(resource=self._seen.handle, value=raised)

    def place(self, ids: tf.Tensor, counts: tf.Tensor, *, admits_all: bool = False) -> Placed:
        """Returns where the rows of ids are, after making rows for admitted ids, as long as there is room.

        Args:
          counts: the store's counts.
          admits_all: whether to admit ids that have come fewer than `min_count` times.
        """
        used, free, capacity = (count_of(counts, name) for name in ("used", "free", "capacity"))
        found = self.find(ids)
        missing = tf.where(found < 0)[:, 0]
        if self._seen is not None and not admits_all:
            missing = tf.boolean_mask(missing, self._is_admitted(tf.gather(ids, missing)))
        num_wanted = tf.size(missing, out_type=tf.int64)
        num_reused = tf.minimum(num_wanted, free)
        num_fresh = tf.minimum(num_wanted - num_reused, capacity - used)
        num_made = num_reused + num_fresh
        missing = missing[:num_made]
        order = tf.range(num_made)
        # Where nothing is free, element 0 is read, which always exists, and is not used.
        reused = gather(self._free, tf.maximum(free - 1 - order, 0))
        made = tf.where(order < num_reused, reused, used + order - num_reused)
        new_ids = tf.gather(ids, missing)

        def publish() -> list[tf.Operation]:
            return [self._table.insert(new_ids, made), write_rows(self._ids, made, new_ids)]

        everywhere = tf.tensor_scatter_nd_update(found, missing[:, tf.newaxis], made)
        kept = tf.where(everywhere >= 0)[:, 0]
        return Placed(
            kept=kept, ids=tf.gather(ids, kept), rows=tf.gather(everywhere, kept),
            new=tf.where(tf.gather(found, kept) < 0)[:, 0], publish=publish,
            counted={"used": num_fresh, "free": -num_reused, "admitted": num_made, "refused": num_wanted - num_made})

    def _is_admitted(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns whether ids without a row were seen often enough, this time included; bool [n].

        Each id counts in two places, and the smaller count holds, so few ids are admitted early.
        """
        places = [tf.math.floormod(ids * factor + ids // _NUM_SEEN, _NUM_SEEN) for factor in (1, -7046029254386353131)]
        ones = tf.ones_like(ids, tf.int32)
        added = [tf.raw_ops.ResourceScatterAdd(resource=self._seen.handle, indices=place, updates=ones)
                 for place in places]
        with tf.control_dependencies(added):
            counts = [gather(self._seen, place) for place in places]
        return tf.minimum(*counts) >= self._min_count

    def changed(self, begin: tf.Tensor, end: tf.Tensor, since: tf.Tensor) -> tf.Tensor:
        """Returns the numbers from begin to end - 1 of the rows with a mark above `since`."""
        numbers = tf.range(begin, end)
        exists = tf.not_equal(gather(self._ids, numbers), EMPTY_KEY)
        return tf.boolean_mask(numbers, exists & (gather(self._marks, numbers) > since))

    def ids_of(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the ids of row numbers."""
        return gather(self._ids, numbers)

    def sample_marks(self, count: tf.Tensor) -> tf.Tensor:
        """Returns the marks of all rows, or of `count` of them if there are more, drawn at random; int32 [n]."""
        used = count_of(read_whole(self._counts), "used")
        numbers = tf.cond(used <= count, lambda: tf.range(used),
                          lambda: tf.random.uniform(tf.reshape(count, [1]), maxval=used, dtype=tf.int64))
        exists = tf.not_equal(gather(self._ids, numbers), EMPTY_KEY)
        return gather(self._marks, tf.boolean_mask(numbers, exists))

    def drop(self, begin: tf.Tensor, end: tf.Tensor, oldest: tf.Tensor) -> tuple[list[tf.Operation], tf.Tensor]:
        """Returns the operations that drop rows with a mark below `oldest`, and how many rows these are."""
        numbers = tf.range(begin, end)
        ids = gather(self._ids, numbers)
        is_old = tf.not_equal(ids, EMPTY_KEY) & (gather(self._marks, numbers) < oldest)
        dropped = tf.boolean_mask(numbers, is_old)
        num_dropped = tf.size(dropped, out_type=tf.int64)
        free = count_of(read_whole(self._counts), "free")
        empty = tf.fill(tf.shape(dropped), tf.constant(EMPTY_KEY, tf.int64))
        with tf.control_dependencies([self._table.remove(tf.boolean_mask(ids, is_old))]):
            marked = write_rows(self._ids, dropped, empty)
        freed = write_rows(self._free, free + tf.range(num_dropped), dropped)
        return [marked, freed], num_dropped

    def build_anew(self) -> tf.Operation:
        """Returns the operation that removes the marks of dropped rows from the hash table."""
        return self._table.build_anew(self._ids, count_of(read_whole(self._counts), "used"))
