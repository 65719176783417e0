"""The local variables behind a model's metrics, which are sums over the examples, so that shares can be added.

    metric --> the local variables that its value reads --> each is changed only by adding to it, else refused
    share  --> what was added to each of them --> the sum over all shares --> put into the variables --> value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError
from ps_train.graph import transfer

_ADDING = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterAdd", "ResourceScatterSub",
           "ResourceScatterNdAdd", "ResourceScatterNdSub", "AssignAdd", "AssignSub", "ScatterAdd", "ScatterSub",
           "ScatterNdAdd", "ScatterNdSub")
_READING = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp", "Identity",
            "IsVariableInitialized")
_NEXT_BATCH = ("IteratorGetNext", "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2")

Sums = Mapping[str, np.ndarray]


class MetricSums:
    """The sums of one graph's metrics."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Adds the operations that set the sums to the current graph.

        Args:
          values: name -> value of each metric, a tensor or a nested structure of tensors.

        Raises:
          ConfigError: a metric is certainly not a function of sums; the error has a line for each.
        """
        found: dict[str, tf.Variable] = {}
        problems = []
        for name, value in values.items():
            variables, problem = _sums_of(value)
            found.update((variable.op.name, variable) for variable in variables)
            problems += [f"--evaluate_with=workers: the metric {name!r} {problem}, so the results of several workers "
                         "cannot be added; leave the flag out, or the metric"] if problem else []
        if problems:
            raise ConfigError("\n".join(problems))
        self._reads = {name: found[name].read_value() for name in sorted(found)}
        self._values = {name: tf.placeholder(found[name].dtype.base_dtype, found[name].shape)
                        for name in sorted(found)}
        self._set_op = tf.group(*[tf.assign(found[name], self._values[name]) for name in sorted(found)])

    def read(self, session: tf.Session) -> dict[str, np.ndarray]:
        """Returns name of the variable -> value."""
        return session.run(self._reads)

    def set(self, session: tf.Session, sums: Sums) -> None:
        """Sets the variables, each rounded to its own type."""
        session.run(self._set_op, {self._values[name]: sums[name] for name in self._values})


def _sums_of(value: Any) -> tuple[list[tf.Variable], str]:
    """Returns the local variables that the value of a metric depends on, and why it is no function of sums, or ""."""
    needed = set(transfer.upstream([tf.convert_to_tensor(one) for one in tf.nest.flatten(value)]))
    if any(op.type in _NEXT_BATCH for op in needed):
        return [], "has a value that reads a mini-batch"
    variables = [variable for variable in tf.local_variables() if _handle(variable).op in needed]
    if not variables:
        return [], "has no local variables"
    for variable in variables:
        dtype = variable.dtype.base_dtype
        if not (dtype.is_integer or dtype.is_floating):
            return [], f"keeps {dtype.name} in {variable.op.name}, which is no sum"
        for op in _handle(variable).consumers():
            if op.type not in (*_ADDING, *_READING) and op is not variable.initializer:
                return [], f"changes {variable.op.name} by {op.type}, which does not only add"
    return variables, ""


def _handle(variable: tf.Variable) -> tf.Tensor:
    return variable.handle if transfer.has_handle(variable) else variable.op.outputs[0]


def merge(shares: Sequence[Sums], begin: Sums) -> dict[str, np.ndarray]:
    """Returns `begin` and what was added in each share, added in the order of the shares; floats in float64.

    Args:
      shares: what each share has added to each variable.
      begin: the variables before the first example.
    """
    return {name: sum((_wide(share[name]) for share in shares), _wide(value)) for name, value in begin.items()}


def added(before: Sums, after: Sums) -> dict[str, np.ndarray]:
    """Returns what was added to each variable."""
    return {name: _wide(after[name]) - _wide(before[name]) for name in after}


def _wide(value: np.ndarray) -> np.ndarray:
    return np.asarray(value, np.int64 if np.issubdtype(np.asarray(value).dtype, np.integer) else np.float64)
