"""Connects the lookups of a step with the rows on the ps: one transfer each way per ps for all tables.

    worker   ids of all lookups --> unique, by ps --+                      +--> values --> what the model reads
                                                    v                      |
    ps                                       [sizes, ids] --> find, read --+
                                                    |
    worker   gradients by id -----------------------|--> update
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.tables import id_check
from ps_train.parts.tables.hashing import owner_of
from ps_train.parts.tables.registry import Lookup, Registry, current_registry
from ps_train.parts.tables.rules import DELETED_KEY, EMPTY_KEY, TableSpec


class _SentIds(NamedTuple):
    """The ids of all tables on one ps.

    Attributes:
      ids: those of each table, int64 [n], on the ps.
      sizes: int64 [tables], on the ps.
      worker_sizes: the same on the worker.
    """

    ids: list[tf.Tensor]
    sizes: tf.Tensor
    worker_sizes: tf.Tensor


class RowExchange:
    """Exchanges rows of several tables with the ps: their unique ids go there, and rows or values come back.

    Attributes:
      names: of the tables.
      ids: name of a table -> its unique ids, those of ps 0 first; int64 [n].
      places: name of a table -> the position of each of its ids in `ids`, int32.
    """

    def __init__(self, registry: Registry, ids: Mapping[str, tf.Tensor], *, sorts_ids: bool) -> None:
        """Sends the ids.

        Args:
          ids: name of a table -> ids int64 [n], which may repeat.
          sorts_ids: whether to send each table's ids in ascending order, as TensorFlow's accumulators need them.
        """
        self.names = list(ids)
        self._stores = [registry.stores(name) for name in self.names]
        num_ps = len(registry.devices)
        with tf.name_scope("embeddings"):
            unique = {name: _unique_ids(ids[name], registry.specs[name], num_ps, sorts_ids) for name in self.names}
            self._sent = [self._send_ids([parts[ps] for parts, _ in unique.values()], ps) for ps in range(num_ps)]
        self.ids = {name: _concat(parts) for name, (parts, _) in unique.items()}
        self.places = {name: places for name, (_, places) in unique.items()}

    def _send_ids(self, parts: list[tf.Tensor], ps: int) -> _SentIds:
        """Sends the ids of all tables to one ps, in one message."""
        worker_sizes = tf.stack([_count(part) for part in parts])
        if len(parts) == 1:
            with self._on_ps(ps):
                ids = tf.identity(parts[0])
                return _SentIds([ids], tf.reshape(tf.size(ids, out_type=tf.int64), [1]), worker_sizes)
        message = tf.concat([worker_sizes, *parts], 0)
        with self._on_ps(ps):
            message = tf.identity(message)
            sizes = message[:len(parts)]
            return _SentIds(tf.split(message[len(parts):], sizes, num=len(parts)), sizes, worker_sizes)

    def _on_ps(self, ps: int) -> Any:
        return tf.device(self._stores[0][ps].device or None)

    def pull(self, *, with_slots: bool = False) -> dict[str, tf.Tensor]:
        """Returns name of a table -> the values of `ids`, float32 [n, dim]; with their slots, [n, width]."""
        widths = [stores[0].width if with_slots else stores[0].spec.dim for stores in self._stores]
        by_ps = []
        with tf.name_scope("embeddings"):
            for ps, sent in enumerate(self._sent):
                rows = [stores[ps].read(ids, with_slots=with_slots) for stores, ids in zip(self._stores, sent.ids)]
                with self._on_ps(ps):
                    message = _flat(rows)
                by_ps.append(_cut(tf.identity(message), sent.worker_sizes, widths))
        return {name: _concat(parts) for name, parts in zip(self.names, zip(*by_ps))}

    def push(self, rows: Mapping[str, tf.Tensor]) -> list[tuple[tf.IndexedSlices, tf.Variable]]:
        """Sends floats for each id; returns for each table and ps a pair: (these floats by id, variable `rows`).

        Args:
          rows: name of a table -> float32 [n, ...], in the order of `ids`; every table.
        """
        widths = [int(rows[name].shape[1]) for name in self.names]
        pairs = []
        with tf.name_scope("embeddings"):
            counts = tf.stack([sent.worker_sizes for sent in self._sent], 1)
            by_table = [tf.split(rows[name], counts[number], num=len(self._sent)) if len(self._sent) > 1
                        else [rows[name]] for number, name in enumerate(self.names)]
            for ps, sent in enumerate(self._sent):
                message = _flat([parts[ps] for parts in by_table])
                with self._on_ps(ps):
                    received = _cut(tf.identity(message), sent.sizes, widths)
                    pairs += [(tf.IndexedSlices(part, ids), stores[ps].rows)
                              for part, ids, stores in zip(received, sent.ids, self._stores)]
        return pairs


class Connected:
    """The lookups of one step, connected with the ps.

    Attributes:
      pulled: name of a table -> the values of its unique ids, float32 [n, dim]; the model's lookups gather from them.
      push: sends gradients of `pulled`; see `RowExchange.push`.
    """

    def __init__(self, registry: Registry, lookups: Mapping[str, list[Lookup]], *, sorts_ids: bool) -> None:
        """Adds the pull to the current graph, and connects the stand-ins with its values."""
        find_ids = flat_ids if registry.refuses_ids else _acceptable_ids
        exchange = RowExchange(
            registry, {name: find_ids(of_table, registry.specs[name]) for name, of_table in lookups.items()},
            sorts_ids=sorts_ids)
        self.pulled = exchange.pull()
        self.push = exchange.push
        for name, of_table in lookups.items():
            put_rows(of_table, tf.gather(self.pulled[name], exchange.places[name]))

    def gradients_by_id(self, gradients: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Returns the gradient of each table's `pulled` as a tensor; zeros where the loss does not depend on it."""
        return {name: dense_gradient(gradients.get(name), values) for name, values in self.pulled.items()}


def connect_lookups(*, sorts_ids: bool = False) -> Connected | None:
    """Connects the lookups that the model has requested since the last call; returns None without any."""
    registry = current_registry()
    lookups = registry.take_pending()
    return Connected(registry, lookups, sorts_ids=sorts_ids) if lookups else None


def flat_ids(lookups: Sequence[Lookup], spec: TableSpec) -> tf.Tensor:
    """Returns the ids of all lookups in a table, int64 [n]; the step fails if one of them cannot be in the table."""
    return _concat([tf.reshape(id_check.check_ids(lookup, spec), [-1]) for lookup in lookups])


def _acceptable_ids(lookups: Sequence[Lookup], spec: TableSpec) -> tf.Tensor:
    """Returns the ids of all lookups in a table that is only read, int64 [n], including those that it cannot have."""
    del spec  # such an id has no row, and so its first value
    # EMPTY_KEY itself would be found in an `ExportedTable`. DELETED_KEY never is.
    return tf.maximum(_concat([tf.reshape(lookup.ids, [-1]) for lookup in lookups]), DELETED_KEY)


def _unique_ids(
    ids: tf.Tensor, spec: TableSpec, num_ps: int, sorts_ids: bool
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Returns the unique ids int64 [n] of each ps, and the place of each of the ids in all of these, int32."""
    unique, places = tf.unique(ids)
    if sorts_ids:
        order = tf.argsort(unique)
        unique, places = tf.gather(unique, order), tf.gather(tf.math.invert_permutation(order), places)
    if num_ps == 1:
        return [unique], places
    owners = owner_of(unique, num_ps, is_dynamic=spec.is_dynamic)
    order = tf.concat(tf.dynamic_partition(tf.range(tf.size(unique)), owners, num_ps), 0)
    return tf.dynamic_partition(unique, owners, num_ps), tf.gather(tf.math.invert_permutation(order), places)


def put_rows(lookups: Sequence[Lookup], rows: tf.Tensor) -> None:
    """Connects the stand-ins of all lookups in a table with their values, float32 [number of ids, dim]."""
    sizes = [tf.size(lookup.ids) for lookup in lookups]
    parts = tf.split(rows, tf.stack(sizes), num=len(sizes)) if len(sizes) > 1 else [rows]
    for lookup, part in zip(lookups, parts):
        shape = tf.concat([tf.shape(lookup.ids), [rows.shape[1]]], 0)
        lookup.stand_in.op._update_input(0, tf.reshape(part, shape))  # noqa: SLF001 (it has no public name)


def dense_gradient(gradient: Any, values: tf.Tensor) -> tf.Tensor:
    """Returns a gradient of values [n, dim] as a tensor: for each row, the sum over its uses."""
    if gradient is None:
        return tf.zeros_like(values)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, tf.shape(values)[0])
    return gradient


def _count(ids: tf.Tensor) -> tf.Tensor:
    """Returns how many ids int64 [n] there are, int64 scalar."""
    # Not tf.size: in a round of local steps, TensorFlow's constant folding takes that for 0. What `where` finds, it
    # does not know. Every id is above this key.
    return tf.size(tf.where(ids > EMPTY_KEY), out_type=tf.int64)


def _cut(message: tf.Tensor, sizes: tf.Tensor, widths: Sequence[int]) -> list[tf.Tensor]:
    """Returns the part of each table, float32 [n, width]."""
    if len(widths) == 1:
        return [tf.ensure_shape(message, [None, widths[0]])]
    parts = tf.split(message, sizes * tf.constant(widths, tf.int64), num=len(widths))
    return [tf.reshape(part, [-1, width]) for part, width in zip(parts, widths)]


def _concat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat(list(values), 0) if len(values) > 1 else values[0]


def _flat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns all values in one vector; a single tensor stays as it is."""
    return _concat([tf.reshape(value, [-1]) for value in values] if len(values) > 1 else values)
