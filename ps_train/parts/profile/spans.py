"""Reads TensorFlow's StepStats of a session run as spans of time on tasks. No TensorFlow needed.

    session.run(..., FULL_TRACE) --> StepStats --read_spans--> [Span, ...]

Each task times its operations by its clock. A transfer is timed by the clock of the receiver, but its start may
come from the sender (core/distributed_runtime/rpc/grpc_remote_worker.cc): if clocks differ, only its end is reliable.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

TRANSFER = "RecvTensor"
_TASK = re.compile(r"/job:(\w+)/.*?task:(\d+)")
_TRANSFER = re.compile(r" (?:edge_\d+_)?(\S+) from (/job:\S+) to /job:")
_OPERATION = re.compile(r" = (\w+)\(")
_TRANSFER_ENDS = ("_Recv", "_HostRecv", "_Send", "_HostSend")  # nodes of the executor; the transfers say more


class Span(NamedTuple):
    """An operation or a transfer, with the time that it took.

    Attributes:
      task: the task's name, such as `ps:0`; for a transfer, the receiver.
      operation: type of the operation, such as `MatMul`, or TRANSFER.
      node: name of the node; for a transfer, the node that computed the tensor.
      sender: for a transfer, the task that sent it; otherwise "".
      num_bytes: size of a transfer, 0 for a message that only says that an operation has run.
      start_us: microseconds since 1970, by the task's clock.
      end_us: microseconds since 1970, by the task's clock.
    """

    task: str
    operation: str
    node: str
    sender: str
    num_bytes: int
    start_us: float
    end_us: float


def read_spans(step_stats: Any) -> list[Span]:
    """Returns the spans in a StepStats proto, in the order of their starts."""
    spans = []
    for device in step_stats.dev_stats:
        task = task_name(device.device)
        # The kernels of a GPU are listed once for each stream, and again for all streams together.
        if not task or ("/stream:" in device.device and not device.device.endswith("/stream:all")):
            continue
        spans += [span for stats in device.node_stats if (span := _span(task, stats)) is not None]
    return sorted(spans, key=lambda span: (span.start_us, -span.end_us))


def task_name(device: str) -> str:
    """Returns `worker:1` for `/job:worker/replica:0/task:1/device:CPU:0`, or "" for a device without a task."""
    match = _TASK.match(device)
    return f"{match[1]}:{match[2]}" if match else ""


def _span(task: str, stats: Any) -> Span | None:
    start_us = stats.all_start_micros
    end_us = start_us + stats.all_end_rel_micros
    if stats.node_name == TRANSFER:
        match = _TRANSFER.search(stats.timeline_label)
        if match is None:
            return None
        sizes = [output.tensor_description.allocation_description.requested_bytes for output in stats.output]
        return Span(task, TRANSFER, match[1], task_name(match[2]), sum(sizes), start_us, end_us)
    match = _OPERATION.search(stats.timeline_label)
    operation = match[1] if match else stats.node_name
    if operation in _TRANSFER_ENDS:
        return None
    return Span(task, operation, stats.node_name, "", 0, start_us, end_us)
