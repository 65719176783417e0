"""An embedding variable as the tensors of a DeepRec checkpoint.

    NAME-keys        int64 [n]         ids
    NAME-values      float32 [n, dim]
    NAME-versions    int64 [n]         the global step that last touched each row; [0] without steps_to_live
    NAME-freqs       int64 [n]         how often each id was seen; [0] without a filter
    NAME-keys_filtered, -versions_filtered, -freqs_filtered    the same of ids that have no row yet
    NAME-partition_offset, -partition_filter_offset            int32 [1001]

Ids are in the order of id % 1000, and the offsets say where each of these thousand groups begins: so a reader takes its
share on any number of ps. With a partitioner there are `NAME/part_0-keys` and so on: part p of P has the ids with
id % 1000 % P == p. Each slot of an optimizer has the same tensors, as `NAME/Adagrad-keys`.

This is what DeepRec's tensorflow/core/framework/embedding/embedding_var_ckpt_data.cc writes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import CheckpointError
from ps_train.parts.tables.rules import RowRule

GROUPS = 1000
# In the order of `PartTensors`.
SUFFIXES = ("-keys", "-values", "-versions", "-freqs", "-keys_filtered", "-versions_filtered", "-freqs_filtered",
            "-partition_offset", "-partition_filter_offset")


class Slot(NamedTuple):
    """A slot of an optimizer.

    Attributes:
      name: in checkpoints, such as "Adagrad" or "Adam_1".
      width: floats in a row; None for as many as a value has.
      dtype: of its tensor.
    """

    name: str
    width: int | None = None
    dtype: Any = tf.float32

    def floats(self, dim: int) -> int:
        """Returns the floats in a row."""
        return dim if self.width is None else self.width


class SavedRows(NamedTuple):
    """The rows of a variable as a checkpoint has them.

    Attributes:
      ids: int64 [n].
      versions: int64 [n]; the global step of the checkpoint if it has none, and zeros if it has no step either.
      freqs: int64 [n]; zeros if the checkpoint has none.
      values: float32 [n, dim].
      slots: float32 [n, m], those of all slots side by side.
      unseen_ids, unseen_freqs: int64 [k], the ids without a row, and how often each was seen.
    """

    ids: np.ndarray
    versions: np.ndarray
    freqs: np.ndarray
    values: np.ndarray
    slots: np.ndarray
    unseen_ids: np.ndarray
    unseen_freqs: np.ndarray


@dataclasses.dataclass(frozen=True)
class Counted(RowRule):
    """Another rule, and a last slot that counts the updates of each id: the bits of an int32.

    Attributes:
      rule: the other one.
      first: the count of an id before the update that makes its row.
    """

    rule: RowRule = dataclasses.field(default_factory=RowRule)
    first: int = 0

    def num_slots(self, dim: int) -> int:
        return self.rule.num_slots(dim) + 1

    def first_slots(self, count: tf.Tensor, dim: int) -> tf.Tensor:
        return tf.concat([self.rule.first_slots(count, dim), self._first_counts(count)], 1)

    def slots_for(self, values: tf.Tensor) -> tf.Tensor:
        return tf.concat([self.rule.slots_for(values), self._first_counts(tf.shape(values)[0])], 1)

    def _first_counts(self, count: tf.Tensor) -> tf.Tensor:
        return tf.bitcast(tf.fill(tf.stack([count, 1]), tf.constant(self.first, tf.int32)), tf.float32)

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        width = int(rows.shape[1]) - 1
        others, counts = tf.split(rows, [width, 1], axis=1)
        counts = tf.bitcast(tf.bitcast(counts, tf.int32) + 1, tf.float32)
        return tf.concat([self.rule.update(others, gradients, number), counts], 1)

    def scaled(self, factor: tf.Tensor | None) -> RowRule:
        return dataclasses.replace(self, rule=self.rule.scaled(factor))


def part_names(name: str, num_parts: int | None, slot: str = "") -> list[str]:
    """Returns the names of the parts of a variable, or of a slot of it, without suffixes."""
    parts = [name] if num_parts is None else [f"{name}/part_{number}" for number in range(num_parts)]
    return [f"{part}/{slot}" if slot else part for part in parts]


def read_rows(path: str, name: str, slots: Sequence[Slot], dim: int) -> SavedRows:
    """Returns the rows of a variable in a checkpoint, on any number of parts; holds all of them in memory.

    A slot that the checkpoint does not have is left out of `SavedRows.slots`, with all others: [n, 0].

    Raises:
      CheckpointError: the checkpoint has no such variable, or another width.
    """
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
    parts = [name] if f"{name}-keys" in shapes else list(itertools.takewhile(
        lambda part: f"{part}-keys" in shapes, (f"{name}/part_{number}" for number in itertools.count())))
    if not parts:
        raise CheckpointError("table_not_in_checkpoint", f"checkpoint {path} has no embedding variable {name!r}: "
                              f"neither {name}-keys nor {name}/part_0-keys")
    if (saved := shapes[f"{parts[0]}-values"][1:]) != [dim]:
        raise CheckpointError("checkpoint_of_another_model", f"checkpoint {path}: embedding variable {name} has "
                              f"dimension {saved} there, and {dim} in the script")
    has_slots = all(f"{part}/{slot.name}-values" in shapes for part in parts for slot in slots)
    rows = _joined([_read_part(reader, shapes, part, slots if has_slots else (), dim) for part in parts])
    if rows.versions.any() or tf.GraphKeys.GLOBAL_STEP not in shapes:
        return rows
    # Rules correct and decay slots by the number of updates, which must not begin again where the slots are old.
    return rows._replace(versions=np.full_like(rows.versions, reader.get_tensor(tf.GraphKeys.GLOBAL_STEP)))


def _read_part(reader: Any, shapes: Any, part: str, slots: Sequence[Slot], dim: int) -> SavedRows:
    def read(suffix: str, count: int) -> np.ndarray:
        found = reader.get_tensor(part + suffix) if part + suffix in shapes else np.zeros([0], np.int64)
        return found if len(found) == count else np.zeros([count], np.int64)

    ids = np.asarray(reader.get_tensor(f"{part}-keys"), np.int64)
    columns = []
    for slot in slots:
        if not np.array_equal(reader.get_tensor(f"{part}/{slot.name}-keys"), ids):
            raise CheckpointError("checkpoint_unreadable", f"{part}/{slot.name} has other keys than {part}")
        columns.append(np.asarray(reader.get_tensor(f"{part}/{slot.name}-values"), np.float32))
    num_unseen = shapes.get(f"{part}-keys_filtered", [0])[0]
    return SavedRows(
        ids, read("-versions", len(ids)), read("-freqs", len(ids)), reader.get_tensor(f"{part}-values"),
        np.concatenate(columns, 1) if columns else np.zeros([len(ids), 0], np.float32),
        np.asarray(read("-keys_filtered", num_unseen), np.int64), read("-freqs_filtered", num_unseen))


def _joined(parts: Sequence[SavedRows]) -> SavedRows:
    return SavedRows(*(np.concatenate(arrays) for arrays in zip(*parts)))


def in_order(ids: tf.Tensor, part: tf.Tensor, num_parts: int | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the places of the ids of a part, int64 scalar, in the order of a checkpoint, and its offsets [1001]."""
    groups = tf.math.floormod(ids, GROUPS)
    mine = tf.reshape(tf.where(tf.equal(tf.math.floormod(groups, num_parts or 1), part)), [-1])
    of_mine = tf.gather(groups, mine)
    order = tf.argsort(of_mine, stable=True)
    offsets = tf.searchsorted(tf.gather(of_mine, order), tf.range(GROUPS + 1, dtype=tf.int64))
    return tf.gather(mine, order), tf.cast(offsets, tf.int32)
