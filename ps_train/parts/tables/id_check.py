"""Stops a step before it sends an id that its table cannot have, or uses weights that do not match their ids.

It also refuses, while the graph is built, ids that a model draws at random where it is built twice: for its lookups,
and for its step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.tables.registry import Lookup
from ps_train.parts.tables.rules import DELETED_KEY, TableSpec

_BAD_ID, _BAD_WEIGHTS = "ps_train bad id", "ps_train bad weights"
_ID_MESSAGE = re.compile(rf"\[{_BAD_ID}\] \[(.*?)\] \[(.*?)\] \[(-?\d+)\] \[(.*?)\]", re.DOTALL)
_WEIGHTS_MESSAGE = re.compile(rf"\[{_BAD_WEIGHTS}\] \[(.*?)\] \[(.*?)\] \[(\d+)\] \[(\d+)\]", re.DOTALL)


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
    """Raises UserCodeError if an id, or weights of ids, have stopped a step.

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
