"""The gradients of a mini-batch: of the variables, and of the rows of embedding tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.embeddings.connection import Connected, dense_gradient
from ps_train.graph.own_train_op.update import OwnUpdate
from ps_train.updates.local_steps.table_copies import StepRows
from ps_train.updates.local_steps.variable_copies import VariableCopy


def gradients_on_ps(
    loss: tf.Tensor, optimizer: tf.train.Optimizer, own: OwnUpdate | None, tables: Connected | None
) -> tuple[list, dict[str, tf.Tensor]]:
    """Returns (gradient or None, variable) of the variables, and the gradient of what was pulled of each table."""
    pulled = list(tables.pulled.values()) if tables else []
    if own:
        found, of_tables = own.pairs, tf.gradients(loss, pulled) if pulled else []
    else:
        # All at once: a second call would build the model's gradients a second time.
        found = optimizer.compute_gradients(loss, [*tf.trainable_variables(), *pulled]) if (
            pulled or tf.trainable_variables()) else []
        count = len(found) - len(pulled)
        found, of_tables = found[:count], [gradient for gradient, _ in found[count:]]
    return found, tables.gradients_by_id(dict(zip(tables.pulled, of_tables))) if tables else {}


def gradients_on_copies(
    loss: tf.Tensor, own: OwnUpdate | None, trained: Mapping[int, VariableCopy], values: Mapping[str, tf.Tensor],
    rows: StepRows | None,
) -> tuple[list[Any], dict[str, tf.Tensor]]:
    """Returns the gradients of the variables, and those of the rows of tables by name.

    Args:
      trained: the `id` of what the model reads of each trainable variable -> its copy.
      values: name of a variable -> what the model reads.
    """
    read = dict(rows.values) if rows else {}
    if own:
        dense, of_rows = own.gradients_of(list(trained)), tf.gradients(loss, list(read.values())) if read else []
    else:  # all at once: a second call would build the model's gradients a second time
        found = tf.gradients(loss, [*(values[copy.original.name] for copy in trained.values()), *read.values()])
        dense, of_rows = found[:len(trained)], found[len(trained):]
    return dense, {name: dense_gradient(gradient, read[name]) for name, gradient in zip(read, of_rows)}
