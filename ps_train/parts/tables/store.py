"""The rows of one table on one ps, and the operations by which a step reads and updates them.

    variable      shape               contents
    rows          [capacity, ...]     value and slots of a row, side by side (rules.RowFormat); uninitialised memory
                                      until a row is made
    marks         [capacity] int32    the number of the update that last touched a row; in a fixed table 0 for none
    counts        [10] int64          see index.COUNTS
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
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable

import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.graph.adam import run_exclusively
from ps_train.parts.tables import index
from ps_train.parts.tables.hashing import Draws
from ps_train.parts.tables.index import COUNTS, FixedIndex, Handle, HashIndex, Placement, count_of, gather, read_whole
from ps_train.parts.tables.row_history import WithHistory, note_update
from ps_train.parts.tables.rules import ADD, MAX_ROWS_PER_PS, Frozen, TableSpec, mark_of

_VARIABLES = ("rows", "marks", "counts")


class Store:
    """Adds the operations on the rows of a table on one ps to the current graph."""

    _make_variable: Callable = staticmethod(index.make_variable)

    def __init__(self, spec: TableSpec, *, ps: int, num_ps: int, device: str, is_exact: bool = True) -> None:
        """Creates the variables; `StoreOps.reset` gives them their first values.

        Args:
          spec: the table, with its rule.
          ps: the number of this ps, which has the ids whose `hashing.owner_of` is ps.
          device: of the ps; "" in a graph of one process.
          is_exact: whether one update at a time changes the rows; always so in a dynamic table, and with a history.

        Raises:
          ConfigError: a ps cannot hold that many rows.
        """
        _check_room(spec, num_ps)
        self.spec, self.ps, self.num_ps, self.device = spec, ps, num_ps, device
        self._is_exact = is_exact or spec.is_dynamic or spec.has_history
        self.format = spec.row_format
        self.width = spec.dim + self.format.num_slots
        self._seed: str | Draws = spec.name
        self._section: str | tf.Tensor = self._name
        with self.on_ps():
            make = self._make_variable
            self.rows = make(f"{self._name}/rows", tf.float32, [None, self.format.stored_width])
            self.marks = make(f"{self._name}/marks", tf.int32, [None])
            self.counts = make(f"{self._name}/counts", tf.int64, [len(COUNTS)])
            self.index = (
                HashIndex(self._name, self.marks, self.counts, min_count=spec.min_count, make=make) if spec.is_dynamic
                else FixedIndex(self.marks, ps=ps, num_ps=num_ps))

    @property
    def _name(self) -> str:
        return f"ps_train/table/{self.spec.name}/{self.ps}"

    @contextlib.contextmanager
    def on_ps(self) -> Iterator[None]:
        """Places operations on the ps, in no name scope."""
        with tf.name_scope(None), tf.device(None), tf.device(self.device or None):
            yield

    def over(self, resources: Sequence[tf.Tensor], mutex: tf.Tensor, draws: Draws) -> Store:
        """Returns this store, of a dynamic table, over other resources, such as the inputs of a function.

        Args:
          resources: those in the place of `resources`.
          mutex: of its critical section.
          draws: of its first values.
        """
        other = object.__new__(Store)
        vars(other).update(vars(self), device="", _section=mutex, _seed=draws)
        for name, handle in zip(_VARIABLES, resources):
            setattr(other, name, Handle.like(getattr(self, name), handle))
        other.index = self.index.over(resources[len(_VARIABLES):], other.marks, other.counts)
        return other

    @property
    def resources(self) -> list[tf.Tensor]:
        """The variables and tables of a dynamic table."""
        return [*(getattr(self, name).handle for name in _VARIABLES), *self.index.resources]

    def read(self, ids: tf.Tensor, *, with_slots: bool = False) -> tf.Tensor:
        """Returns the values of ids int64 [n], float32 [n, dim], or [n, width] with their slots.

        Ids without a row have their first values, or those that `TableSpec.unseen` says.
        """
        with self.on_ps():
            numbers = self.index.find(ids)
            stored, missing = gather(self.rows, tf.maximum(numbers, 0)), index.places_where(numbers < 0)
            if with_slots:
                return self._with_first(self.format.unpack(stored), ids, missing)
            unseen = self.spec.unseen_values(tf.gather(ids, missing), self._seed)
            return tf.tensor_scatter_nd_update(self.format.values_in(stored), tf.expand_dims(missing, 1), unseen)

    def update(self, ids: tf.Tensor, gradients: tf.Tensor, factor: tf.Tensor | None = None) -> tf.Operation:
        """Returns the operation that updates rows by gradients float32 [n, dim] of ids int64 [n], each once.

        The learning rate of the rule is multiplied by `factor`, a float32 scalar.
        """
        with self.on_ps():
            rule = self.spec.rule.scaled(factor)
            with tf.control_dependencies([rule.learning_rate] if tf.is_tensor(rule.learning_rate) else []):
                gradients = tf.identity(gradients)  # the critical section begins when the rate is here, too

        def by_rule(rows: tf.Tensor, number: tf.Tensor, kept_gradients: tf.Tensor) -> tf.Tensor:
            return rule.update(rows, self.spec.with_l2(rows, kept_gradients), tf.cast(number, tf.float32))

        return self._change(ids, gradients, by_rule, num_floats=self.spec.dim)

    def merge(self, ids: tf.Tensor, changes: tf.Tensor) -> tf.Operation:
        """Returns the operation that adds what local steps have changed, float32 [n, width].

        See `RowRule.slot_merging` for the slots.
        """
        dim, num_slots = self.spec.dim, self.width - self.spec.dim

        def by_change(rows: tf.Tensor, number: tf.Tensor, kept_changes: tf.Tensor) -> tf.Tensor:
            if self.spec.rule.slot_merging == ADD or not num_slots:
                return self.spec.rule.settle(rows + kept_changes)
            (value, _), (change, slots) = (
                tf.split(whole, [dim, num_slots], axis=1) for whole in (rows, kept_changes))
            return tf.concat([value + change, slots], 1)

        return self._change(ids, changes, by_change, num_floats=self.width)

    def _change(
        self, ids: tf.Tensor, pushed: tf.Tensor, change: Callable[..., tf.Tensor], *, num_floats: int
    ) -> tf.Operation:
        """Returns the operation that sets rows to `change(rows, number of the update, pushed)`.

        Args:
          pushed: float32 [n, num_floats], floats for each id.
        """
        def body() -> list[tf.Operation]:
            counts = read_whole(self.counts)
            number = count_of(counts, "updates") + 1
            placement = self.index.place(ids, counts)
            old = self._with_first(self.rows_at(placement.rows), placement.ids, placement.new)
            exact = change(old, number, placement.of_kept(pushed))
            if isinstance(self.spec.rule, WithHistory):
                exact = note_update(old, exact, number)
            new = self.format.rounded(exact, placement.ids, seed=self.spec.name, number=number)
            num_hits = tf.size(placement.rows, out_type=tf.int64) - tf.size(placement.new, out_type=tf.int64)
            num_misses = tf.size(ids, out_type=tf.int64) - num_hits
            counted = {"updates": 1, "hits": num_hits, "misses": num_misses, **placement.counted}
            marks = tf.fill(tf.shape(placement.rows), mark_of(number))
            return self.write_all(placement, new, marks, counted)

        with self.on_ps():
            ids, pushed = tf.identity(ids), tf.ensure_shape(pushed, [None, num_floats])
            ids.set_shape([None])  # which an accumulator does not know
            if self._is_exact:
                return self.exclusively([ids, pushed], body)
            with tf.control_dependencies([ids, pushed]):
                return tf.group(*body())

    def rows_at(self, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the values and slots float32 [n, width] of row numbers int64 [n]."""
        return self.format.unpack(gather(self.rows, numbers))

    def exclusively(self, arrived: Sequence[tf.Tensor], body: Callable[[], Sequence[tf.Operation]]) -> tf.Operation:
        """Returns an operation that runs `body()` in the critical section of the store; see `run_exclusively`."""
        return run_exclusively(self._section, arrived, body)

    def _with_first(self, rows: tf.Tensor, ids: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        """Returns rows float32 [n, width] with the first values and slots of the ids at positions `new` int64 [m]."""
        spec = self.spec
        first = spec.first_values(tf.gather(ids, new), self._seed)
        if self.width > spec.dim:
            first = tf.concat([first, spec.rule.first_slots(tf.size(new), spec.dim)], 1)
        return tf.tensor_scatter_nd_update(rows, tf.expand_dims(new, 1), first)

    def write_all(
        self, placement: Placement, rows: tf.Tensor, marks: tf.Tensor, counted: Mapping[str, tf.Tensor | int]
    ) -> list[tf.Operation]:
        """Returns the operations that write rows float32 [n, width] and the other changes, after everything is read."""
        stored, changes = self.format.pack(rows), index.changes_of(counted)
        with tf.control_dependencies([stored, marks, changes]):
            contents = index.write_rows(self.rows, placement.rows, stored)
        # Reads take no lock, so a row that they can find must have its contents.
        with tf.control_dependencies([contents]):
            published = [index.write_rows(self.marks, placement.rows, marks), *placement.publish()]
        with tf.control_dependencies(published):
            return [self.count(changes)]

    def count(self, changes: tf.Tensor) -> tf.Operation:
        """Returns the operation that adds `changes_of` the counts to them."""
        return tf.raw_ops.AssignAddVariableOp(resource=self.counts.handle, value=changes)


def _check_room(spec: TableSpec, num_ps: int) -> None:
    """Raises ConfigError if no ps can hold its share of the rows that the model asks for."""
    is_read_only = isinstance(spec.rule, Frozen)
    rows = spec.rows_on_each(num_ps)
    # A dynamic table that is only read has as many rows as its checkpoint, and `max_rows` is for all ps together.
    if rows is None or rows <= MAX_ROWS_PER_PS or (is_read_only and spec.is_dynamic):
        return
    argument, total = ("max_rows", spec.max_rows) if spec.is_dynamic else ("num_rows", spec.num_rows)
    num_needed = -(-total // MAX_ROWS_PER_PS)
    advice = "evaluate with --evaluate_with=workers" if is_read_only else f"use {num_needed} or more ps"
    raise ConfigError("table_too_large", f"embedding_table {spec.name!r}: {argument}={total} is {rows} rows on each "
                      f"ps; allowed: at most {MAX_ROWS_PER_PS}; {advice}, or a smaller {argument}")
