"""The rows of embedding tables in a round of local steps: pulled once, changed by the steps, pushed once.

    fetch    the mini-batches of the round --> their ids --> unique --> [ps: rows with slots] --> the copy
             the mini-batches wait on the worker (a staging area)
    step     a waiting mini-batch --> its rows of the copy --> model --> gradients --> rule --> the copy
    push     copy - what was pulled --> the ps, which add it (`RowRule.slot_merging`)

Rows that several of the mini-batches have travel once. A change is not divided by the number of workers, as that of a
dense variable is: two workers seldom change the same row in one round. See docs/decisions/embeddings.md.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import data_flow_ops  # StagingArea has no public name

from ps_train.parts.tables import connection, id_check, registry
from ps_train.parts.tables.connection import RowExchange
from ps_train.parts.tables.rows.row_ops import make_variable, replace_value, write_rows
from ps_train.parts.tables.rules import ADD
from ps_train.updates import variable_copies
from ps_train.updates.variable_copies import StepSource


class RowCopy(NamedTuple):
    """A worker's copies of the rows of a table.

    Attributes:
      current: float32 [n, width], as the steps have changed them.
      start: as they were pulled.
      ids: int64 [n], of these rows.
    """

    current: tf.Variable
    start: tf.Variable
    ids: tf.Variable


class TableCopies:
    """Adds the parts of a round that concern tables to the current graph, in the order of its methods."""

    def __init__(self, names: Sequence[str], source: StepSource, *, sorts_ids: bool) -> None:
        """Creates the copies.

        Args:
          names: the tables that the model looks up in training.
          source: the mini-batches and the model.
          sorts_ids: as in `RowExchange`.
        """
        self._found = registry.current_registry()
        self._batches, self._build = source.batches, source.build
        self._sorts_ids = sorts_ids
        self._widths = {name: self._found.stores(name)[0].width for name in names}
        with variable_copies.on_this_worker():
            self._copies = {name: RowCopy(
                current=make_variable(f"ps_train/rows/{name}/current", tf.float32, [None, width]),
                start=make_variable(f"ps_train/rows/{name}/start", tf.float32, [None, width]),
                ids=make_variable(f"ps_train/rows/{name}/ids", tf.int64, [None]))
                for name, width in self._widths.items()}
        specs = tf.nest.flatten(self._batches.element_spec, expand_composites=True)
        self._component_shapes = [spec.shape for spec in specs]
        with tf.device(self._batches.device):
            self._waiting = data_flow_ops.StagingArea([spec.dtype for spec in specs])
        self._exchange: RowExchange | None = None

    @property
    def count(self) -> int:
        """How many tables there are."""
        return len(self._copies)

    def fetch(
        self, num_steps: tf.Tensor, begun: tf.Operation, reading_copies: Callable[[], contextlib.AbstractContextManager]
    ) -> tf.Tensor:
        """Fetches the mini-batches of a round and pulls their rows into the copies.

        Args:
          num_steps: how many mini-batches are wanted.
          begun: what must have run before.
          reading_copies: in this context the model is built once more, to see what it looks up.

        Returns:
          int64 scalar: how many mini-batches there are; fewer where the data ends. It is there when the rows are.
        """
        with tf.control_dependencies([begun]), tf.device(self._batches.device):
            cleared = self._waiting.clear()
        with tf.control_dependencies([cleared, *self._empty(begun)]):
            no_ids = [copy.ids.read_value() for copy in self._copies.values()]
            first = [tf.identity(one) for one in (tf.size(no_ids[0], out_type=tf.int64), tf.constant(True), *no_ids)]
        shapes = [tf.TensorShape([]), tf.TensorShape([]), *(tf.TensorShape([None]) for _ in self._copies)]

        def fetch_one(number: tf.Tensor, _: tf.Tensor, *ids: tf.Tensor) -> list[tf.Tensor]:
            has_batch, take = self._batches.next_if_any()
            fetched = tf.cond(
                has_batch, lambda: self._stage(take(), number, ids, reading_copies), lambda: [number, *ids])
            return [fetched[0], has_batch, *fetched[1:]]

        taken, _, *ids = tf.while_loop(
            lambda number, is_more, *_: is_more & (number < num_steps), fetch_one, first, shapes,
            parallel_iterations=1, back_prop=False)
        self._exchange = RowExchange(self._found, dict(zip(self._copies, ids)), sorts_ids=self._sorts_ids)
        pulled = self._exchange.pull(with_slots=True)
        assigned = [
            replace_value(variable, value)
            for name, copy in self._copies.items()
            for variable, value in zip(copy, (pulled[name], pulled[name], self._exchange.ids[name]))]
        with tf.control_dependencies([*assigned, self._end_without_batch(taken)]):
            return tf.identity(taken)

    def _empty(self, begun: tf.Operation) -> list[tf.Operation]:
        """Empties the copies: a fetch that fails must not leave the rows of the previous round to `push`."""
        with tf.control_dependencies([begun]):
            return [replace_value(variable, tf.zeros([0, *variable.shape[1:]], variable.dtype.base_dtype))
                    for copy in self._copies.values() for variable in copy]

    def _stage(
        self, batch: Any, number: tf.Tensor, ids: Sequence[tf.Tensor],
        reading_copies: Callable[[], contextlib.AbstractContextManager],
    ) -> list[tf.Tensor]:
        """Lets a mini-batch wait; returns the number of those that wait, and all ids so far."""
        with reading_copies():
            self._build(batch)
        lookups = connection.by_table(self._found.take_pending())
        id_check.refuse_drawn(itertools.chain(*lookups.values()), batch, "--communication_period")
        found = [connection.flat_ids(lookups[name], self._found.specs[name]) for name in self._copies]
        with tf.device(self._batches.device):
            staged = self._waiting.put(tf.nest.flatten(batch, expand_composites=True))
        with tf.control_dependencies([staged]):
            return [number + 1, *(tf.concat([before, own], 0) for before, own in zip(ids, found))]

    def _end_without_batch(self, taken: tf.Tensor) -> tf.Operation:
        """Fails as the input does at its end, if there is no mini-batch at all."""
        return tf.cond(taken > 0, tf.no_op, lambda: tf.group(*tf.nest.flatten(
            self._batches.next(), expand_composites=True)))

    def next(self) -> Any:
        """Returns the mini-batch that has waited for the longest time."""
        with tf.device(self._batches.device):
            parts = self._waiting.get()
        for part, shape in zip(parts if isinstance(parts, (list, tuple)) else [parts], self._component_shapes):
            part.set_shape(shape)
        return tf.nest.pack_sequence_as(self._batches.element_spec, parts, expand_composites=True)

    def connect(self, offsets: Sequence[tf.Tensor]) -> StepRows:
        """Connects the lookups of the model in a step with the copy.

        Args:
          offsets: of each table, how many ids the steps before have had; int32 scalars.
        """
        lookups = connection.by_table(self._found.take_pending())
        places, values, rows, after = {}, {}, {}, []
        for name, offset in zip(self._copies, offsets):
            own = lookups[name]
            count = tf.add_n([tf.size(one.ids) for one in own])
            unique, inverse = tf.unique(self._exchange.places[name][offset:offset + count])
            rows[name] = tf.ensure_shape(
                tf.raw_ops.ResourceGather(resource=self._copies[name].current.handle, indices=unique, dtype=tf.float32),
                [None, self._widths[name]])
            dim = self._found.specs[name].dim
            values[name], _ = tf.split(rows[name], [dim, self._widths[name] - dim], axis=1)
            connection.put_rows(own, tf.gather(values[name], inverse))
            places[name] = unique
            after.append(offset + count)
        return StepRows(self, places, values, rows, after)

    def write(self, name: str, places: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
        """Sets rows of the copy of a table."""
        return write_rows(self._copies[name].current, places, rows)

    def push(self, after: Sequence[tf.Tensor]) -> list[tuple[tf.IndexedSlices, tf.Variable]]:
        """Returns (change, rows of the store) for each table and ps, once these tensors are computed.

        Without any, the change is that of the round that was cut short, which another session run has begun.
        """
        with tf.control_dependencies(after):
            changes = {name: self._change(name, copy) for name, copy in self._copies.items()}
            exchange = self._exchange if after else RowExchange(
                self._found, {name: copy.ids.read_value() for name, copy in self._copies.items()},
                sorts_ids=self._sorts_ids)
        return exchange.push(changes)

    def _change(self, name: str, copy: RowCopy) -> tf.Tensor:
        spec = self._found.specs[name]
        current, start = (tf.ensure_shape(one.read_value(), [None, self._widths[name]])
                          for one in (copy.current, copy.start))
        if spec.rule.slot_merging == ADD:
            return current - start
        widths = [spec.dim, self._widths[name] - spec.dim]
        value, slots = tf.split(current, widths, axis=1)
        return tf.concat([value - tf.split(start, widths, axis=1)[0], slots], 1)


class StepRows(NamedTuple):
    """The rows of the tables in one step.

    Attributes:
      copies: where they are from.
      places: name of a table -> the places of the rows in the copy, each once.
      values: name of a table -> float32 [n, dim], which the model reads.
      rows: name of a table -> float32 [n, width].
      offsets: of each table, how many ids this step and those before have had.
    """

    copies: TableCopies
    places: Mapping[str, tf.Tensor]
    values: Mapping[str, tf.Tensor]
    rows: Mapping[str, tf.Tensor]
    offsets: Sequence[tf.Tensor]

    def gradients_by_id(self, gradients: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Returns the gradients of `values` as tensors; see `Connected.gradients_by_id`."""
        return {name: connection.dense_gradient(gradients.get(name), read) for name, read in self.values.items()}

    def update(
        self, gradients: Mapping[str, tf.Tensor], number: tf.Tensor, factor: tf.Tensor | None = None
    ) -> list[tf.Operation]:
        """Returns the operations that update the copy by gradients of `values`; `number` is that of the step.

        Args:
          factor: float32 scalar by which the learning rates are multiplied; None for 1.
        """
        specs = registry.current_registry().specs
        return [self.copies.write(name, self.places[name], specs[name].rule.scaled(factor).update(
            self.rows[name], gradient, tf.cast(number, tf.float32))) for name, gradient in gradients.items()]
