"""Removes redundant transfers and reads from a finished graph, which computes the same afterwards."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.graph.devices import task_of

_MAX_COPIED = 256  # elements


def simplify_graph(graph: tf.Graph) -> None:
    """Simplifies the graph, which must not be finalized yet."""
    _copy_constants_to_their_readers(graph)
    _merge_reads(graph)


def _copy_constants_to_their_readers(graph: tf.Graph) -> None:
    """Gives each task its own copy of the small constants that its operations would read from another task."""
    # A transfer of 4 bytes takes as long as one of 100 kB. Adam's rates, which are constants of the worker, would cost
    # four transfers in each step.
    copies: dict[Any, tf.Tensor] = {}
    for op in graph.get_operations():
        for index, tensor in enumerate(op.inputs):
            there, here = task_of(tensor.op.device), task_of(op.device)
            if there != here and _is_outside_control_flow(op) and _is_small_constant(tensor.op):
                key = tensor.ref(), here
                if key not in copies:
                    copies[key] = _copy(tensor, op.device)
                op._update_input(index, copies[key])  # noqa: SLF001 (there is no public name for it)


def _is_small_constant(op: tf.Operation) -> bool:
    return (op.type == "Const" and op.outputs[0].shape.num_elements() <= _MAX_COPIED and _is_outside_control_flow(op)
            and not op.control_inputs)  # its readers may rely on the order that control inputs give


def _is_outside_control_flow(op: tf.Operation) -> bool:
    """Returns whether an operation is in no loop or branch, where operations may only read from within."""
    return _context(op) is None


def _context(op: tf.Operation) -> Any:
    return op._get_control_flow_context()  # noqa: SLF001 (there is no public name for it)


def _copy(constant: tf.Tensor, device: str) -> tf.Tensor:
    attributes = {name: constant.op.node_def.attr[name] for name in ("dtype", "value")}
    with tf.device(None), tf.device(device), tf.control_dependencies(None):
        return constant.graph.create_op(
            "Const", [], [constant.dtype], name=f"{constant.op.name}_here", attrs=attributes).outputs[0]


def _merge_reads(graph: tf.Graph) -> None:
    """Makes one read of several reads of a variable, unless control inputs order them differently."""
    # Adam reads its two powers again for each variable: in a model with 200 variables these were 400 of the 1400
    # operations that the ps runs in a step.
    first: dict[Any, tf.Tensor] = {}
    for read in graph.get_operations():
        if read.type != "ReadVariableOp":
            continue
        order = frozenset(read.control_inputs)
        key = read.inputs[0].ref(), read.get_attr("dtype"), read.device, _context(read), order
        value = first.setdefault(key, read.outputs[0])
        if value is not read.outputs[0]:
            for consumer in read.outputs[0].consumers():
                for index, tensor in enumerate(consumer.inputs):
                    if tensor is read.outputs[0]:
                        consumer._update_input(index, value)  # noqa: SLF001 (there is no public name for it)
