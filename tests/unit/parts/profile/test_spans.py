"""TensorFlow's StepStats as spans."""

from __future__ import annotations

import pytest
from tensorflow.core.framework import step_stats_pb2

from ps_train.parts.profile import spans
from ps_train.parts.profile.spans import TRANSFER, Span


def step_stats(*devices):
    """Returns a StepStats of (device, [(node name, label, start_us, length_us, bytes), ...])."""
    found = step_stats_pb2.StepStats()
    for name, nodes in devices:
        device = found.dev_stats.add(device=name)
        for node, label, start_us, length_us, num_bytes in nodes:
            stats = device.node_stats.add(node_name=node, timeline_label=label, all_start_micros=start_us,
                                          all_end_rel_micros=length_us)
            if num_bytes:
                stats.output.add().tensor_description.allocation_description.requested_bytes = num_bytes
    return found


def test_operations_and_transfers_of_all_tasks_are_read():
    """The labels are those of TensorFlow 2.21; a transfer belongs to its receiver, and names what was sent."""
    found = spans.read_spans(step_stats(
        ("/job:worker/replica:0/task:1/device:CPU:0", [
            ("RecvTensor", "[0.3MB] [13.0Gb/s] edge_17_hidden/Read from /job:ps/replica:0/task:0/device:CPU:0 to "
             "/job:worker/replica:0/task:1/device:CPU:0", 200, 50, 313600)]),
        ("/job:worker/replica:0/task:1/device:CPU:0", [
            ("grad/MatMul_1", "[mklcpu 0.3MB 0.3MB] grad/MatMul_1 = _MklMatMul(a, b, ^c)", 300, 79, 0),
            ("_SOURCE", "_SOURCE = NoOp()", 100, 1, 0)]),
        ("/job:ps/replica:0/task:0/device:CPU:0", [("hidden", "hidden = VarHandleOp()", 150, 2, 0)])))
    assert found == [
        Span("worker:1", "NoOp", "_SOURCE", "", 0, 100, 101),
        Span("ps:0", "VarHandleOp", "hidden", "", 0, 150, 152),
        Span("worker:1", TRANSFER, "hidden/Read", "ps:0", 313600, 200, 250),
        Span("worker:1", "_MklMatMul", "grad/MatMul_1", "", 0, 300, 379)]


def test_what_is_listed_twice_or_is_no_work_of_a_task_is_left_out():
    """A GPU's streams besides all of them, the executor's own ends of a transfer, a device outside of the cluster."""
    found = spans.read_spans(step_stats(
        ("/job:worker/replica:0/task:0/device:GPU:0/stream:all", [("a", "a:MatMul", 10, 5, 0)]),
        ("/job:worker/replica:0/task:0/device:GPU:0/stream:17", [("a", "a:MatMul", 10, 5, 0)]),
        ("/job:worker/replica:0/task:0/device:GPU:0", [("b", "b = _HostRecv()", 10, 5, 0)]),
        ("/host:CPU", [("c", "c = MatMul()", 10, 5, 0)])))
    assert [(span.task, span.operation) for span in found] == [("worker:0", "a")]


@pytest.mark.parametrize(("device", "task"), [
    ("/job:worker/replica:0/task:12/device:CPU:0", "worker:12"),
    ("/job:chief/replica:0/task:0/device:GPU:0/stream:all", "chief:0"),
    ("/device:CPU:0", ""),
])
def test_the_task_of_a_device(device, task):
    """Its job and its index."""
    assert spans.task_name(device) == task
