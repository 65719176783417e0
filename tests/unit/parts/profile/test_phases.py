"""TensorFlow's StepStats as spans, and the phases of a step."""

from __future__ import annotations

import pytest
from tensorflow.core.framework import step_stats_pb2

from ps_train.parts.profile import phases
from ps_train.parts.profile.phases import PHASES, TRANSFER, Run, Segment, Span


def operation(task, start_us, end_us, kind="MatMul", node="n"):
    """Returns an operation."""
    return Span(task, kind, node, "", 0, start_us, end_us)


def transfer(sender, receiver, start_us, end_us, node="n", num_bytes=4):
    """Returns a transfer."""
    return Span(receiver, TRANSFER, node, sender, num_bytes, start_us, end_us)


GRADIENTS = ["gradient"]
ASYNC = [
    operation("worker:0", 100, 110, "NoOp", "_SOURCE"),
    operation("worker:0", 120, 300, "IteratorGetNext", "next"),  # hidden: the parameters come later
    operation("ps:0", 200, 210, "ReadVariableOp", "read"),
    transfer("ps:0", "worker:0", 210, 400, "read"),
    operation("worker:0", 420, 600, "MatMul", "forward"),
    operation("worker:0", 620, 700, "MatMul", "gradient"),
    transfer("worker:0", "ps:0", 700, 800, "gradient"),
    operation("ps:0", 810, 850, "ApplyAdam", "apply"),
    transfer("ps:0", "worker:0", 860, 900, "stack"),
]
# The worker waits for a token between its gradient's arrival and the answer, and then notes the step on itself.
SYNC = [
    *ASYNC[:-1],
    operation("ps:0", 850, 1850, "QueueDequeueV2", "token"),
    transfer("ps:0", "worker:0", 1850, 1900, "token"),
    operation("worker:0", 1910, 1920, "AssignVariableOp", "local_step"),
    transfer("worker:0", "ps:0", 1925, 1930, "local_step", num_bytes=0),
    transfer("ps:0", "worker:0", 1940, 1950, "stack"),
]


@pytest.mark.parametrize(("spans", "end_us", "expected"), [
    (ASYNC, 1000, {"pull": 290, "compute": 310, "push": 200, "wait": 0, "call": 200}),
    (SYNC, 2000, {"pull": 290, "compute": 320, "push": 240, "wait": 1000, "call": 150}),
    ([operation("worker:0", 100, 900, "IteratorGetNext"), transfer("ps:0", "worker:0", 150, 200, "read"),
      operation("worker:0", 900, 950)], 1000, {"pull": 100, "compute": 50, "push": 0, "wait": 700, "call": 150}),
    ([operation("ps:0", 100, 900)], 1000, {"pull": 0, "compute": 0, "push": 800, "wait": 0, "call": 200}),
    ([], 1000, {"pull": 0, "compute": 0, "push": 0, "wait": 0, "call": 1000}),
], ids=["async", "sync", "a slow input", "all on a ps", "nothing known"])
def test_the_phases_of_a_step_add_up_to_it(spans, end_us, expected):
    """In microseconds; each segment begins at the end of the previous one."""
    run = Run(7, 0, 0, end_us, spans, GRADIENTS)
    segments = phases.segments(run, "worker:0")
    assert [segment.start_us for segment in segments] == [0, *(segment.end_us for segment in segments[:-1])]
    assert segments[-1].end_us == end_us
    assert {phase: time_ms * 1000 for phase, time_ms in phases.total_ms(segments).items()} == pytest.approx(expected)


def test_computing_hides_a_pull_that_goes_on_meanwhile():
    """Layer by layer: the second layer's parameters arrive while the first one computes, and are late by 50."""
    run = Run(0, 0, 0, 1000, [transfer("ps:0", "worker:0", 10, 100, "first"), operation("worker:0", 100, 300),
                           transfer("ps:0", "worker:0", 20, 350, "second"), operation("worker:0", 350, 500)], [])
    assert phases.segments(run, "worker:0") == [
        Segment("call", 0, 10), Segment("pull", 10, 100), Segment("compute", 100, 300), Segment("pull", 300, 350),
        Segment("compute", 350, 500), Segment("call", 500, 1000)]


def test_a_delay_before_the_call_counts_as_wait():
    """From the end of its last step to the call; the call itself takes as long as before."""
    segments = phases.segments(Run(0, -500, 0, 1000, ASYNC, GRADIENTS), "worker:0")
    assert segments[:2] == [Segment("wait", -500, 0), Segment("call", 0, 100)]
    assert sum(phases.total_ms(segments).values()) == pytest.approx(1.5)


def test_a_transfer_after_an_answer_is_no_gradient():
    """With local steps a worker tells how many it took when its change is applied: the push began long before."""
    spans = [*ASYNC[:-1], transfer("ps:0", "worker:0", 850, 860, "apply", num_bytes=0),
             operation("worker:0", 870, 880, "ReadVariableOp", "num_taken"),
             transfer("worker:0", "ps:0", 880, 890, "num_taken", num_bytes=8)]
    totals = phases.total_ms(phases.segments(Run(0, 0, 0, 1000, spans, GRADIENTS), "worker:0"))
    assert totals == pytest.approx({"pull": 0.29, "compute": 0.32, "push": 0.18, "wait": 0, "call": 0.21})


def moved(run, task, added_us):
    """Returns a run with the times of a task by the clock of that task."""
    return run._replace(spans=[
        span._replace(start_us=span.start_us + added_us, end_us=span.end_us + added_us) if span.task == task else span
        for span in run.spans])


@pytest.mark.parametrize("ahead_us", [1e6, -1e6, 3e9])
def test_clocks_that_differ_are_put_right(ahead_us):
    """The ps works from 200 after the call to 150 before the return: anywhere between is possible, the middle is taken.

    One run of three has a stray record, which moves nothing.
    """
    true = [Run(0, at_us, at_us, at_us + 1000, [
        span._replace(start_us=span.start_us + at_us, end_us=span.end_us + at_us) for span in ASYNC], GRADIENTS)
        for at_us in (0, 5000, 9000)]
    seen = [moved(run, "ps:0", ahead_us) for run in true]
    seen[1].spans.append(operation("ps:0", seen[1].spans[2].start_us - 7e5, seen[1].spans[2].end_us))
    runs, shifts = phases.aligned(seen)
    assert shifts == {"ps:0": phases.Shift(-ahead_us - 25, 175)}
    assert runs[0] == moved(true[0], "ps:0", -25)


def test_clocks_that_may_agree_are_left_alone():
    """A transfer begins by the sender's clock, which says nothing of the receiver's."""
    odd = ASYNC[3]._replace(start_us=-1e6)
    run = Run(0, 0, 0, 1000, [odd if span is ASYNC[3] else span for span in ASYNC], GRADIENTS)
    assert phases.aligned([run]) == ([run], {})


def test_a_clock_that_differs_does_not_change_the_length_of_a_step():
    """A ps whose clock is a second off is cut off at the ends of the run."""
    segments = phases.segments(moved(Run(0, 0, 0, 2000, SYNC, GRADIENTS), "ps:0", 1e6), "worker:0")
    assert sum(phases.total_ms(segments).values()) == pytest.approx(2.0)


def test_the_mini_batches_of_a_run_are_counted():
    """Of this worker only: several in one session run, where it takes several steps by itself."""
    spans = [operation("worker:0", 10 * number, 10 * number + 5, "IteratorGetNext") for number in range(20)]
    spans.append(operation("worker:1", 5, 6, "IteratorGetNext"))
    assert phases.num_batches(Run(0, 0, 0, 500, spans, GRADIENTS), "worker:0") == 20


def test_the_table_shows_the_mean_and_the_slowest_step():
    """In milliseconds, each column under its name."""
    runs = [Run(200, 0, 0, 1000, ASYNC, GRADIENTS), Run(203, 0, 0, 2000, SYNC, GRADIENTS)]
    header, mean, slowest = phases.phase_table(runs, "worker:0")
    assert header.split() == [*PHASES, "step"]
    name, *values = mean.split()
    assert name == "mean"
    assert list(map(float, values)) == pytest.approx([0.29, 0.315, 0.22, 0.5, 0.175, 1.5], abs=0.00501)
    assert slowest.split(maxsplit=7)[:7] == ["slowest", "0.29", "0.32", "0.24", "1.00", "0.15", "2.00"]
    assert slowest.endswith("(at global step 203)")
    assert header.index("step") + len("step") == mean.index("1.50") + len("1.50")


def step_stats(*devices):
    """Returns a StepStats of (device, [(node name, label, start_us, length_us, bytes), ...])."""
    stats_of_devices = step_stats_pb2.StepStats()
    for name, nodes in devices:
        device = stats_of_devices.dev_stats.add(device=name)
        for node, label, start_us, length_us, num_bytes in nodes:
            stats = device.node_stats.add(node_name=node, timeline_label=label, all_start_micros=start_us,
                                          all_end_rel_micros=length_us)
            if num_bytes:
                stats.output.add().tensor_description.allocation_description.requested_bytes = num_bytes
    return stats_of_devices


def test_operations_and_transfers_of_all_tasks_are_read():
    """The labels are those of TensorFlow 2.21; a transfer belongs to its receiver, and names what was sent."""
    spans = phases.read_spans(step_stats(
        ("/job:worker/replica:0/task:1/device:CPU:0", [
            ("RecvTensor", "[0.3MB] [13.0Gb/s] edge_17_hidden/Read from /job:ps/replica:0/task:0/device:CPU:0 to "
             "/job:worker/replica:0/task:1/device:CPU:0", 200, 50, 313600)]),
        ("/job:worker/replica:0/task:1/device:CPU:0", [
            ("grad/MatMul_1", "[mklcpu 0.3MB 0.3MB] grad/MatMul_1 = _MklMatMul(a, b, ^c)", 300, 79, 0),
            ("_SOURCE", "_SOURCE = NoOp()", 100, 1, 0)]),
        ("/job:ps/replica:0/task:0/device:CPU:0", [("hidden", "hidden = VarHandleOp()", 150, 2, 0)])))
    assert spans == [
        Span("worker:1", "NoOp", "_SOURCE", "", 0, 100, 101),
        Span("ps:0", "VarHandleOp", "hidden", "", 0, 150, 152),
        Span("worker:1", TRANSFER, "hidden/Read", "ps:0", 313600, 200, 250),
        Span("worker:1", "_MklMatMul", "grad/MatMul_1", "", 0, 300, 379)]


def test_repeated_entries_and_other_devices_are_left_out():
    """A GPU's streams besides all of them, the executor's own ends of a transfer, a device outside of the cluster."""
    spans = phases.read_spans(step_stats(
        ("/job:worker/replica:0/task:0/device:GPU:0/stream:all", [("a", "a:MatMul", 10, 5, 0)]),
        ("/job:worker/replica:0/task:0/device:GPU:0/stream:17", [("a", "a:MatMul", 10, 5, 0)]),
        ("/job:worker/replica:0/task:0/device:GPU:0", [("b", "b = _HostRecv()", 10, 5, 0)]),
        ("/host:CPU", [("c", "c = MatMul()", 10, 5, 0)])))
    assert [(span.task, span.operation) for span in spans] == [("worker:0", "a")]


@pytest.mark.parametrize(("device", "task"), [
    ("/job:worker/replica:0/task:12/device:CPU:0", "worker:12"),
    ("/job:chief/replica:0/task:0/device:GPU:0/stream:all", "chief:0"),
    ("/device:CPU:0", ""),
])
def test_the_task_of_a_device(device, task):
    """Its job and its index."""
    assert phases.task_name(device) == task
