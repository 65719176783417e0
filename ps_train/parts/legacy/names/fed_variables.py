"""Feeding a variable: `session.run(loss, {learning_rate: 0.1})` gives the value to whatever reads it, as in TF1.

Each read of a resource variable is an operation of its own. TensorFlow feeds the one that the variable has made, which
nothing else takes, so the step would go on with the variable's own value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.client import session as sessions  # no public name for what finds the tensors of fetches
from tensorflow.python.ops import resource_variable_ops  # no public name for the class of all variables

from ps_train.errors import ConfigError

# Operations on a variable that take no value of it.
_READS_NOTHING = re.compile("Assign|Resource(Sparse)?Apply|ResourceScatter|Var|Destroy|.*SetShape")
# They pass a variable on, to the branch of a `tf.cond` or into a loop.
_PASSES_ON = ("Switch", "Enter", "Identity")
_ATTRIBUTE = "_ps_train_fed_variables"  # of a graph


class _Readers(NamedTuple):
    """What reads a variable: values that can be fed, and operations that read it in another way."""

    name: str
    values: list[tf.Tensor]
    others: list[tf.Operation]


class _Known:
    """What was found out about a graph, until it changes."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.readers: dict[str, _Readers] = {}  # of a variable's name
        self.needed: dict[tuple, set[str]] = {}  # names of the fetches, and of what is fed -> operations that run


def feed_variables(original: Callable, session: tf.Session, handle: Any, fetches: Any, feed_dict: Any,
                   *args: Any) -> Any:
    """Runs a step; what is fed for a variable is fed for each of its reads. Partial runs stay as they are.

    Raises:
      ConfigError: the step also reads the variable by an operation whose value cannot be fed.
    """
    if handle is None and isinstance(feed_dict, Mapping):
        handles = {key: variable_handle(session.graph, key) for key in feed_dict}
        readers = {key: _readers(found) for key, found in handles.items() if found is not None}
        if readers:
            feed_dict = {tensor: value for key, value in feed_dict.items()
                         for tensor in (readers[key].values if key in readers else [key])}
            _refuse_others(session.graph, fetches, feed_dict, readers.values())
    return original(session, handle, fetches, feed_dict, *args)


def variable_handle(graph: tf.Graph, key: Any) -> tf.Tensor | None:
    """Returns the handle of the variable that a key of a feed_dict stands for; None if it is no variable."""
    if isinstance(key, resource_variable_ops.BaseResourceVariable):
        is_value = isinstance(key, resource_variable_ops._UnreadVariable)  # noqa: SLF001 (what tf.assign returns)
        return None if is_value else key.handle
    tensor = _named(graph, key) if isinstance(key, str) else key
    if not isinstance(tensor, tf.Tensor):
        return None
    if tensor.op.type == "ReadVariableOp" and tensor.op.name == f"{tensor.op.inputs[0].op.name}/Read/ReadVariableOp":
        return tensor.op.inputs[0]
    return tensor if tensor.op.type == "VarHandleOp" else None


def gradients(original: Callable, ys: Any, xs: Any, *args: Any, **kwargs: Any) -> list:
    """Returns the gradients with respect to `xs`, in which the tensor that has a variable's name is the variable."""
    def variable_of(x: Any) -> Any:
        handle = variable_handle(x.graph, x) if isinstance(x, tf.Tensor) and not tf.executing_eagerly() else None
        return x if handle is None else handle

    return original(ys, [variable_of(x) for x in xs] if isinstance(xs, (list, tuple)) else variable_of(xs),
                    *args, **kwargs)


def _named(graph: tf.Graph, name: str) -> tf.Tensor | None:
    try:
        return graph.get_tensor_by_name(name)
    except (KeyError, ValueError):  # TensorFlow says so when it feeds the name
        return None


def _of_graph(graph: tf.Graph) -> _Known:
    known = getattr(graph, _ATTRIBUTE, None)
    if known is None or known.version != graph.version:
        known = _Known(graph.version)
        setattr(graph, _ATTRIBUTE, known)
    return known


def _readers(handle: tf.Tensor) -> _Readers:
    known = _of_graph(handle.graph).readers
    if handle.name not in known:
        direct = [op.outputs[0] for op in handle.consumers() if op.type == "ReadVariableOp"]
        known[handle.name] = _Readers(handle.op.name, direct, [
            op for op in _reading(handle) if op.type != "ReadVariableOp" or op.inputs[0].name != handle.name])
    return known[handle.name]


def _reading(handle: tf.Tensor) -> Iterable[tf.Operation]:
    """Yields the operations that read a variable, in the branches of a `tf.cond` and in loops, too."""
    tensors, seen = [handle], set()
    while tensors:
        for op in tensors.pop().consumers():
            if op.type in _PASSES_ON and op.name not in seen:
                seen.add(op.name)
                tensors.extend(op.outputs)
            elif op.type not in _PASSES_ON and not _READS_NOTHING.match(op.type):
                yield op


def _refuse_others(graph: tf.Graph, fetches: Any, feed_dict: Mapping, readers: Iterable[_Readers]) -> None:
    others = {op.name: (op, found.name) for found in readers for op in found.others}
    for name in others.keys() & _needed(graph, fetches, feed_dict) if others else ():
        op, variable = others[name]
        raise ConfigError("fed_variable", f"the variable {variable} is fed, but {op.type} {name} reads it too, which "
                          "cannot be fed: run the script with `ps_train run --reference_variables`")


def _needed(graph: tf.Graph, fetches: Any, feed_dict: Mapping) -> set[str]:
    """Returns the names of the operations that a step runs."""
    handler = sessions._FetchHandler(graph, fetches, {})  # noqa: SLF001 (it has no public name)
    fed = {getattr(part, "name", part) for part in tf.nest.flatten(list(feed_dict), expand_composites=True)}
    ops = [*handler.targets(), *(tensor.op for tensor in handler.fetches() if tensor.name not in fed)]
    key = tuple(op.name for op in ops), frozenset(fed)
    known = _of_graph(graph).needed
    if key not in known:
        known[key] = set()
        while ops:
            op = ops.pop()
            if op.name not in known[key]:
                known[key].add(op.name)
                ops += [*op.control_inputs, *(tensor.op for tensor in op.inputs if tensor.name not in fed)]
    return known[key]
