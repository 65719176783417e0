"""Joins the lookups of a step in ordinary variables: one transfer each way per ps, whatever number of tables.

    worker   ids of all lookups --> unique --> [sizes, ids] --+              +--> rows --> what the model reads
                                                              v              |
    ps                                                 ResourceGather of each table
    worker   gradients --> summed by row --> [sizes, ids, sums] --+
    ps                                                            +--> what is applied to each table

The model is built on its variables as usual, and its gradients are made. A click model with 26 + 26 tables then has two
transfers for each lookup and two for each gradient, 145 in a step with the rest. Here the operations that read the
rows of the lookups are given rows of the one message instead, and the sparse gradients of a ps travel as one tensor.
User code and checkpoints see no difference. docs/decisions/transfers.md says more.

These functions are called inside `placement.on_cluster`, which places on the worker what is not placed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import transfer
from ps_train.graph.devices import is_on_ps

_WORDS = 2  # float32 words in an int64


class _Table(NamedTuple):
    """A variable with lookups that are joined.

    Attributes:
      variable: float32 [rows, ...], with a known shape.
      gathers: its ResourceGather operations.
    """

    variable: tf.Variable
    gathers: list[tf.Operation]


def join_lookups(step: Sequence[tf.Tensor | tf.Operation], variables: Iterable[tf.Variable]) -> None:
    """Makes what reads the lookups of a step read the rows of one message per ps.

    A lookup stays as it is if control inputs order it, if it is in a branch or a loop, if its ids or what reads it are
    on a ps, or if its ids depend on another lookup.

    Args:
      step: what a step computes: its loss, its gradients, and what else it runs.
      variables: those that may be tables.
    """
    for tables in _by_ps([_Table(variable, []) for variable in variables if _can_be_table(variable)], step):
        with tf.name_scope("lookups"), tf.control_dependencies(None):
            _serve(tables)


def join_gradients(pairs: Sequence[transfer.Pair], *, sorts_ids: bool) -> list[transfer.Pair]:
    """Returns (gradient or None, variable); sparse gradients of one ps are on it, after one transfer, each row once.

    Args:
      pairs: the same, on the worker.
      sorts_ids: whether the rows of a gradient ascend, as TensorFlow's accumulators need them to match rows.
    """
    groups: dict[str, list[int]] = {}
    for number, (gradient, variable) in enumerate(pairs):
        if isinstance(gradient, tf.IndexedSlices) and _can_be_table(variable) and gradient.dtype == tf.float32:
            groups.setdefault(variable.device, []).append(number)
    joined = list(pairs)
    for device, numbers in groups.items():
        with tf.name_scope("sparse_gradients"):
            sent = _push([pairs[number] for number in numbers], device, sorts_ids=sorts_ids)
        for number, gradient in zip(numbers, sent):
            joined[number] = gradient, pairs[number][1]
    return joined


def _can_be_table(variable: tf.Variable) -> bool:
    return (transfer.has_handle(variable) and variable.dtype.base_dtype == tf.float32 and is_on_ps(variable.device)
            and len(variable.shape.as_list() if variable.shape.is_fully_defined() else []) > 0
            and variable.shape.num_elements() > 0)


def _by_ps(tables: Sequence[_Table], step: Sequence[tf.Tensor | tf.Operation]) -> list[list[_Table]]:
    """Returns the tables of each ps that have lookups to join, with these lookups."""
    needed = set(transfer.upstream(step))
    gathers = {op for one in tables for op in one.variable.handle.consumers()
               if op.type == "ResourceGather" and op in needed and _can_be_joined(op)}
    # A message that waits for all ids must not wait for rows that it brings.
    dependent = _downstream(gathers)
    found: dict[str, list[_Table]] = {}
    for one in tables:
        own = [op for op in one.variable.handle.consumers() if op in gathers and op.inputs[1].op not in dependent]
        if own:
            found.setdefault(one.variable.device, []).append(one._replace(gathers=own))
    return list(found.values())


def _can_be_joined(gather: tf.Operation) -> bool:
    ids = gather.inputs[1]
    return (not gather.control_inputs and not transfer.is_enclosed(gather) and gather.get_attr("batch_dims") == 0
            and not transfer.is_enclosed(ids.op) and not is_on_ps(ids.op.device)
            and all(not is_on_ps(reader.device) for reader, _ in _readers(gather)))


def _readers(gather: tf.Operation) -> list[tuple[tf.Operation, int]]:
    """Returns what reads the rows, as (operation, index of its input), through identities on the ps."""
    found = []
    for reader in gather.outputs[0].consumers():
        if reader.type == "Identity" and is_on_ps(reader.device) and not reader.control_inputs:
            found += _readers(reader)
        else:
            found += [(reader, index) for index, tensor in enumerate(reader.inputs) if tensor is gather.outputs[0]]
    return found


def _downstream(ops: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Returns the operations that need one of these."""
    found: set[tf.Operation] = set()
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        after = [reader for tensor in op.outputs for reader in tensor.consumers()]
        after += op._control_outputs  # noqa: SLF001 (there is no public name for it)
        waiting += [one for one in after if one not in found]
        found.update(after)
    return found


def _serve(tables: Sequence[_Table]) -> None:
    """Adds the message to one ps and the answer, and gives its rows to the readers."""
    unique, places = zip(*(tf.unique(_flat_ids(one.gathers)) for one in tables))
    rows = _pull([one.variable for one in tables], unique)
    for one, own_rows, own_places in zip(tables, rows, places):
        ids = [gather.inputs[1] for gather in one.gathers]
        parts = tf.split(own_places, [tf.size(each) for each in ids]) if len(ids) > 1 else [own_places]
        for gather, each, part in zip(one.gathers, ids, parts):
            value = tf.gather(own_rows, tf.reshape(part, tf.shape(each)))
            value.set_shape(gather.outputs[0].shape)
            for reader, index in _readers(gather):
                if not transfer.is_enclosed(reader):
                    reader._update_input(index, value)  # noqa: SLF001 (there is no public name for it)


def _flat_ids(gathers: Sequence[tf.Operation]) -> tf.Tensor:
    return tf.concat([tf.reshape(tf.cast(gather.inputs[1], tf.int64), [-1]) for gather in gathers], 0)


def _pull(variables: Sequence[tf.Variable], ids: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the rows of each variable on the worker, [n, ...], for ids int64 [n]; the variables are on one ps."""
    sizes = tf.stack([tf.size(one, out_type=tf.int64) for one in ids])
    message = tf.concat([sizes, *ids], 0)
    with tf.device(variables[0].device):
        arrived = tf.identity(message)
        there = tf.split(arrived[len(ids):], arrived[:len(ids)], num=len(ids))
        rows = [tf.raw_ops.ResourceGather(resource=variable.handle, indices=one, dtype=tf.float32)
                for variable, one in zip(variables, there)]
        answer = _flat(rows)
    return _cut(tf.identity(answer), sizes, variables)


def _push(pairs: Sequence[transfer.Pair], device: str, *, sorts_ids: bool) -> list[tf.IndexedSlices]:
    """Returns sparse gradients of variables of one ps on that ps, with each row once."""
    ids, sums = zip(*(_summed_by_row(gradient, sorts_ids=sorts_ids) for gradient, _ in pairs))
    sizes = tf.stack([tf.size(one, out_type=tf.int64) for one in ids])
    # The bits of the integers travel as floats, because a second transfer would cost more than the conversion.
    integers = tf.reshape(tf.bitcast(tf.concat([sizes, *ids], 0), tf.float32), [-1])
    message = tf.concat([integers, *(tf.reshape(one, [-1]) for one in sums)], 0)
    variables = [variable for _, variable in pairs]
    with tf.device(device):
        arrived = tf.identity(message)
        there = _integers(arrived[:_WORDS * len(pairs)])
        end = _WORDS * (len(pairs) + tf.reduce_sum(there))
        own_ids = tf.split(_integers(arrived[_WORDS * len(pairs):end]), there, num=len(pairs))
        return [tf.IndexedSlices(values, tf.cast(one, gradient.indices.dtype), variable.shape.as_list())
                for values, one, (gradient, variable) in zip(_cut(arrived[end:], there, variables), own_ids, pairs)]


def _summed_by_row(gradient: tf.IndexedSlices, *, sorts_ids: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the rows that have a gradient, int64 [n], each once, and of each the sum of its gradients [n, ...]."""
    ids, places = tf.unique(tf.cast(gradient.indices, tf.int64))
    if sorts_ids:
        order = tf.argsort(ids)
        ids, places = tf.gather(ids, order), tf.gather(tf.math.invert_permutation(order), places)
    return ids, tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids))


def _integers(words: tf.Tensor) -> tf.Tensor:
    """Returns int64 [n], given their bits as float32 [2 n]."""
    return tf.bitcast(tf.reshape(words, [-1, _WORDS]), tf.int64)


def _flat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0)


def _cut(message: tf.Tensor, sizes: tf.Tensor, variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """Returns the rows of each variable, [n, ...], given the number of its rows, int64 [variables]."""
    shapes = [variable.shape.as_list()[1:] for variable in variables]
    widths = tf.constant([math.prod(shape) for shape in shapes], tf.int64)
    parts = tf.split(message, sizes * widths, num=len(shapes))
    return [tf.reshape(part, [-1, *shape]) for part, shape in zip(parts, shapes)]
