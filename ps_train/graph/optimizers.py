"""The optimizers that --optimizer names, and the slots of two optimizers with the same rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.graph.row_sparse.adam import RowSparseAdam

_MOMENTUM = 0.9
_OPTIMIZERS = {
    "sgd": tf.train.GradientDescentOptimizer,
    "momentum": tf.train.MomentumOptimizer,
    "adagrad": tf.train.AdagradOptimizer,
    "adam": RowSparseAdam,
    "rmsprop": tf.train.RMSPropOptimizer,
    "ftrl": tf.train.FtrlOptimizer,
}


def make_optimizer(
    name: str, learning_rate: float | tf.Tensor, *, decays_all_rows: bool = False, **options: Any
) -> tf.train.Optimizer:
    """Returns the optimizer of that name, with TensorFlow's defaults and a momentum of 0.9.

    Args:
      learning_rate: a number, or a float32 scalar.
      decays_all_rows: whether Adam decays the moments of every row of a table in each update, as TensorFlow's does.
      options: keyword arguments of the optimizer's class in place of the defaults.
    """
    if name == "momentum":
        options = {"momentum": _MOMENTUM, **options}
    make = tf.train.AdamOptimizer if name == "adam" and decays_all_rows else _OPTIMIZERS[name]
    return make(learning_rate, **options)


def pair_slots(
    variables: Sequence[tuple[tf.Variable, Sequence[tf.Variable]]], *, whole_optimizer: tf.train.Optimizer,
    parts_optimizer: tf.train.Optimizer,
) -> list[tuple[tf.Variable, list[tf.Variable]]]:
    """Returns (slot, slots of the parts) for each slot of variables that another optimizer updates in parts.

    Args:
      variables: (variable of `whole_optimizer`, the variables of `parts_optimizer` that correspond to it).
      whole_optimizer: has its slots, such as Adam's moments of each variable.
      parts_optimizer: an optimizer with the same rule, which has its slots, too.
    """
    pairs = []
    for name in whole_optimizer.get_slot_names():
        for whole, parts in variables:
            slot = whole_optimizer.get_slot(whole, name)
            if slot is not None:
                pairs.append((slot, [parts_optimizer.get_slot(part, name) for part in parts]))
    return pairs


def pair_non_slots(one: tf.train.Optimizer, other: tf.train.Optimizer) -> list[tuple[tf.Variable, tf.Variable]]:
    """Pairs the variables that two optimizers with the same rule have beside slots, such as Adam's powers."""
    return list(zip(one._non_slot_variables(), other._non_slot_variables()))  # noqa: SLF001 (no public name)
