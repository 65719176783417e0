"""tf.contrib.training's strategies for `tf.train.replica_device_setter(ps_strategy=...)`."""

from __future__ import annotations

import random
from collections.abc import Callable

import tensorflow.compat.v1 as tf


class GreedyLoadBalancingStrategy:
    """Places each variable on the ps with the least load so far; the first of them if there are several."""

    def __init__(self, num_tasks: int, load_fn: Callable[[tf.Operation], float]) -> None:
        """Takes the number of ps, and the load of an operation, in any unit."""
        self._loads = [0.0] * num_tasks
        self._load_fn = load_fn

    def __call__(self, op: tf.Operation) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class RandomStrategy:
    """Places each variable on a random ps; every worker draws the same, from the same seed."""

    def __init__(self, num_tasks: int, seed: int = 0) -> None:
        """Takes the number of ps."""
        self._num_tasks = num_tasks
        self._random = random.Random(seed)

    def __call__(self, op: tf.Operation) -> int:
        return self._random.randrange(self._num_tasks)


def byte_size_load_fn(op: tf.Operation) -> int:
    """Returns the bytes of the variable that an operation makes; of its output if that is another operation.

    Raises:
      ValueError: the shape is not fully defined.
    """
    # The output of a resource variable's operation is a handle: the variable's shape and type are attributes.
    if op.type in ("VarHandleOp", "VariableV2", "Variable"):
        shape, dtype = tf.TensorShape(op.get_attr("shape")), tf.as_dtype(op.get_attr("dtype"))
    else:
        shape, dtype = op.outputs[0].shape, op.outputs[0].dtype
    shape.assert_is_fully_defined()
    return shape.num_elements() * dtype.size
