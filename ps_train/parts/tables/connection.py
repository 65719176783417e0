"""Connects the lookups of a step with the rows on the ps: one transfer each way per ps, however many tables
there are.

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

from ps_train.parts.tables import id_check, registry
from ps_train.parts.tables.registry import Lookup, Registry
from ps_train.parts.tables.rows.dealing import owner_of
from ps_train.parts.tables.rows.store import Store
from ps_train.parts.tables.spec import DELETED_KEY, EMPTY_KEY, TableSpec


class UniqueIds(NamedTuple):
    """The ids of a table, each once.

    Attributes:
      parts: for each ps its ids, int64 [n].
      places: the position of each given id in the parts, one after another; int32.
    """

    parts: list[tf.Tensor]
    places: tf.Tensor


class OnPs(NamedTuple):
    """What one ps has received.

    Attributes:
      ids: those of each table, int64 [n], on the ps.
      sizes: int64 [tables], on the ps.
      own_sizes: the same on the worker.
    """

    ids: list[tf.Tensor]
    sizes: tf.Tensor
    own_sizes: tf.Tensor


class RowExchange:
    """Exchanges rows of several tables with the ps: their unique ids go there, and rows or values come back.

    Attributes:
      names: of the tables.
      ids: name of a table -> its unique ids, those of ps 0 first; int64 [n].
      places: name of a table -> the position of each given id in `ids`, int32.
    """

    def __init__(self, found: Registry, ids: Mapping[str, tf.Tensor], *, sorts_ids: bool) -> None:
        """Sends the ids.

        Args:
          ids: name of a table -> ids int64 [n], which may repeat.
          sorts_ids: whether to send each table's ids in ascending order, as TensorFlow's accumulators need them.
        """
        self.names = list(ids)
        self._stores = [found.stores(name) for name in self.names]
        with tf.name_scope("embeddings"):
            unique = [unique_ids(ids[name], found.specs[name], num_ps=len(found.devices), sorts_ids=sorts_ids)
                      for name in self.names]
            self._on_ps = [self._send_ids([one.parts[ps] for one in unique], ps) for ps in range(len(found.devices))]
        self.ids = {name: _concat(one.parts) for name, one in zip(self.names, unique)}
        self.places = {name: one.places for name, one in zip(self.names, unique)}

    def _send_ids(self, parts: list[tf.Tensor], ps: int) -> OnPs:
        """Sends the ids of all tables to one ps, in one message."""
        own_sizes = tf.stack([_count(part) for part in parts])
        device = self._stores[0][ps].device
        if len(parts) == 1:
            with _on(device):
                ids = tf.identity(parts[0])
                return OnPs([ids], tf.reshape(tf.size(ids, out_type=tf.int64), [1]), own_sizes)
        message = tf.concat([own_sizes, *parts], 0)
        with _on(device):
            arrived = tf.identity(message)
            sizes = arrived[:len(parts)]
            ids = tf.split(arrived[len(parts):], sizes, num=len(parts))
        return OnPs(ids, sizes, own_sizes)

    def pull(self, *, with_slots: bool = False) -> dict[str, tf.Tensor]:
        """Returns name of a table -> the values of `ids`, float32 [n, dim]; with their slots, [n, width]."""
        widths = [stores[0].width if with_slots else stores[0].spec.dim for stores in self._stores]
        arrived = []
        with tf.name_scope("embeddings"):
            for ps, there in enumerate(self._on_ps):
                rows = [stores[ps].read(ids, with_slots=with_slots)
                        for stores, ids in zip(self._stores, there.ids)]
                with _on(self._stores[0][ps].device):
                    message = _flat(rows)
                arrived.append(_cut(tf.identity(message), there.own_sizes, widths))
        return {name: _concat([rows[number] for rows in arrived]) for number, name in enumerate(self.names)}

    def push(self, rows: Mapping[str, tf.Tensor]) -> list[tuple[tf.IndexedSlices, tf.Variable]]:
        """Sends floats for each id; returns for each table and ps a pair: (what was sent by id, variable `rows`).

        Args:
          rows: name of a table -> float32 [n, ...], in the order of `ids`; every table.
        """
        widths = [int(rows[name].shape[1]) for name in self.names]
        pairs = []
        with tf.name_scope("embeddings"):
            counts = tf.stack([one.own_sizes for one in self._on_ps], 1)
            by_ps = [tf.split(rows[name], counts[number], num=len(self._on_ps)) if len(self._on_ps) > 1
                     else [rows[name]] for number, name in enumerate(self.names)]
            for ps, there in enumerate(self._on_ps):
                message = _flat([parts[ps] for parts in by_ps])
                with _on(self._stores[0][ps].device):
                    arrived = _cut(tf.identity(message), there.sizes, widths)
                    pairs += [(tf.IndexedSlices(one, ids), stores[ps].rows)
                              for one, ids, stores in zip(arrived, there.ids, self._stores)]
        return pairs


class Connected:
    """The lookups of one step, connected with the ps.

    Attributes:
      pulled: name of a table -> the values of its unique ids, float32 [n, dim]; the model's lookups gather from them.
      push: sends gradients of `pulled`; see `RowExchange.push`.
    """

    def __init__(self, found: Registry, lookups: Sequence[Lookup], *, sorts_ids: bool) -> None:
        """Adds the pull to the current graph, and connects the stand-ins with its values."""
        grouped = by_table(lookups)
        find_ids = flat_ids if found.refuses_ids else acceptable_ids
        exchange = RowExchange(found, {name: find_ids(own, found.specs[name]) for name, own in grouped.items()},
                               sorts_ids=sorts_ids)
        self.pulled = exchange.pull()
        self.push = exchange.push
        for name, own in grouped.items():
            put_rows(own, tf.gather(self.pulled[name], exchange.places[name]))

    def gradients_by_id(self, gradients: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Returns the gradient of each table's `pulled` as a tensor; zeros where the loss does not depend on it."""
        return {name: dense_gradient(gradients.get(name), values) for name, values in self.pulled.items()}


def connect_lookups(*, sorts_ids: bool = False) -> Connected | None:
    """Connects the lookups that the model has asked for since the last call; returns None if there are none."""
    found = registry.current_registry()
    lookups = found.take_pending()
    return Connected(found, lookups, sorts_ids=sorts_ids) if lookups else None


def by_table(lookups: Sequence[Lookup]) -> dict[str, list[Lookup]]:
    """Returns name of a table -> its lookups, in the order in which the model asked for them."""
    grouped: dict[str, list[Lookup]] = {}
    for one in lookups:
        grouped.setdefault(one.table, []).append(one)
    return grouped


def flat_ids(lookups: Sequence[Lookup], spec: TableSpec) -> tf.Tensor:
    """Returns the ids of all lookups in a table, int64 [n]; the step fails if one of them cannot be in the table."""
    return _concat([tf.reshape(id_check.check_ids(one, spec), [-1]) for one in lookups])


def acceptable_ids(lookups: Sequence[Lookup], spec: TableSpec) -> tf.Tensor:
    """Returns the ids of all lookups in a table that is only read, int64 [n]; those that it cannot have are left in."""
    del spec  # such an id has no row, and so its first value
    # EMPTY_KEY itself would be found in an `ExportedTable`. DELETED_KEY never is.
    return tf.maximum(_concat([tf.reshape(one.ids, [-1]) for one in lookups]), DELETED_KEY)


def unique_ids(ids: tf.Tensor, spec: TableSpec, *, num_ps: int, sorts_ids: bool) -> UniqueIds:
    """Returns the unique ones of ids int64 [n] of a table, by ps."""
    unique, places = tf.unique(ids)
    if sorts_ids:
        order = tf.argsort(unique)
        unique, places = tf.gather(unique, order), tf.gather(tf.math.invert_permutation(order), places)
    if num_ps == 1:
        return UniqueIds([unique], places)
    owners = owner_of(unique, num_ps, is_dynamic=spec.is_dynamic)
    order = tf.concat(tf.dynamic_partition(tf.range(tf.size(unique)), owners, num_ps), 0)
    return UniqueIds(tf.dynamic_partition(unique, owners, num_ps),
                     tf.gather(tf.math.invert_permutation(order), places))


def put_rows(lookups: Sequence[Lookup], rows: tf.Tensor) -> None:
    """Connects the stand-ins of all lookups in a table with their values, float32 [number of ids, dim]."""
    sizes = [tf.size(one.ids) for one in lookups]
    parts = tf.split(rows, tf.stack(sizes), num=len(sizes)) if len(sizes) > 1 else [rows]
    for one, part in zip(lookups, parts):
        shape = tf.concat([tf.shape(one.ids), [rows.shape[1]]], 0)
        one.stand_in.op._update_input(0, tf.reshape(part, shape))  # noqa: SLF001 (there is no public name for it)


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


def _on(device: str) -> Any:
    return tf.device(device or None)


def _concat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat(list(values), 0) if len(values) > 1 else values[0]


def _flat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0) if len(values) > 1 else values[0]


def stores_of(found: Registry) -> list[Store]:
    """Returns all stores of a graph, those of one table together."""
    return [store for name in found.specs for store in found.stores(name)]
