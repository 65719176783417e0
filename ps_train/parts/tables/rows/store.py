"""The rows of one table on one ps: operations that find, read, update, drop, save and load rows.

    variable      shape               contents
    rows          [capacity, width]   value and slots of a row, side by side; uninitialised memory until a row is made
    marks         [capacity] int32    the number of the update that last touched a row; in a fixed table 0 for none
    counts        [10] int64          see row_ops.COUNTS
  and of a dynamic table
    index         hash table          id -> row number
    ids           [capacity] int64    row number -> id, EMPTY_KEY for a row that was dropped
    free          [capacity] int64    the numbers of the dropped rows, a stack
    seen          [2^22] int32        with min_count: how often ids without a row were seen, by hash

The operating system provides the memory of `rows` as rows are written, so a large capacity costs nothing. Every change
is in a critical section of the table on its ps. Reads take no lock. See docs/decisions/embeddings.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.graph.row_sparse.adam import run_exclusively
from ps_train.parts.tables.rows.dealing import owner_of
from ps_train.parts.tables.rows.first_values import first_values
from ps_train.parts.tables.rows.index import FixedIndex, HashIndex, Placed
from ps_train.parts.tables.rows.row_ops import (
    COUNTS,
    Piece,
    count_of,
    gather,
    make_variable,
    read_whole,
    replace_value,
    write_rows,
)
from ps_train.parts.tables.rules import Frozen
from ps_train.parts.tables.spec import MAX_ROWS_PER_PS, TableSpec


class Store:
    """Adds the operations on the rows of a table on one ps to the current graph."""

    def __init__(self, spec: TableSpec, *, ps: int, num_ps: int, device: str, is_exact: bool = True) -> None:
        """Creates the variables; `reset_op` gives them their first values.

        Args:
          spec: the table, with its rule.
          ps: the number of this ps, which has the ids of which `dealing.owner_of` is ps.
          device: of the ps; "" in a graph of one process.
          is_exact: whether one update at a time changes the rows. A dynamic table ignores it.

        Raises:
          ConfigError: a ps cannot hold as many rows.
        """
        _check_room(spec, num_ps)
        self.spec, self.ps, self.num_ps, self.device = spec, ps, num_ps, device
        self._is_exact = is_exact or spec.is_dynamic
        self.width = spec.dim + spec.rule.num_slots(spec.dim)
        with self._on_ps():
            self.rows = make_variable(f"{self._name}/rows", tf.float32, [None, self.width])
            self.marks = make_variable(f"{self._name}/marks", tf.int32, [None])
            self.counts = make_variable(f"{self._name}/counts", tf.int64, [len(COUNTS)])
            self._index = (
                HashIndex(self._name, self.marks, self.counts, min_count=spec.min_count) if spec.is_dynamic
                else FixedIndex(self.marks, ps=ps, num_ps=num_ps))

    @property
    def _name(self) -> str:
        return f"ps_train/table/{self.spec.name}/{self.ps}"

    @contextlib.contextmanager
    def _on_ps(self) -> Iterator[None]:
        with tf.name_scope(None), tf.device(None), tf.device(self.device or None):
            yield

    def reset(self, capacity: tf.Tensor, expected: tf.Tensor) -> tf.Operation:
        """Returns the operation that empties the store.

        Args:
          capacity: int64 scalar, the rows that it is given room for.
          expected: int64 scalar, the rows for which the index of a dynamic table is made; it grows if there are more.
        """
        with self._on_ps():
            capacity, expected = tf.identity(capacity), tf.identity(expected)
            # `Empty` leaves the memory as it is: a row is written before it is read.
            shape = tf.stack([tf.cast(capacity, tf.int32), self.width])
            rows = tf.raw_ops.Empty(shape=shape, dtype=tf.float32, init=False)
            counts = tf.one_hot(COUNTS.index("capacity"), len(COUNTS), capacity, tf.constant(0, tf.int64))
            return tf.group(replace_value(self.rows, rows), replace_value(self.counts, counts),
                            *self._index.reset(capacity, expected))

    def read(self, ids: tf.Tensor, *, with_slots: bool = False) -> tf.Tensor:
        """Returns the values of ids int64 [n], float32 [n, dim], with their slots [n, width] if asked for.

        Ids without a row have their first values.
        """
        with self._on_ps():
            found = self._index.find(ids)
            rows = gather(self.rows, tf.maximum(found, 0))
            if not with_slots:
                rows = tf.slice(rows, [0, 0], [-1, self.spec.dim])  # a split would copy the slots, too
            return self._with_first(rows, ids, tf.where(found < 0)[:, 0], with_slots=with_slots)

    def update(self, ids: tf.Tensor, gradients: tf.Tensor, factor: tf.Tensor | None = None) -> tf.Operation:
        """Returns the operation that updates rows by gradients float32 [n, dim] of ids int64 [n], each once.

        The learning rate of the rule is multiplied by `factor`, a float32 scalar.
        """
        with self._on_ps():
            rule = self.spec.rule.scaled(factor)
            with tf.control_dependencies([rule.learning_rate] if tf.is_tensor(rule.learning_rate) else []):
                gradients = tf.identity(gradients)  # the critical section begins when the rate is here, too

        def by_rule(rows: tf.Tensor, number: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
            return rule.update(rows, own, tf.cast(number, tf.float32))

        return self._change(ids, gradients, by_rule, num_floats=self.spec.dim)

    def merge(self, ids: tf.Tensor, changes: tf.Tensor) -> tf.Operation:
        """Returns the operation that adds what local steps have changed, float32 [n, width].

        See `RowRule.slot_merging` for the slots.
        """
        dim, num_slots = self.spec.dim, self.width - self.spec.dim

        def by_change(rows: tf.Tensor, number: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
            if self.spec.rule.slot_merging == "add" or not num_slots:
                return self.spec.rule.settle(rows + own)
            (value, _), (change, slots) = (tf.split(one, [dim, num_slots], axis=1) for one in (rows, own))
            return tf.concat([value + change, slots], 1)

        return self._change(ids, changes, by_change, num_floats=self.width)

    def _change(
        self, ids: tf.Tensor, given: tf.Tensor, change: Callable[..., tf.Tensor], *, num_floats: int
    ) -> tf.Operation:
        """Returns the operation that sets rows to `change(rows, number of the update, given rows)`.

        Args:
          given: float32 [n, num_floats], a row for each id.
        """
        def body() -> list[tf.Operation]:
            counts = read_whole(self.counts)
            number = count_of(counts, "updates") + 1
            placed = self._index.place(ids, counts)
            old = self._with_first(gather(self.rows, placed.rows), placed.ids, placed.new, with_slots=True)
            new = change(old, number, placed.of_kept(given))
            num_hits = tf.size(placed.rows, out_type=tf.int64) - tf.size(placed.new, out_type=tf.int64)
            num_misses = tf.size(ids, out_type=tf.int64) - num_hits
            counted = {"updates": 1, "hits": num_hits, "misses": num_misses, **placed.counted}
            marks = tf.fill(tf.shape(placed.rows), tf.cast(number, tf.int32))
            return self._write_all(placed, new, marks, counted)

        with self._on_ps():
            ids, given = tf.identity(ids), tf.ensure_shape(given, [None, num_floats])
            if self._is_exact:
                return run_exclusively(self._name, [ids, given], body)
            with tf.control_dependencies([ids, given]):
                return tf.group(*body())

    def _with_first(self, rows: tf.Tensor, ids: tf.Tensor, new: tf.Tensor, *, with_slots: bool) -> tf.Tensor:
        """Returns rows float32 [n, ...] with the first values of the ids at positions `new` int64 [m]."""
        spec = self.spec
        first = first_values(tf.gather(ids, new), spec.dim, limit=spec.initial_limit, seed=spec.name)
        if with_slots and self.width > spec.dim:
            first = tf.concat([first, spec.rule.first_slots(tf.size(new), spec.dim)], 1)
        return tf.tensor_scatter_nd_update(rows, new[:, tf.newaxis], first)

    def _write_all(
        self, placed: Placed, rows: tf.Tensor, marks: tf.Tensor, counted: Mapping[str, tf.Tensor | int]
    ) -> list[tf.Operation]:
        """Returns the operations that write what has changed, once everything that was to be read is read."""
        changes = _changes(counted)
        with tf.control_dependencies([rows, marks, changes]):
            contents = write_rows(self.rows, placed.rows, rows)
        # Reads take no lock, so a row that they can find must have its contents.
        with tf.control_dependencies([contents]):
            published = [write_rows(self.marks, placed.rows, marks), *placed.publish()]
        with tf.control_dependencies(published):
            return [self._count(changes)]

    def _count(self, changes: tf.Tensor) -> tf.Operation:
        return tf.raw_ops.AssignAddVariableOp(resource=self.counts.handle, value=changes)

    def read_counts(self) -> tf.Tensor:
        """Returns int64 [number of COUNTS]."""
        with self._on_ps():
            return read_whole(self.counts)

    def drop_rows(self, begin: tf.Tensor, end: tf.Tensor, oldest: tf.Tensor) -> tf.Operation:
        """Returns the operation that drops the rows with numbers from begin to end - 1 whose mark is below `oldest`."""
        def body() -> list[tf.Operation]:
            ops, num_dropped = self._index.drop(begin, end, oldest)
            with tf.control_dependencies(ops):
                return [self._count(_changes({"free": num_dropped, "evicted": num_dropped, "removed": num_dropped}))]

        with self._on_ps():
            begin, end, oldest = (tf.identity(number) for number in (begin, end, oldest))
            return run_exclusively(self._name, [begin, end, oldest], body)

    def build_index_anew(self) -> tf.Operation:
        """Returns the operation that removes the marks of dropped rows from the index of a dynamic table."""
        def body() -> list[tf.Operation]:
            removed = count_of(read_whole(self.counts), "removed")
            with tf.control_dependencies([removed, self._index.build_anew()]):
                return [self._count(_changes({"removed": -removed}))]

        with self._on_ps():
            return run_exclusively(self._name, [], body)

    def sample_marks(self, count: tf.Tensor) -> tf.Tensor:
        """Returns the marks of at most `count` rows of a dynamic table, drawn at random, int32 [n]."""
        with self._on_ps():
            return self._index.sample_marks(tf.identity(count))

    def count_since(self, begin: tf.Tensor, end: tf.Tensor, since: tf.Tensor) -> tf.Tensor:
        """Returns how many rows with numbers from begin to end - 1 were touched after update `since`, int64 scalar."""
        with self._on_ps():
            return tf.size(self._index.changed(*map(tf.identity, (begin, end, since))), out_type=tf.int64)

    def save_piece(self, begin: tf.Tensor, end: tf.Tensor, since: tf.Tensor) -> Piece:
        """Returns the rows with numbers from begin to end - 1 that were touched after update `since`, at one moment."""
        parts: list[tf.Tensor] = []

        def body() -> list[tf.Operation]:
            numbers = self._index.changed(begin, end, since)
            values, slots = tf.split(gather(self.rows, numbers), [self.spec.dim, self.width - self.spec.dim], axis=1)
            parts[:] = [self._index.ids_of(numbers), gather(self.marks, numbers), values, slots]
            return [part.op for part in parts]

        with self._on_ps():
            begin, end, since = (tf.identity(number) for number in (begin, end, since))
            # Otherwise a row could be dropped and made again, for another id, after its id was read.
            with tf.control_dependencies([run_exclusively(self._name, [begin, end, since], body)]):
                return Piece(*map(tf.identity, parts))

    def load_piece(self, piece: Piece, *, keeps_present: tf.Tensor) -> tf.Operation:
        """Returns the operation that sets the rows of this ps among those of a piece.

        Args:
          piece: any rows, also of other ps.
          keeps_present: bool scalar, whether rows that exist stay as they are.
        """
        def body() -> list[tf.Operation]:
            placed = self._index.place(own.ids, read_whole(self.counts), admits_all=True)
            rows = tf.concat([own.values, own.slots], 1) if self.width > self.spec.dim else own.values
            return self._write_all(placed, placed.of_kept(rows), placed.of_kept(own.marks),
                                   {**placed.counted, "admitted": 0})

        with self._on_ps():
            owners = owner_of(piece.ids, self.num_ps, is_dynamic=self.spec.is_dynamic)
            mine = tf.where(tf.equal(owners, self.ps))[:, 0]
            is_kept = keeps_present & (self._index.find(tf.gather(piece.ids, mine)) >= 0)
            wanted = tf.boolean_mask(mine, ~is_kept)
            own = Piece(*(tf.gather(part, wanted) for part in piece))
            return run_exclusively(self._name, list(own), body)

    def read_seen(self) -> tf.Tensor | None:
        """Returns how often ids without a row were seen, by hash, uint16 [2^22]; None if nobody counts."""
        with self._on_ps():
            return self._index.read_seen() if self.spec.is_dynamic else None

    def raise_seen(self, least: tf.Tensor) -> tf.Operation:
        """Returns the operation that raises these counts to at least `least`."""
        with self._on_ps():
            return run_exclusively(self._name, [tf.identity(least)], lambda: [self._index.raise_seen(least)])

    def set_updates(self, number: tf.Tensor) -> tf.Operation:
        """Returns the operation that sets how many updates there were, an int64 scalar."""
        with self._on_ps():
            return tf.raw_ops.ResourceScatterUpdate(
                resource=self.counts.handle, indices=COUNTS.index("updates"), updates=tf.identity(number))


def _check_room(spec: TableSpec, num_ps: int) -> None:
    """Raises ConfigError if no ps can hold its share of the rows that the model asks for."""
    is_read_only = isinstance(spec.rule, Frozen)
    rows = spec.rows_on_each(num_ps)
    # A dynamic table that is only read has as many rows as its checkpoint, and `max_rows` is for all ps together.
    if rows is None or rows <= MAX_ROWS_PER_PS or (is_read_only and spec.is_dynamic):
        return
    what = "max_rows" if spec.is_dynamic else "num_rows"
    total = spec.max_rows if spec.is_dynamic else spec.num_rows
    num_needed = -(-total // MAX_ROWS_PER_PS)
    advice = "evaluate with --evaluate_with=workers" if is_read_only else f"use {num_needed} or more ps"
    raise ConfigError(f"embedding_table {spec.name!r}: {what}={total} is {rows} rows on each ps; allowed: at "
                      f"most {MAX_ROWS_PER_PS}; {advice}, or a smaller {what}")


def _changes(counted: Mapping[str, tf.Tensor | int]) -> tf.Tensor:
    """Returns changes of the counts, int64 [number of COUNTS]."""
    return tf.stack([tf.cast(counted.get(name, 0), tf.int64) for name in COUNTS])
