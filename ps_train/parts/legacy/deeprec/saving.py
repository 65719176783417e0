"""How a `tf.train.Saver` writes and reads an embedding variable.

    save       the rows of all ps --> ps 0, in the order of `layout.py` --> the Saver's own SaveV2
    restore    this process reads the checkpoint --> each ps takes its own rows

All rows of a variable pass through one process, as those of a variable do; so the rows of a ps may have up to 2 GB.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.training.saving.saveable_object import SaveSpec

from ps_train.parts.legacy.classic import membership
from ps_train.parts.legacy.deeprec import functions, layout
from ps_train.parts.tables import index
from ps_train.parts.tables.index import COUNTS, count_of
from ps_train.parts.tables.rules import LAST_MARK, MAX_ROWS_PER_PS, RowRule
from ps_train.parts.tables.store import Store
from ps_train.parts.tables.store_ops import Piece, RowOps


def ps_device() -> str:
    """Returns the device that collects the rows of a save: ps 0."""
    member = membership.current()
    return f"{member.cluster.ps[0].device}/cpu:0" if member and member.cluster.ps else "/cpu:0"


def own_device() -> str:
    """Returns the CPU of this process."""
    member = membership.current()
    return f"{member.cluster.task.device}/cpu:0" if member else "/cpu:0"


def reset_rows(ops: RowOps) -> tf.Operation:
    """Returns the operation that empties the rows of a variable on a ps."""
    return ops.store.call("reset", lambda store: [_reset_op(store, tf.constant(0, tf.int64))])[0].op


def _reset_op(store: Store, num_coming: tf.Tensor) -> tf.Operation:
    """Returns the operation that empties a store; it then has room for so many rows, int64 scalar, and half as many."""
    ops = RowOps(store)
    capacity = tf.minimum(tf.maximum(num_coming + num_coming // 2, ops.capacity), MAX_ROWS_PER_PS)
    return ops.reset_op(capacity, tf.constant(0, tf.int64))


def save_specs(variable: Any) -> list[SaveSpec]:
    """Returns what a Saver writes of a variable."""
    stores = variable.stores  # an unconnected variable has its rule and slots from now on
    slots, dim, is_counted = variable.slots, variable.spec.dim, isinstance(variable.rule, layout.Counted)
    num_parts, has_versions = variable.num_parts, bool(variable.spec.ttl_steps)

    def body(*inputs: tf.Tensor) -> list[tf.Tensor]:
        *rows, number = inputs
        order, offsets = layout.in_order(rows[0], number, num_parts)
        ids, marks, values, floats = (tf.gather(part, order) for part in rows)
        *columns, counts = _columns(slots, dim, is_counted, floats)
        none = tf.zeros([0], tf.int64)
        shared = (tf.cast(marks, tf.int64) if has_versions else none, none if counts is None else counts,
                  none, none, none, offsets, tf.zeros([layout.GROUPS + 1], tf.int32))
        return [ids, *shared, values, *columns]

    key = ("part", tuple(slot[1:] for slot in slots), is_counted, num_parts, has_versions)
    specs = []
    with tf.control_dependencies(None), tf.device(None), tf.device(variable.device):
        rows = _rows(stores)
        for number, part in enumerate(layout.part_names(variable.spec.name, num_parts)):
            ids, *shared = functions.call_function(key, body, [*rows, tf.constant(number, tf.int64)])
            shared, columns = shared[:len(layout.SUFFIXES) - 2], shared[len(layout.SUFFIXES) - 2:]
            for name, column in zip([part, *(f"{part}/{slot.name}" for slot in slots)], columns):
                specs += [SaveSpec(tensor, "", name + suffix)
                          for suffix, tensor in zip(layout.SUFFIXES, [ids, column, *shared])]
    return specs


def _rows(stores: Sequence[RowOps]) -> list[tf.Tensor]:
    """Returns ids, marks, values and slots of the rows on all ps, each ps at one moment."""
    def body(store: Store) -> list[tf.Tensor]:
        used = tf.identity(count_of(index.read_whole(store.counts), "used"))
        return RowOps(store).piece(tf.zeros([], tf.int64), used, tf.constant(-1, tf.int32))

    pieces = [ops.store.call("rows", body) for ops in stores]
    return [tf.concat(list(parts), 0) for parts in zip(*pieces)] if len(pieces) > 1 else pieces[0]


def _columns(slots: Sequence[layout.Slot], dim: int, is_counted: bool, floats: tf.Tensor) -> list[tf.Tensor | None]:
    """Returns the columns of each slot of the optimizer, and at last the counts int64 [n], None without a filter."""
    widths = [slot.floats(dim) for slot in slots]
    parts = tf.split(floats, [*widths, *([1] if is_counted else [])], axis=1) if widths or is_counted else []
    counts = tf.cast(tf.reshape(tf.bitcast(parts[-1], tf.int32), [-1]), tf.int64) if is_counted else None
    return [*(tf.cast(part, slot.dtype) for slot, part in zip(slots, parts)), counts]


def restore_rows(variable: Any, prefix: tf.Tensor) -> tf.Operation:
    """Returns the operation that empties a variable and reads its rows from a checkpoint.

    Args:
      prefix: string scalar, its path.
    """
    num_slots = variable.stores[0].store.width - variable.spec.dim
    with tf.control_dependencies(None), tf.device(None), tf.device(own_device()):
        read = functools.partial(_read, variable=variable)
        dtypes = [tf.int64, tf.int32, tf.float32, tf.float32, tf.int64, tf.int32]
        shapes = [[None], [None], [None, variable.spec.dim], [None, num_slots], [None], [None]]
        parts = [tf.ensure_shape(part, shape) for part, shape in zip(tf.py_func(read, [prefix], dtypes), shapes)]
        updates = tf.cast(tf.reduce_max(tf.concat([parts[1], [0]], 0)), tf.int64)
        return tf.group(*[_load(ops, Piece(*parts[:4]), parts[4:], updates) for ops in variable.stores])


def _load(ops: RowOps, piece: Piece, unseen: Sequence[tf.Tensor], updates: tf.Tensor) -> tf.Operation:
    def body(store: Store, *inputs: tf.Tensor) -> list[tf.Operation]:
        with tf.control_dependencies([_reset_op(store, tf.size(inputs[0], out_type=tf.int64))]):
            loaded = RowOps(store).load_piece(
                Piece(*(tf.identity(part) for part in inputs[:4])), keeps_present=tf.constant(False))
        with tf.control_dependencies([loaded]):
            last = [tf.raw_ops.ResourceScatterUpdate(
                resource=store.counts.handle, indices=COUNTS.index("updates"), updates=inputs[6])]
            if store.spec.min_count > 1:
                last.append(store.index.raise_seen_of(*inputs[4:6]))
            return [tf.group(*last)]

    own = ops.of_ps(piece) if ops.store.num_ps > 1 else piece  # here: what belongs to other ps is not transferred
    return ops.store.call("load", body, [*own, *unseen, updates])[0].op


def _read(prefix: bytes, variable: Any) -> list[np.ndarray]:
    """Returns ids, marks, values, slots, and the ids without a row with their counts, from a checkpoint."""
    dim = variable.spec.dim
    rows = layout.read_rows(prefix.decode(), variable.spec.name, variable.slots, dim)
    is_counted = isinstance(variable.rule, layout.Counted)
    rule = variable.rule.rule if is_counted else variable.rule
    slots = rows.slots
    if slots.shape[1] != rule.num_slots(dim):
        slots = _slots_for(rule, rows.values)
    if is_counted:
        freqs = np.minimum(rows.freqs, np.iinfo(np.int32).max).astype(np.int32)
        slots = np.concatenate([slots, freqs[:, np.newaxis].view(np.float32)], 1)
    marks = np.clip(rows.versions, 1, LAST_MARK).astype(np.int32)
    return [rows.ids, marks, rows.values, slots.astype(np.float32, copy=False), rows.unseen_ids,
            np.minimum(rows.unseen_freqs, np.iinfo(np.int32).max).astype(np.int32)]


def _slots_for(rule: RowRule, values: np.ndarray) -> np.ndarray:
    """Returns new slots for rows of a checkpoint that has none, of another optimizer, say."""
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(rule.slots_for(tf.constant(values, tf.float32)))


def evict(variables: Sequence[Any], session: tf.Session) -> None:
    """Drops the rows that an `evict_option` drops at a save."""
    stores = [(variable, ops) for variable in variables if variable.evicts for ops in variable.stores]
    # In one run: TensorFlow prepares the graph anew for each set of fetches.
    for (variable, ops), values in zip(stores, session.run([ops.counts for _, ops in stores]) if stores else ()):
        steps, counts = variable.spec.ttl_steps, dict(zip(COUNTS, values))
        if steps and counts["updates"] > steps:
            ops.drop(session, counts["updates"] - steps, counts["used"])
        if variable.l2_threshold:
            ops.drop_small(session, variable.l2_threshold, counts["used"])
