"""Connects the lookups of a step with the rows on the ps: one transfer each way per ps for all tables.

    worker   ids of all lookups --> unique, by ps --+                      +--> values --> what the model reads
                                                    v                      |
    ps                                       [sizes, ids] --> find, read --+
                                                    |
    worker   gradients by id -----------------------|--> update

With --embedding_wire_dtype, values travel as the nearest bfloat16, and so do gradients and the changes of local steps.
The ids of tables with at most 2^31 rows travel as int32.

A step is stopped before it sends an id that its table cannot have, or uses weights that do not match their ids. Where
a model is built twice, for its lookups and for its step, ids that it draws at random are refused while the graph is
built, as far as the graph shows that, and a step is stopped whose ids are others than those whose rows were pulled.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.tables.hashing import owner_of
from ps_train.parts.tables.registry import Lookup, Registry, current_registry
from ps_train.parts.tables.rules import DELETED_KEY, TableSpec

_HERE = contextlib.nullcontext()
_MOST_IDS = 2**31 + 1  # more than int32 has
_BAD_ID, _BAD_WEIGHTS, _OTHER_IDS = "ps_train bad id", "ps_train bad weights", "ps_train other ids"
_ID_MESSAGE = re.compile(rf"\[{_BAD_ID}\] \[(.*?)\] \[(.*?)\] \[(-?\d+)\] \[(.*?)\]", re.DOTALL)
_OTHER_IDS_MESSAGE = re.compile(rf"\[{_OTHER_IDS}\] \[(.*?)\]", re.DOTALL)
_WEIGHTS_MESSAGE = re.compile(rf"\[{_BAD_WEIGHTS}\] \[(.*?)\] \[(.*?)\] \[(\d+)\] \[(\d+)\]", re.DOTALL)


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
        self.names, self._wire_dtype = list(ids), registry.wire_dtype
        # Ids that the tables cannot have get here only if they are not refused.
        has_small_ids = registry.refuses_ids and all((registry.specs[name].num_rows or _MOST_IDS) < _MOST_IDS
                                                     for name in ids)
        self._id_dtype = tf.int32 if has_small_ids else tf.int64
        self._stores = [registry.stores(name) for name in self.names]
        num_ps = len(registry.devices)
        with tf.name_scope("embeddings"):
            unique = {name: _unique_ids(ids[name], registry.specs[name], num_ps, sorts_ids) for name in self.names}
            self._sent = [self._send_ids([parts[ps] for parts, _ in unique.values()], ps) for ps in range(num_ps)]
        self.ids = {name: _concat(parts) for name, (parts, _) in unique.items()}
        self.places = {name: places for name, (_, places) in unique.items()}

    def _send_ids(self, parts: list[tf.Tensor], ps: int) -> _SentIds:
        """Sends the ids of all tables to one ps, in one message."""
        worker_sizes = tf.stack([tf.size(part, out_type=tf.int64) for part in parts])
        message = tf.cast(tf.concat([worker_sizes, *parts], 0) if len(parts) > 1 else parts[0], self._id_dtype)
        with self._on_ps(ps):
            message = tf.cast(tf.identity(message), tf.int64)
            if len(parts) == 1:
                return _SentIds([message], tf.reshape(tf.size(message, out_type=tf.int64), [1]), worker_sizes)
            sizes = message[:len(parts)]
            return _SentIds(tf.split(message[len(parts):], sizes, num=len(parts)), sizes, worker_sizes)

    def _on_ps(self, ps: int) -> Any:
        return tf.device(self._stores[0][ps].device or None)

    def pull(self, *, with_slots: bool = False) -> dict[str, tf.Tensor]:
        """Returns name of a table -> the values of `ids`, float32 [n, dim]; with their slots, [n, width]."""
        by_ps = []
        with tf.name_scope("embeddings"):
            for ps, sent in enumerate(self._sent):
                rows = [stores[ps].read(ids, with_slots=with_slots) for stores, ids in zip(self._stores, sent.ids)]
                by_ps.append(self._send_rows(rows, sent.worker_sizes, sender=self._on_ps(ps)))
        return {name: _concat(parts) for name, parts in zip(self.names, zip(*by_ps))}

    def push(self, rows: Mapping[str, tf.Tensor]) -> list[tuple[tf.IndexedSlices, tf.Variable]]:
        """Sends floats for each id; returns for each table and ps a pair: (these floats by id, variable `rows`).

        Args:
          rows: name of a table -> float32 [n, ...], in the order of `ids`; every table.
        """
        pairs = []
        with tf.name_scope("embeddings"):
            counts = tf.stack([sent.worker_sizes for sent in self._sent], 1)
            by_table = [tf.split(rows[name], counts[number], num=len(self._sent)) if len(self._sent) > 1
                        else [rows[name]] for number, name in enumerate(self.names)]
            for ps, sent in enumerate(self._sent):
                received = self._send_rows([parts[ps] for parts in by_table], sent.sizes, receiver=self._on_ps(ps))
                pairs += [(tf.IndexedSlices(part, ids), stores[ps].rows)
                          for part, ids, stores in zip(received, sent.ids, self._stores)]
        return pairs

    def _send_rows(
        self, rows: Sequence[tf.Tensor], sizes: tf.Tensor, *, sender: Any = _HERE, receiver: Any = _HERE
    ) -> list[tf.Tensor]:
        """Sends the rows of each table, float32 [n, width], in one message; in two if only a part of them is rounded.

        Args:
          sizes: how many rows of each table there are, int64 [tables], where they arrive.
          sender, receiver: the devices, as contexts.
        """
        widths = [int(part.shape[1]) for part in rows]
        if self._wire_dtype is None:
            with sender:
                message = _flat(rows)
            with receiver:
                return _cut(tf.identity(message), sizes, widths)
        rounded = [width if stores[0].spec.rule.rounds_slots else stores[0].spec.dim
                   for width, stores in zip(widths, self._stores)]
        exact = {number: width - rounded[number] for number, width in enumerate(widths) if width > rounded[number]}
        with sender:
            parts = [tf.split(part, [rounded[number], exact[number]], axis=1) if number in exact else [part]
                     for number, part in enumerate(rows)]
            message = tf.cast(_flat([part[0] for part in parts]), self._wire_dtype)
            exact_message = _flat([parts[number][1] for number in exact]) if exact else None
        with receiver:
            received = _cut(tf.cast(tf.identity(message), tf.float32), sizes, rounded)
            if exact:
                slots = _cut(tf.identity(exact_message), tf.gather(sizes, list(exact)), list(exact.values()))
                for number, part in zip(exact, slots):
                    received[number] = tf.concat([received[number], part], 1)
            return received


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
        # Behind this, tf.recompute_grad looks for no variables. It fails at those of a store.
        self.pulled = {name: tf.stop_gradient(values) for name, values in exchange.pull().items()}
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
    return _concat([tf.reshape(check_ids(lookup, spec), [-1]) for lookup in lookups])


def check_same_ids(lookups: Sequence[Lookup], pulled: tf.Tensor) -> tf.Operation:
    """Returns the operation that fails if the ids of all lookups in a table are not those in `pulled`, int64 [n]."""
    ids = _concat([tf.reshape(lookup.ids, [-1]) for lookup in lookups])
    is_same = tf.reduce_all(tf.raw_ops.Equal(x=ids, y=pulled, incompatible_shape_error=False))
    is_same &= tf.equal(tf.size(ids), tf.size(pulled))  # `Equal` compares a single id with each of the others
    return tf.raw_ops.Assert(condition=is_same, data=[_OTHER_IDS, lookups[0].table])


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


def _cut(message: tf.Tensor, sizes: tf.Tensor, widths: Sequence[int]) -> list[tf.Tensor]:
    """Returns the part of each table, [n, width]."""
    if len(widths) == 1:
        return [tf.ensure_shape(message, [None, widths[0]])]
    parts = tf.split(message, sizes * tf.constant(widths, tf.int64), num=len(widths))
    return [tf.reshape(part, [-1, width]) for part, width in zip(parts, widths)]


def _concat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat(list(values), 0) if len(values) > 1 else values[0]


def _flat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns all values in one vector; a single tensor stays as it is."""
    return _concat([tf.reshape(value, [-1]) for value in values] if len(values) > 1 else values)


def check_ids(lookup: Lookup, spec: TableSpec) -> tf.Tensor:
    """Returns the ids of a lookup; the step fails if one of them cannot be in the table."""
    flat = tf.reshape(lookup.ids, [-1])
    if spec.is_dynamic:
        is_bad, allowed = flat <= DELETED_KEY, f"above {DELETED_KEY}"
    else:
        is_bad, allowed = (flat < 0) | (flat >= spec.num_rows), f"0 to {spec.num_rows - 1}"
    # Not `flat[argmax]`: a batch may have no ids at all.
    largest = tf.reduce_max(tf.where(is_bad, flat, tf.fill(tf.shape(flat), tf.int64.min)))
    # Not tf.Assert, which would put it into a cond.
    check = tf.raw_ops.Assert(condition=tf.logical_not(tf.reduce_any(is_bad)),
                              data=[_BAD_ID, spec.name, lookup.feature, largest, allowed])
    with tf.control_dependencies([check]):
        return tf.identity(lookup.ids)


def check_weights(sp_ids: tf.SparseTensor, sp_weights: tf.SparseTensor, table: str, feature: str) -> tf.Tensor:
    """Returns the weights float32 [n] of ids [n]; the step fails if there is not one for each id, at its indices.

    Raises:
      UserCodeError: their number differs, as far as it is known before the step; or they are no numbers.
    """
    ids, weights = sp_ids.values, sp_weights.values
    if not (weights.dtype.is_floating or weights.dtype.is_integer):
        raise UserCodeError("bad_weights", f"table {table}: {feature} has weights of type {weights.dtype.name}; "
                            "allowed: numbers")
    if not ids.shape.is_compatible_with(weights.shape):
        mismatch = _describe_weights(feature, int(ids.shape[0]), int(weights.shape[0]))
        raise UserCodeError("bad_weights", f"table {table}: {mismatch}")
    num_ids, num_weights = tf.size(ids), tf.size(weights)
    is_good = tf.equal(num_ids, num_weights)
    if sp_ids.indices is not sp_weights.indices:
        # By rows and columns that both have: where the numbers differ, a comparison would fail with its own message.
        shape = tf.minimum(tf.shape(sp_ids.indices), tf.shape(sp_weights.indices))
        of_ids, of_weights = (tf.slice(sparse.indices, [0, 0], shape) for sparse in (sp_ids, sp_weights))
        is_good &= tf.reduce_all(tf.equal(of_ids, of_weights))
    check = tf.raw_ops.Assert(condition=is_good, data=[_BAD_WEIGHTS, table, feature, num_ids, num_weights])
    with tf.control_dependencies([check]):
        return tf.cast(tf.identity(weights), tf.float32)


def _describe_weights(feature: str, num_ids: int, num_weights: int) -> str:
    mismatch = (f"{num_ids} ids and weights at other indices" if num_ids == num_weights
                else f"{num_ids} ids and {num_weights} weights")
    return f"{feature} has {mismatch}; allowed: one weight for each id, with the indices of the ids"


def raise_if_bad_id(error: tf.errors.InvalidArgumentError, where: str) -> None:
    """Raises UserCodeError if an id has stopped a step, or weights of ids, or ids other than those that were pulled.

    Args:
      where: where it stopped, such as the name of a worker.
    """
    if match := _WEIGHTS_MESSAGE.search(error.message):
        mismatch = _describe_weights(match[2], int(match[3]), int(match[4]))
        raise UserCodeError("bad_weights", f"{where}: table {match[1]}: {mismatch}; nothing of that batch was applied. "
                            "Correct the data, or the model") from error
    if match := _ID_MESSAGE.search(error.message):
        raise UserCodeError("bad_id", (
            f"{where}: table {match[1]}: {match[2]} has the id {match[3]}; allowed: {match[4]}; nothing of that batch "
            "was applied. Correct the data, or change the table")) from error
    if match := _OTHER_IDS_MESSAGE.search(error.message):
        raise UserCodeError("ids_drawn_at_random", (
            f"{where}: --communication_period: model_fn is called twice, to find ids and for the step, and gave other "
            f"ids of table {match[1]} for the step, as if it drew them at random or made them from variables or "
            "the global step; make them in input_fn, or leave the flag out")) from error


def refuse_drawn(lookups: Iterable[Lookup], batch: Any, flag: str) -> None:
    """Refuses ids that the model draws at random: its step would draw others than those whose rows were pulled.

    Args:
      batch: the structure of tensors on which the model was built.
      flag: because of which the model is built twice.

    Raises:
      UserCodeError: the model draws ids.
    """
    inputs = {component.ref() for component in tf.nest.flatten(batch, expand_composites=True)}
    for lookup in lookups:
        if source := _random_source(lookup.ids, inputs):
            raise UserCodeError("ids_drawn_at_random", (
                f"{flag}: model_fn draws ids of table {lookup.table} at random ({source.name}), and is called again "
                "for the step, which would draw others; draw them in input_fn, or leave the flag out"))


def _random_source(tensor: tf.Tensor, inputs: set[Any]) -> tf.Operation | None:
    """Returns an operation with random results on which a tensor depends other than through the inputs."""
    waiting, seen = [tensor], set(inputs)
    while waiting:
        tensor = waiting.pop()
        if tensor.ref() in seen:
            continue
        seen.add(tensor.ref())
        # The seed of a queue says in which order it gives its elements, each of them once.
        if tensor.op.op_def.is_stateful and "seed" in tensor.op.node_def.attr and "Queue" not in tensor.op.type:
            return tensor.op
        waiting.extend(tensor.op.inputs)
    return None
