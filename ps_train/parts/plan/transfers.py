"""What crosses the network in a step: the tensors of a graph that one task makes and another one uses.

TensorFlow sends a tensor once to each task that uses it, whatever number of operations read it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.graph import devices, transfer

# Not sent: they say where something is, and their readers run there.
_BOUND = (tf.resource, tf.variant)


class Sent(NamedTuple):
    """A tensor that travels in each step.

    Attributes:
      tensor: its name.
      sender: such as `ps:0`.
      receiver: such as `worker:0`.
      num_bytes: its size; None if only a mini-batch says it.
    """

    tensor: str
    sender: str
    receiver: str
    num_bytes: int | None


def sent_in_step(fetches: Sequence[tf.Tensor], client: str) -> list[Sent]:
    """Returns what travels when these tensors are fetched, as far as the graph says; constants do not travel.

    Messages that only say that an operation has run are left out.

    Args:
      client: the task that fetches them, such as `worker:0`.
    """
    step = transfer.upstream(fetches)
    found = {(tensor.name, client): Sent(tensor.name, _task(tensor.op), client, tensor_bytes(tensor))
             for tensor in fetches if _task(tensor.op) not in ("", client)}
    for op in step:
        receiver = _task(op)
        for tensor in op.inputs:
            sender = _task(tensor.op)
            is_sent = sender and receiver and sender != receiver and tensor.dtype.base_dtype not in _BOUND
            # A constant is copied to its readers when the graph is prepared (grappler, constant folding).
            if is_sent and tensor.op.type != "Const":
                found[tensor.name, receiver] = Sent(tensor.name, sender, receiver, tensor_bytes(tensor))
    return list(found.values())


def tensor_bytes(tensor: tf.Tensor) -> int | None:
    """Returns the size of a tensor, or None if the graph does not say it."""
    count = tensor.shape.num_elements()
    return None if count is None or not tensor.dtype.base_dtype.size else count * tensor.dtype.base_dtype.size


def _task(op: tf.Operation) -> str:
    """Returns the task that runs an operation: that of the variable or iterator that it uses, if it uses one."""
    for place in (*(held.op.device for held in _resources(op)), op.device):
        job, index = devices.task_of(place)
        if job is not None:
            return f"{job}:{index or 0}"
    return ""


def _resources(op: tf.Operation) -> Iterator[tf.Tensor]:
    yield from (tensor for tensor in op.inputs if tensor.dtype.base_dtype == tf.resource)
