"""Joins the lookups of a step in ordinary variables: one transfer each way per ps for any number of tables.

    worker   ids of all lookups --> unique --> [sizes, ids] --+              +--> rows --> what the model reads
                                                              v              |
    ps                                                 ResourceGather of each table
    worker   gradients --> summed by row --> [sizes, ids, sums] --+
    ps                                                            +--> what is applied to each table

The model is built on its variables as usual, and its gradients are made. A click model with 26 + 26 tables then has two
transfers for each lookup and two for each gradient, 145 in all in a step. Here the operations that read the rows of the
lookups get rows of the one message instead, and the sparse gradients of a ps travel as one tensor. User code and
checkpoints see no difference. docs/decisions/transfers.md says more.

They are joined inside `placement.on_cluster`, which places on the worker what is not placed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import extensions, transfer
from ps_train.graph.devices import is_on_ps
from ps_train.part import Part

_WORDS = 2  # float32 words in an int64


class _Table(NamedTuple):
    """A variable with lookups that are joined.

    Attributes:
      variable: float32 [rows, ...], with a known shape.
      gathers: its ResourceGather operations.
    """

    variable: tf.Variable
    gathers: list[tf.Operation]


class JoinedLookupsPart(Part):
    """Lookups in ordinary variables, in the training graph of one worker."""

    def begin_graph(self) -> None:
        """Makes the graph join them."""
        extensions.set_lookups(JoinedLookups())


class JoinedLookups(extensions.Lookups):
    """Joins lookups and sparse gradients; see `Lookups`.

    A lookup is not joined if control inputs order it, if it is in a branch or a loop, if its ids or readers are on a
    ps, or if its ids depend on another lookup.
    """

    def join_lookups(self, step: Sequence[tf.Tensor | tf.Operation], variables: Iterable[tf.Variable]) -> None:
        """Gives the readers of the looked-up rows of a step slices of one message per ps."""
        for tables in _by_ps([variable for variable in variables if _can_be_table(variable)], step):
            with tf.name_scope("lookups"), tf.control_dependencies(None):
                _serve(tables)

    def join_gradients(self, pairs: Sequence[transfer.Pair], *, sorts_ids: bool) -> list[transfer.Pair]:
        """Returns the pairs, with sparse gradients of one ps on it after one transfer, each row once."""
        groups: dict[str, list[int]] = {}
        for number, (gradient, variable) in enumerate(pairs):
            if isinstance(gradient, tf.IndexedSlices) and _can_be_table(variable) and gradient.dtype == tf.float32:
                groups.setdefault(variable.device, []).append(number)
        is_joined = {number for numbers in groups.values() for number in numbers}
        others = [(None, variable) if number in is_joined else (gradient, variable)
                  for number, (gradient, variable) in enumerate(pairs)]
        joined = super().join_gradients(others, sorts_ids=sorts_ids)
        for device, numbers in groups.items():
            with tf.name_scope("sparse_gradients"):
                pushed = _push([pairs[number] for number in numbers], device, sorts_ids=sorts_ids)
            for number, gradient in zip(numbers, pushed):
                joined[number] = gradient, pairs[number][1]
        return joined


def _can_be_table(variable: tf.Variable) -> bool:
    return (transfer.has_handle(variable) and variable.dtype.base_dtype == tf.float32 and is_on_ps(variable.device)
            and len(variable.shape.as_list() if variable.shape.is_fully_defined() else []) > 0
            and variable.shape.num_elements() > 0)


def _by_ps(variables: Sequence[tf.Variable], step: Sequence[tf.Tensor | tf.Operation]) -> list[list[_Table]]:
    """Returns the tables of each ps that have lookups to join, with these lookups."""
    needed = set(transfer.upstream(step))
    gathers = {op for variable in variables for op in variable.handle.consumers()
               if op.type == "ResourceGather" and op in needed and _can_be_joined(op)}
    # A message that waits for all ids must not wait for rows that it brings.
    dependent = transfer.downstream(gathers)
    tables_by_ps: dict[str, list[_Table]] = {}
    for variable in variables:
        joined = [op for op in variable.handle.consumers() if op in gathers and op.inputs[1].op not in dependent]
        if joined:
            tables_by_ps.setdefault(variable.device, []).append(_Table(variable, joined))
    return list(tables_by_ps.values())


def _can_be_joined(gather: tf.Operation) -> bool:
    ids = gather.inputs[1]
    return (not gather.control_inputs and not transfer.is_enclosed(gather) and gather.get_attr("batch_dims") == 0
            and not transfer.is_enclosed(ids.op) and not is_on_ps(ids.op.device)
            and all(not is_on_ps(reader.device) for reader, _ in _readers(gather)))


def _readers(gather: tf.Operation) -> list[tuple[tf.Operation, int]]:
    """Returns the readers of the rows, as (operation, index of its input), through identities on the ps."""
    readers = []
    for reader in gather.outputs[0].consumers():
        if reader.type == "Identity" and is_on_ps(reader.device) and not reader.control_inputs:
            readers += _readers(reader)
        else:
            readers += [(reader, index) for index, tensor in enumerate(reader.inputs) if tensor is gather.outputs[0]]
    return readers


def _serve(tables: Sequence[_Table]) -> None:
    """Adds the message to one ps and the answer, and gives its rows to the readers."""
    unique_ids, places_by_table = zip(*(tf.unique(_flat_ids(table.gathers)) for table in tables))
    rows_by_table = _pull([table.variable for table in tables], unique_ids)
    for table, rows, places in zip(tables, rows_by_table, places_by_table):
        ids = [gather.inputs[1] for gather in table.gathers]
        parts = tf.split(places, [tf.size(ids_of_gather) for ids_of_gather in ids]) if len(ids) > 1 else [places]
        for gather, part in zip(table.gathers, parts):
            value = tf.gather(rows, tf.reshape(part, tf.shape(gather.inputs[1])))
            value.set_shape(gather.outputs[0].shape)
            for reader, index in _readers(gather):
                if not transfer.is_enclosed(reader):
                    transfer.set_input(reader, index, value)


def _flat_ids(gathers: Sequence[tf.Operation]) -> tf.Tensor:
    return tf.concat([tf.reshape(tf.cast(gather.inputs[1], tf.int64), [-1]) for gather in gathers], 0)


def _pull(variables: Sequence[tf.Variable], ids: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the rows of each variable on the worker, [n, ...], for ids int64 [n]; the variables are on one ps."""
    sizes = _sizes(ids)
    message = tf.concat([sizes, *ids], 0)
    with tf.device(variables[0].device):
        arrived = tf.identity(message)
        arrived_ids = tf.split(arrived[len(ids):], arrived[:len(ids)], num=len(ids))
        rows = [tf.raw_ops.ResourceGather(resource=variable.handle, indices=indices, dtype=tf.float32)
                for variable, indices in zip(variables, arrived_ids)]
        answer = _flat(rows)
    return _cut(tf.identity(answer), sizes, variables)


def _push(pairs: Sequence[transfer.Pair], device: str, *, sorts_ids: bool) -> list[tf.IndexedSlices]:
    """Returns sparse gradients of variables of one ps on that ps, with each row once."""
    summed = [transfer.summed_by_row(gradient, sorts_ids=sorts_ids) for gradient, _ in pairs]
    ids, sums = [tf.cast(each.indices, tf.int64) for each in summed], [each.values for each in summed]
    # The bits of the integers travel as floats, because a second transfer would cost more than the conversion.
    integers = tf.reshape(tf.bitcast(tf.concat([_sizes(ids), *ids], 0), tf.float32), [-1])
    message = tf.concat([integers, _flat(sums)], 0)
    variables = [variable for _, variable in pairs]
    with tf.device(device):
        arrived = tf.identity(message)
        sizes = _integers(arrived[:_WORDS * len(pairs)])
        end = _WORDS * (len(pairs) + tf.reduce_sum(sizes))
        arrived_ids = tf.split(_integers(arrived[_WORDS * len(pairs):end]), sizes, num=len(pairs))
        return [tf.IndexedSlices(values, tf.cast(indices, gradient.indices.dtype), variable.shape.as_list())
                for values, indices, (gradient, variable)
                in zip(_cut(arrived[end:], sizes, variables), arrived_ids, pairs)]


def _sizes(ids: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.stack([tf.size(indices, out_type=tf.int64) for indices in ids])


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
