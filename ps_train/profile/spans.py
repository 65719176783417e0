"""What TensorFlow's StepStats say of one session run, as spans of time on tasks (pure: no TensorFlow).

    session.run(..., FULL_TRACE) --> StepStats --read--> [Span, ...]

The operations of each task are timed by its own clock. A transfer is timed by the receiver's, but its start may be the
sender's word, kept between the request and the end (core/distributed_runtime/rpc/grpc_remote_worker.cc): where clocks
differ, only the end of a transfer is reliable.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

TRANSFER = "RecvTensor"
_TASK = re.compile(r"/job:(\w+)/.*?task:(\d+)")
_TRANSFER = re.compile(r" (?:edge_\d+_)?(\S+) from (/job:\S+) to /job:")
_OPERATION = re.compile(r" = (\w+)\(")
_TRANSFER_ENDS = ("_Recv", "_HostRecv", "_Send", "_HostSend")  # an executor's own nodes; transfers say it better


class Span(NamedTuple):
    """What one task did from one moment to another.

    Attributes:
      task: the task's name, such as `ps:0`; of a transfer the receiver.
      operation: type of the operation, such as `MatMul`, or TRANSFER.
      node: name of the node; of a transfer the node whose output was sent.
      sender: of a transfer the task that it came from, else "".
      num_bytes: size of a transfer, 0 of what only says that something is done.
      start_us: microseconds since 1970, by the task's clock.
      end_us: the same.
    """

    task: str
    operation: str
    node: str
    sender: str
    num_bytes: int
    start_us: float
    end_us: float


def read_spans(step_stats: Any) -> list[Span]:
    """Returns the spans in a StepStats proto, by start."""
    found = []
    for device in step_stats.dev_stats:
        task = task_name(device.device)
        # A GPU's kernels are listed once for each stream and once for all.
        if not task or ("/stream:" in device.device and not device.device.endswith("/stream:all")):
            continue
        found += [span for stats in device.node_stats if (span := _span(task, stats)) is not None]
    return sorted(found, key=lambda span: (span.start_us, -span.end_us))


def task_name(device: str) -> str:
    """Returns `worker:1` of `/job:worker/replica:0/task:1/device:CPU:0`, "" where there is no task in it."""
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
