"""What an update needs of the workers' steps: a learning rate that they feed, for example.

    a worker's step   writes the value to ps 0 --> its gradients enter the gate
    the update        reads the value that was written last

The chief makes an update in a call of its own, to which nobody feeds anything. With TensorFlow's SyncReplicasOptimizer
such a script fails. With Horovod each worker applies the mean itself, with the value that it feeds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

_OF_STEP = re.compile(r"Placeholder.*|IteratorGetNext.*|.*Dequeue.*|.*Unstage.*")


class WithStepInputs:
    """Applies gradients by an optimizer.

    Attributes:
      writes: what each step of a worker does before its gradients count; known when they have been applied.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.writes: list[tf.Operation] = []

    def apply_gradients(self, grads_and_vars: Sequence[tuple], global_step: tf.Variable) -> tf.Operation:
        """Returns the operation that applies them; it reads values of the step from variables on ps 0."""
        graph = tf.get_default_graph()
        earlier = set(graph.get_operations())
        applied = self._optimizer.apply_gradients(grads_and_vars, global_step)
        # The gradients are there when a worker has done its step, and what it wrote before.
        with tf.device(global_step.device), tf.control_dependencies(_tensors(grads_and_vars)):
            self._carry(graph, earlier)
        return applied

    def _carry(self, graph: tf.Graph, earlier: set[tf.Operation]) -> None:
        of_step = _of_step(graph.get_operations()) & earlier
        reads: dict[object, tf.Tensor] = {}
        for op in graph.get_operations():
            for place, tensor in enumerate(() if op in earlier else op.inputs):
                if tensor.op not in of_step:
                    continue
                if tensor.ref() not in reads:
                    reads[tensor.ref()], write = _through_variable(tensor, len(reads))
                    self.writes.append(write)
                op._update_input(place, reads[tensor.ref()])  # noqa: SLF001 (it has no public name)


def _of_step(operations: Sequence[tf.Operation]) -> set[tf.Operation]:
    """Returns those that need what one call of a session feeds, or takes from the data."""
    found: set[tf.Operation] = set()
    for op in operations:  # in the order in which they were made
        if _OF_STEP.fullmatch(op.type) or any(tensor.op in found for tensor in op.inputs) or any(
                other in found for other in op.control_inputs):
            found.add(op)
    return found


def _through_variable(tensor: tf.Tensor, number: int) -> tuple[tf.Tensor, tf.Operation]:
    """Returns a tensor as it was written last, and what writes it."""
    name = f"ps_train/step_input/{number}_{tensor.dtype.name}"
    with tf.control_dependencies(None):  # a worker's step waits for no gradients of the others
        handle = tf.raw_ops.VarHandleOp(dtype=tensor.dtype, shape=None, container="", shared_name=name)
        write = tf.raw_ops.AssignVariableOp(resource=handle, value=tensor)
    read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tensor.dtype)
    read.set_shape(tensor.shape)
    return read, write


def _tensors(grads_and_vars: Sequence[tuple]) -> list[tf.Tensor]:
    return [gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient for gradient, _ in grads_and_vars]
