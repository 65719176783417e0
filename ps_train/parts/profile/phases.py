"""Divides the time of a step into phases: pull, compute, push, wait and call. No TensorFlow needed.

    session.run(..., FULL_TRACE) --> StepStats --read_spans--> [Span, ...] --segments--> phases

    |-- call --|------- pull -------|-- compute --|------ push ------|-- call --|
    call    first event      last parameter   last gradient     last event     return   of session.run
                             has arrived      is computed

    pull     parameters are on their way, and no operation of the worker runs
    compute  an operation of the worker runs; or all parameters have arrived, and TensorFlow is between two operations
    push     all gradients are computed; the ps receive and apply them, and answer
    wait     the worker waits before the step (--staleness_bound), for its next mini-batch, or for the other workers
             (sync: a ps holds an operation of this step until they have come)
    call     before the first and after the last event on any task: TensorFlow starts the run, returns from it, and
             collects the trace

Each moment counts once: a pull that goes on while the first layers compute counts as compute.

Each task times its operations by its clock. A transfer is timed by the clock of the receiver, but its start may
come from the sender (core/distributed_runtime/rpc/grpc_remote_worker.cc): if clocks differ, only its end is reliable.
docs/decisions/profile.md says more.
"""

from __future__ import annotations

import bisect
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

PHASES = ("pull", "compute", "push", "wait", "call")
# These operations hold a step until the input or another worker has done its part.
_WAITS = re.compile(r"IteratorGetNext|QueueDequeue|Accumulator\w*TakeGradient|Barrier")
_INPUT = "IteratorGetNext"
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


class Run(NamedTuple):
    """One session run of a worker, which is one step, or several steps of the worker alone.

    Times are in microseconds since 1970.

    Attributes:
      global_step: the global step that the worker knew at the start.
      start_us: when the worker was ready for the run; earlier than `call_us` if it had to wait for slower workers.
      call_us: when it called session.run.
      end_us: when session.run returned.
      spans: the operations of the tasks for it, each by its task's clock until the runs are `aligned`.
      gradients: names of the worker's nodes whose outputs are the gradients that it sends to the ps.
    """

    global_step: int
    start_us: float
    call_us: float
    end_us: float
    spans: Sequence[Span]
    gradients: Collection[str]


class Shift(NamedTuple):
    """A correction of the times of a task whose clock differs from that of this process, and its possible error."""

    added_us: float
    error_us: float


def aligned(runs: Sequence[Run]) -> tuple[list[Run], dict[str, Shift]]:
    """Returns the runs by the clock of this process, and task -> the shift of its times.

    A task works for a run only between the call and the return. If its times fit between them, its clock counts as
    right. Otherwise they are moved to the middle of the range in which they fit. The bounds of the range are medians
    over the runs, as a single odd record must have no effect.
    """
    least: dict[str, list[float]] = {}
    most: dict[str, list[float]] = {}
    for run in runs:
        for task in {span.task for span in run.spans}:
            spans = [span for span in run.spans if span.task == task]
            # Only the end of a transfer is by the receiver's clock.
            firsts_us = [span.end_us if span.operation == TRANSFER else span.start_us for span in spans]
            least.setdefault(task, []).append(run.call_us - min(firsts_us))
            most.setdefault(task, []).append(run.end_us - max(span.end_us for span in spans))
    shifts = {}
    for task in sorted(least):
        low_us, high_us = statistics.median(least[task]), statistics.median(most[task])
        if not low_us <= 0 <= high_us:
            shifts[task] = Shift((low_us + high_us) / 2, abs(high_us - low_us) / 2)
    return [run._replace(spans=[_moved(span, shifts) for span in run.spans]) for run in runs], shifts


def _moved(span: Span, shifts: Mapping[str, Shift]) -> Span:
    added_us = shifts[span.task].added_us if span.task in shifts else 0.0
    return span._replace(start_us=span.start_us + added_us, end_us=span.end_us + added_us)


class Segment(NamedTuple):
    """A part of a run that belongs to one phase."""

    phase: str
    start_us: float
    end_us: float


def segments(run: Run, worker: str) -> list[Segment]:
    """Returns the segments of a run in order and without gaps, from its start to its end.

    Args:
      worker: name of the task that ran it, such as `worker:1`.
    """
    def bounded(time_us: float) -> float:
        return min(max(time_us, run.call_us), run.end_us)

    worker_spans = [span for span in run.spans if span.task == worker]
    busy = [span for span in worker_spans if span.operation != TRANSFER and not _WAITS.search(span.operation)]
    first_us = bounded(min((span.start_us for span in run.spans), default=run.end_us))
    last_us = bounded(max((span.end_us for span in run.spans), default=run.end_us))
    computed_us = bounded(_computed_us(run, busy, default=first_us))
    pulled_us = bounded(max((span.end_us for span in worker_spans
                             if span.operation == TRANSFER and span.end_us <= computed_us), default=first_us))
    stages = (("call", first_us), ("pull", pulled_us), ("compute", computed_us), ("push", last_us),
              ("call", run.end_us))
    works = _Cover((span.start_us, span.end_us) for span in busy)
    waits = {"compute": _waits(worker_spans), "push": _waits(span for span in run.spans if span.task != worker)}
    edges_us = {run.call_us, *(end_us for _, end_us in stages), *works.edges_us, *waits["compute"].edges_us,
                *waits["push"].edges_us}
    times_us = sorted(filter(lambda time_us: run.call_us <= time_us <= run.end_us, edges_us))
    segments = [Segment("wait", run.start_us, run.call_us)] if run.start_us < run.call_us else []
    for start_us, end_us in zip(times_us, times_us[1:]):
        phase = next(phase for phase, stage_end_us in stages if end_us <= stage_end_us)
        if phase in waits and waits[phase].has(start_us):
            phase = "wait"
        if phase in ("pull", "push", "wait") and works.has(start_us):
            phase = "compute"
        if segments and segments[-1].phase == phase:
            start_us = segments.pop().start_us
        segments.append(Segment(phase, start_us, end_us))
    return segments


class _Cover:
    """The moments that any of some intervals covers."""

    def __init__(self, intervals: Iterable[tuple[float, float]]) -> None:
        self.edges_us: list[float] = []  # begin, end, begin, end, ...
        for start_us, end_us in sorted(intervals):
            if self.edges_us and start_us <= self.edges_us[-1]:
                self.edges_us[-1] = max(self.edges_us[-1], end_us)
            elif start_us < end_us:
                self.edges_us += [start_us, end_us]

    def has(self, time_us: float) -> bool:
        """Returns whether the moment after a time is covered."""
        return bisect.bisect_right(self.edges_us, time_us) % 2 == 1


def _waits(spans: Iterable[Span]) -> _Cover:
    return _Cover((span.start_us, span.end_us) for span in spans if _WAITS.search(span.operation))


def num_batches(run: Run, worker: str) -> int:
    """Returns how many mini-batches the worker took in a run."""
    return sum(span.task == worker and span.operation == _INPUT for span in run.spans)


def _computed_us(run: Run, busy: Sequence[Span], default: float) -> float:
    """Returns when the last gradient was computed or, if no gradient is known, when the last operation ended."""
    ends_us = [span.end_us for span in busy if span.node in run.gradients] or [span.end_us for span in busy]
    return max(ends_us, default=default)


def total_ms(segments: Iterable[Segment]) -> dict[str, float]:
    """Returns phase -> total time in milliseconds."""
    totals = dict.fromkeys(PHASES, 0.0)
    for segment in segments:
        totals[segment.phase] += (segment.end_us - segment.start_us) / 1000
    return totals


def phase_table(runs: Sequence[Run], worker: str) -> list[str]:
    """Returns the lines of a table with the mean of the runs and the slowest run, in milliseconds."""
    totals = [total_ms(segments(run, worker)) for run in runs]
    steps_ms = [sum(each.values()) for each in totals]
    slowest = steps_ms.index(max(steps_ms))
    mean = {phase: sum(each[phase] for each in totals) / len(runs) for phase in PHASES}
    return ["           " + "".join(f"{phase:>9}" for phase in (*PHASES, "step")),
            _row("mean", mean),
            _row("slowest", totals[slowest]) + f"   (at global step {runs[slowest].global_step})"]


def _row(name: str, times_ms: dict[str, float]) -> str:
    return f"  {name:<9}" + "".join(f"{value:9.2f}" for value in (*times_ms.values(), sum(times_ms.values())))
