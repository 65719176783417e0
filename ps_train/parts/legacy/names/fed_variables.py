"""Feeding a variable: `session.run(loss, {learning_rate: 0.1})` gives the value to whatever reads it, as in TF1.

Each read of a resource variable is an operation of its own. TensorFlow feeds the one that the variable has made, which
nothing else takes, so the step would go on with the variable's own value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import resource_variable_ops  # no public name for the class of all variables

from ps_train.errors import ConfigError

# Operations on a variable that take no value of it.
_READS_NOTHING = re.compile("Assign|Resource(Sparse)?Apply|ResourceScatter|Var|Destroy|.*SetShape")


def feed_variables(original: Callable, session: tf.Session, handle: Any, fetches: Any, feed_dict: Any,
                   *args: Any) -> Any:
    """Runs a step; what is fed for a variable is fed for each of its reads.

    Raises:
      ConfigError: the variable is also read by an operation whose value cannot be fed.
    """
    if isinstance(feed_dict, Mapping):
        handles = {key: variable_handle(session.graph, key) for key in feed_dict}
        if any(found is not None for found in handles.values()):
            feed_dict = {tensor: value for key, value in feed_dict.items() for tensor in _fed(key, handles[key])}
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


def _named(graph: tf.Graph, name: str) -> tf.Tensor | None:
    try:
        return graph.get_tensor_by_name(name)
    except (KeyError, ValueError):  # TensorFlow says so when it feeds the name
        return None


def _fed(key: Any, handle: tf.Tensor | None) -> list[Any]:
    """Returns what to feed for a key of a feed_dict."""
    if handle is None:
        return [key]
    reads = [op for op in handle.consumers() if not _READS_NOTHING.match(op.type)]
    for op in reads:
        if op.type != "ReadVariableOp":
            raise ConfigError("fed_variable", f"the variable {handle.op.name} is fed, but {op.type} {op.name} reads it "
                              "too, which cannot be fed: run the script with `ps_train run --reference_variables`")
    return [op.outputs[0] for op in reads]
