"""The rows of embedding tables in a round of local steps: pulled once, changed by the steps, pushed once.

    fetch    the mini-batches of the round --> their ids --> unique --> [ps: rows with slots] --> the copy
             the mini-batches wait on the worker (a staging area)
    step     a waiting mini-batch --> its rows of the copy --> model --> gradients --> rule --> the copy
    push     copy - start of the round --> the ps, which add it (`RowRule.slot_merging`)

Rows that are in several mini-batches travel once. A change is not divided by the number of workers, as that of a dense
variable is: two workers seldom change the same row in one round. See docs/decisions/embeddings.md.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import data_flow_ops  # StagingArea has no public name

from ps_train.parts.tables import connection
from ps_train.parts.tables.connection import RowExchange
from ps_train.parts.tables.index import gather, make_variable, replace_value, write_rows
from ps_train.parts.tables.registry import current_registry
from ps_train.parts.tables.rules import ADD
from ps_train.updates import variable_copies
from ps_train.updates.local_steps import loop_in_graph
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
        self._registry = current_registry()
        self._batches, self._build = source.batches, source.build
        self._sorts_ids = sorts_ids
        self._widths = {name: self._registry.stores(name)[0].width for name in names}
        with variable_copies.on_this_worker():
            self._copies = {name: RowCopy(
                current=make_variable(f"ps_train/rows/{name}/current", tf.float32, [None, width]),
                start=make_variable(f"ps_train/rows/{name}/start", tf.float32, [None, width]),
                ids=make_variable(f"ps_train/rows/{name}/ids", tf.int64, [None]))
                for name, width in self._widths.items()}
        self._specs = tf.nest.flatten(self._batches.element_spec, expand_composites=True)
        with tf.device(self._batches.device):
            self._waiting = data_flow_ops.StagingArea([spec.dtype for spec in self._specs])
        self._exchange: RowExchange | None = None

    @property
    def count(self) -> int:
        """The number of tables."""
        return len(self._copies)

    def fetch(
        self, num_steps: tf.Tensor, begun: tf.Operation, reading_copies: Callable[[], contextlib.AbstractContextManager]
    ) -> tf.Tensor:
        """Fetches the mini-batches of a round and pulls their rows into the copies.

        Args:
          num_steps: how many mini-batches are wanted.
          begun: an operation that must have run before.
          reading_copies: in this context the model is built once more, to find its lookups.

        Returns:
          int64 scalar, available after the rows: the number of mini-batches, which is lower where the data ends.
        """
        with tf.device(self._batches.device):
            with tf.control_dependencies([begun]):
                cleared = self._waiting.clear()
            with tf.control_dependencies([cleared]):
                none = self._waiting.size()
        with tf.control_dependencies(self._empty(none)):
            no_ids = [tf.zeros([none], tf.int64) for _ in self._copies]
            first = [*map(tf.identity, (tf.cast(none, tf.int64), tf.constant(True), *no_ids))]
        shapes = [tf.TensorShape([]), tf.TensorShape([]), *(tf.TensorShape([None]) for _ in self._copies)]

        def fetch_one(number: tf.Tensor, _: tf.Tensor, *ids: tf.Tensor) -> list[tf.Tensor]:
            has_batch, take = self._batches.next_if_any()
            fetched = tf.cond(
                has_batch, lambda: self._stage(take(), number, ids, reading_copies), lambda: [number, *ids])
            return [fetched[0], has_batch, *fetched[1:]]

        num_batches, _, *ids = loop_in_graph(
            lambda number, is_more, *_: is_more & (number < num_steps), fetch_one, first, shapes)
        self._exchange = RowExchange(self._registry, dict(zip(self._copies, ids)), sorts_ids=self._sorts_ids)
        pulled = self._exchange.pull(with_slots=True)
        assigned = [
            replace_value(variable, value)
            for name, copy in self._copies.items()
            for variable, value in zip(copy, (pulled[name], pulled[name], self._exchange.ids[name]))]
        with tf.control_dependencies([*assigned, self._end_without_batch(num_batches)]):
            return tf.identity(num_batches)

    def _empty(self, none: tf.Tensor) -> list[tf.Operation]:
        """Empties the copies: a fetch that fails must not leave the rows of the previous round to `push`.

        Args:
          none: int32 scalar, 0. It must not be a constant: TensorFlow's shape inference takes all values of a variable
            to have the same size, and its constant folding would take every round to be without ids.
        """
        return [replace_value(variable, tf.zeros([none, *variable.shape[1:]], variable.dtype.base_dtype))
                for copy in self._copies.values() for variable in copy]

    def _stage(
        self, batch: Any, number: tf.Tensor, ids: Sequence[tf.Tensor],
        reading_copies: Callable[[], contextlib.AbstractContextManager],
    ) -> list[tf.Tensor]:
        """Puts a mini-batch into the staging area; returns how many it has, and the ids of each table so far."""
        with reading_copies():
            self._build(batch)
        lookups = self._registry.take_pending()
        connection.refuse_drawn(itertools.chain(*lookups.values()), batch, "--communication_period")
        new_ids = [connection.flat_ids(lookups[name], self._registry.specs[name]) for name in self._copies]
        with tf.device(self._batches.device):
            staged = self._waiting.put(tf.nest.flatten(batch, expand_composites=True))
        with tf.control_dependencies([staged]):
            return [number + 1, *(tf.concat(pair, 0) for pair in zip(ids, new_ids))]

    def _end_without_batch(self, num_batches: tf.Tensor) -> tf.Operation:
        """Fails as the input does at its end, if it has no mini-batch at all."""
        return tf.cond(num_batches > 0, tf.no_op, lambda: tf.group(*tf.nest.flatten(
            self._batches.next(), expand_composites=True)))

    def next(self) -> Any:
        """Returns the mini-batch that has waited for the longest time."""
        with tf.device(self._batches.device):
            components = self._waiting.get()
        components = components if isinstance(components, (list, tuple)) else [components]
        for component, spec in zip(components, self._specs):
            component.set_shape(spec.shape)
        return tf.nest.pack_sequence_as(self._batches.element_spec, components, expand_composites=True)

    def connect(self, offsets: Sequence[tf.Tensor]) -> StepRows:
        """Connects the lookups of the model in a step with the copy.

        Args:
          offsets: of each table, the number of ids in earlier steps; int32 scalars.
        """
        lookups = self._registry.take_pending()
        places, values, rows, end_offsets = {}, {}, {}, []
        for (name, copy), offset in zip(self._copies.items(), offsets):
            end_offsets.append(offset + tf.add_n([tf.size(lookup.ids) for lookup in lookups[name]]))
            of_step = self._exchange.places[name][offset:end_offsets[-1]]
            checked = connection.check_same_ids(lookups[name], tf.gather(self._exchange.ids[name], of_step))
            with tf.control_dependencies([checked]):
                places[name], inverse = tf.unique(of_step)
            width, dim = self._widths[name], self._registry.specs[name].dim
            rows[name] = tf.ensure_shape(gather(copy.current, places[name]), [None, width])
            values[name] = tf.stop_gradient(tf.split(rows[name], [dim, width - dim], axis=1)[0])  # as in `Connected`
            connection.put_rows(lookups[name], tf.gather(values[name], inverse))
        return StepRows(self._copies, places, values, rows, end_offsets)

    def push(self, after: Sequence[tf.Tensor]) -> list[tuple[tf.IndexedSlices, tf.Variable]]:
        """Returns (change, rows of the store) for each table and ps, once these tensors are computed.

        Without any, the change is that of an interrupted round, which another session run has begun.
        """
        with tf.control_dependencies(after):
            changes = {name: self._change(name, copy) for name, copy in self._copies.items()}
            exchange = self._exchange if after else RowExchange(
                self._registry, {name: copy.ids.read_value() for name, copy in self._copies.items()},
                sorts_ids=self._sorts_ids)
        return exchange.push(changes)

    def _change(self, name: str, copy: RowCopy) -> tf.Tensor:
        spec = self._registry.specs[name]
        current, start = (tf.ensure_shape(variable.read_value(), [None, self._widths[name]])
                          for variable in (copy.current, copy.start))
        if spec.rule.slot_merging == ADD:
            return current - start
        widths = [spec.dim, self._widths[name] - spec.dim]
        value, slots = tf.split(current, widths, axis=1)
        return tf.concat([value - tf.split(start, widths, axis=1)[0], slots], 1)


class StepRows(NamedTuple):
    """The rows of the tables in one step.

    Attributes:
      copies: name of a table -> the copy that they are from.
      places: name of a table -> the places of the rows in the copy, each once.
      values: name of a table -> float32 [n, dim], which the model reads.
      rows: name of a table -> float32 [n, width].
      offsets: of each table, the number of ids in this step and earlier ones.
    """

    copies: Mapping[str, RowCopy]
    places: Mapping[str, tf.Tensor]
    values: Mapping[str, tf.Tensor]
    rows: Mapping[str, tf.Tensor]
    offsets: Sequence[tf.Tensor]

    def gradients_by_id(self, gradients: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Returns the gradients of `values` as tensors; see `Connected.gradients_by_id`."""
        return {name: connection.dense_gradient(gradients.get(name), values) for name, values in self.values.items()}

    def update(
        self, gradients: Mapping[str, tf.Tensor], number: tf.Tensor, factor: tf.Tensor | None = None
    ) -> list[tf.Operation]:
        """Returns the operations that update the copy by gradients of `values`; `number` is that of the step.

        Args:
          factor: float32 scalar by which the learning rates are multiplied; None for 1.
        """
        specs, number = current_registry().specs, tf.cast(number, tf.float32)
        return [write_rows(self.copies[name].current, self.places[name], specs[name].rule.scaled(factor).update(
            self.rows[name], specs[name].with_l2(self.rows[name], gradient), number))
            for name, gradient in gradients.items()]
