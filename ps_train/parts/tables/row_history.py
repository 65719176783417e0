"""Keeps with each row when it was updated first, and how often: two more slots behind those of its rule.

    value | slots of the rule | number of the first update | number of updates

Both are the bits of an int32. Updates are those of the table on the ps of the row, as of its mark.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.tables.rules import RowRule, mark_of

_NUM_SLOTS = 2
_SUFFIX = " with history"


@dataclasses.dataclass(frozen=True)
class WithHistory(RowRule):
    """Another rule, whose rows have a history, which `note_update` changes and the rule does not.

    Attributes:
      rule: the other one.
    """

    rule: RowRule = dataclasses.field(default_factory=RowRule)

    @property
    def name(self) -> str:
        return f"{self.rule.name}{_SUFFIX}"

    @property
    def slot_merging(self) -> str:  # type: ignore[override]
        return self.rule.slot_merging

    def num_slots(self, dim: int) -> int:
        return self.rule.num_slots(dim) + _NUM_SLOTS

    def first_slots(self, count: tf.Tensor, dim: int) -> tf.Tensor:
        return tf.concat([self.rule.first_slots(count, dim), tf.zeros(tf.stack([count, _NUM_SLOTS]))], 1)

    def slots_for(self, values: tf.Tensor) -> tf.Tensor:
        return tf.concat([self.rule.slots_for(values), tf.zeros(tf.stack([tf.shape(values)[0], _NUM_SLOTS]))], 1)

    def update(self, rows: tf.Tensor, gradients: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        others, history = _split(rows)
        return tf.concat([self.rule.update(others, gradients, number), history], 1)

    def scaled(self, factor: tf.Tensor | None) -> RowRule:
        rule = self.rule.scaled(factor)
        return dataclasses.replace(self, rule=rule, learning_rate=rule.learning_rate)

    def settle(self, rows: tf.Tensor) -> tf.Tensor:
        others, history = _split(rows)
        return tf.concat([self.rule.settle(others), history], 1)


def note_update(old: tf.Tensor, new: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Returns the rows `new` with the history of `old`, one update later; both float32 [n, width].

    Args:
      number: int64 scalar, of this update.
    """
    first, count = tf.split(tf.bitcast(_split(old)[1], tf.int32), _NUM_SLOTS, axis=1)
    history = tf.concat([tf.where(count > 0, first, tf.zeros_like(first) + mark_of(number)), count + 1], 1)
    return tf.concat([_split(new)[0], tf.bitcast(history, tf.float32)], 1)


def has_history(rule_name: str) -> bool:
    """Returns whether the rows of a table, whose rule has this name in a checkpoint, have a history."""
    return rule_name.endswith(_SUFFIX)


def read_history(slots: np.ndarray) -> np.ndarray:
    """Returns (number of the first update, number of updates) of rows of slots float32 [n, m], int32 [n, 2]."""
    return np.ascontiguousarray(slots[:, -_NUM_SLOTS:]).view(np.int32)


def _split(rows: tf.Tensor) -> list[tf.Tensor]:
    return tf.split(rows, [int(rows.shape[1]) - _NUM_SLOTS, _NUM_SLOTS], axis=1)
