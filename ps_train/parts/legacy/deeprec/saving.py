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
from ps_train.parts.legacy.deeprec import layout
from ps_train.parts.tables import index
from ps_train.parts.tables.index import COUNTS, count_of
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
    with ops.store.on_ps():
        return ops.reset_op(tf.constant(ops.capacity, tf.int64), tf.constant(0, tf.int64))


def save_specs(variable: Any) -> list[SaveSpec]:
    """Returns what a Saver writes of a variable."""
    with tf.control_dependencies(None), tf.device(None), tf.device(variable.device):
        ids, marks, values, slots = _rows(variable.stores)
        columns = _columns(variable, slots)
        counts = columns.pop()
        specs = []
        for number, part in enumerate(layout.part_names(variable.spec.name, variable.num_parts)):
            order, offsets = layout.in_order(ids, number, variable.num_parts)
            gather = functools.partial(tf.gather, indices=order)
            shared = (gather(tf.cast(marks, tf.int64)) if variable.spec.ttl_steps else _nothing(),
                      _nothing() if counts is None else gather(counts))
            specs += _part_specs(part, gather(ids), gather(values), shared, offsets)
            for slot, column in zip(variable.slots, columns):
                specs += _part_specs(f"{part}/{slot.name}", gather(ids), gather(column), shared, offsets)
    return specs


def _nothing() -> tf.Tensor:
    return tf.zeros([0], tf.int64)


def _rows(stores: Sequence[RowOps]) -> list[tf.Tensor]:
    """Returns ids, marks, values and slots of the rows on all ps, each ps at one moment."""
    pieces = []
    for ops in stores:
        with ops.store.on_ps():
            used = tf.identity(count_of(index.read_whole(ops.store.counts), "used"))
            pieces.append(ops.piece(tf.zeros([], tf.int64), used, tf.constant(-1, tf.int32)))
    return [tf.concat(list(parts), 0) for parts in zip(*pieces)]


def _columns(variable: Any, slots: tf.Tensor) -> list[tf.Tensor | None]:
    """Returns the columns of each slot of the optimizer, and at last the counts int64 [n], None without a filter."""
    widths = [slot.floats(variable.spec.dim) for slot in variable.slots]
    is_counted = isinstance(variable.rule, layout.Counted)
    parts = tf.split(slots, [*widths, *([1] if is_counted else [])], axis=1) if widths or is_counted else []
    counts = tf.cast(tf.reshape(tf.bitcast(parts[-1], tf.int32), [-1]), tf.int64) if is_counted else None
    columns = [tf.cast(part, slot.dtype) for slot, part in zip(variable.slots, parts)]
    return [*columns, counts]


def _part_specs(
    name: str, ids: tf.Tensor, values: tf.Tensor, shared: tuple[tf.Tensor, tf.Tensor], offsets: tf.Tensor
) -> list[SaveSpec]:
    none = _nothing()
    tensors = (ids, values, *shared, none, none, none, offsets, tf.zeros([layout.GROUPS + 1], tf.int32))
    return [SaveSpec(tensor, "", name + suffix) for suffix, tensor in zip(layout.SUFFIXES, tensors)]


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
    own = ops.of_ps(piece)
    with tf.control_dependencies([reset_rows(ops)]):
        loaded = ops.load_piece(Piece(*(tf.identity(part) for part in own)), keeps_present=tf.constant(False))
    with tf.control_dependencies([loaded]), ops.store.on_ps():
        last = [tf.raw_ops.ResourceScatterUpdate(
            resource=ops.store.counts.handle, indices=COUNTS.index("updates"), updates=tf.identity(updates))]
        if ops.store.spec.min_count > 1:
            last.append(ops.store.index.raise_seen_of(*(tf.identity(part) for part in unseen)))
        return tf.group(*last)


def _read(prefix: bytes, variable: Any) -> list[np.ndarray]:
    """Returns ids, marks, values, slots, and the ids without a row with their counts, from a checkpoint."""
    dim = variable.spec.dim
    rows = layout.read_rows(prefix.decode(), variable.spec.name, variable.slots, dim)
    is_counted = isinstance(variable.rule, layout.Counted)
    rule = variable.rule.rule if is_counted else variable.rule
    slots = rows.slots
    if slots.shape[1] != rule.num_slots(dim):
        slots = _first_slots(variable, len(rows.ids))
    if is_counted:
        freqs = np.minimum(rows.freqs, np.iinfo(np.int32).max).astype(np.int32)
        slots = np.concatenate([slots, freqs[:, np.newaxis].view(np.float32)], 1)
    marks = np.maximum(rows.versions, 1).astype(np.int32)
    return [rows.ids, marks, rows.values, slots.astype(np.float32, copy=False), rows.unseen_ids,
            np.minimum(rows.unseen_freqs, np.iinfo(np.int32).max).astype(np.int32)]


def _first_slots(variable: Any, count: int) -> np.ndarray:
    """Returns new slots for rows of a checkpoint that has none, of another optimizer, say."""
    rule = variable.rule.rule if isinstance(variable.rule, layout.Counted) else variable.rule
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(rule.first_slots(tf.constant(count), variable.spec.dim))


def evict(variable: Any, session: tf.Session) -> None:
    """Drops the rows that an `evict_option` drops at a save."""
    steps = variable.spec.ttl_steps
    for ops in variable.stores if variable.evicts else ():
        counts = dict(zip(COUNTS, session.run(ops.counts)))
        if steps and counts["updates"] > steps:
            ops.drop(session, counts["updates"] - steps, counts["used"])
        if variable.l2_threshold:
            ops.drop_small(session, variable.l2_threshold, counts["used"])
