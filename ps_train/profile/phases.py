"""Where the time of a step went: pull, compute, push, wait and call, which add up to it (pure: no TensorFlow).

    |-- call --|------- pull -------|-- compute --|------ push ------|-- call --|
    call    first event      last parameter   last gradient     last event     return   of session.run
                             has arrived      is computed

    compute  an operation of the worker runs, whatever else goes on; or TensorFlow is between two of them, all
             parameters being there
    pull     nothing of the worker's runs, and parameters are still to come
    push     all is computed; the ps receive, apply, and answer
    wait     the worker may not begin, being too far ahead (--staleness_bound); or with all parameters there, only the
             next batch is waited for; or with all computed, the other workers are (sync: a ps holds an operation of
             this step until they have come)
    call     before the first and after the last event on any task: TensorFlow starts the run, returns from it, and
             collects the trace itself

What is hidden behind something else counts as that: a pull that goes on while the first layers compute is compute.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ps_train.profile.spans import TRANSFER, Span

PHASES = ("pull", "compute", "push", "wait", "call")
# They hold a step until somebody else has done something: the input, or another worker.
_WAITS = re.compile(r"IteratorGetNext|QueueDequeue|Accumulator\w*TakeGradient|Barrier")
_INPUT = "IteratorGetNext"

Interval = tuple[float, float]


class Run(NamedTuple):
    """One session run of a worker, which is one step, or several steps that the worker takes by itself.

    Attributes:
      global_step: the global step that the worker knew of when it began.
      start_us: microseconds since 1970 of the call of session.run, or of the moment from which it was held up, by the
        workers behind this one.
      call_us: the same, of the call.
      end_us: the same, of its return.
      spans: what was done for it, each task's by its own clock until the runs are `aligned`.
      gradients: names of the worker's nodes whose outputs it sends to the ps to be applied.
    """

    global_step: int
    start_us: float
    call_us: float
    end_us: float
    spans: Sequence[Span]
    gradients: Collection[str]


class Shift(NamedTuple):
    """What was added to the times of a task whose clock differs from this process's, and how far off that may be."""

    added_us: float
    error_us: float


def aligned(runs: Sequence[Run]) -> tuple[list[Run], dict[str, Shift]]:
    """Returns the runs by the clock of this process, and the shifts that this took, by task.

    No task is asked for the time. Whatever a task does for a run happens between the call and the return. If the times
    of a task fit between them, its clock counts as right; if not, they are moved to the middle of where they fit. The
    bounds are medians over the runs, so that a single odd record moves nothing.
    """
    least: dict[str, list[float]] = {}
    most: dict[str, list[float]] = {}
    for run in runs:
        for task in {span.task for span in run.spans}:
            spans = [span for span in run.spans if span.task == task]
            # Of a transfer only the end is by the receiver's clock, see spans.py.
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
    """A stretch of a run, which belongs to one phase."""

    phase: str
    start_us: float
    end_us: float


def segments(run: Run, worker: str) -> list[Segment]:
    """Returns the phases of a run one after the other, without gaps, from its start to its end.

    Args:
      worker: name of the task that ran it, such as `worker:1`.
    """
    def bounded(time_us: float) -> float:
        return min(max(time_us, run.call_us), run.end_us)

    own = [span for span in run.spans if span.task == worker]
    busy = [span for span in own if span.operation != TRANSFER and not _WAITS.search(span.operation)]
    first_us = bounded(min((span.start_us for span in run.spans), default=run.end_us))
    last_us = bounded(max((span.end_us for span in run.spans), default=run.end_us))
    computed_us = bounded(_computed_us(run, busy, default=first_us))
    pulled_us = bounded(max((span.end_us for span in own if span.operation == TRANSFER and span.end_us <= computed_us),
                            default=first_us))
    ends_us = [run.call_us, first_us, pulled_us, computed_us, last_us, run.end_us]
    found = [Segment(phase, start_us, end_us) for phase, start_us, end_us in zip(
        ("call", "pull", "compute", "push", "call"), ends_us, ends_us[1:])]
    found = _overlay(found, ("compute",), "wait", _waiting(own))
    found = _overlay(found, ("push",), "wait", _waiting(span for span in run.spans if span.task != worker))
    found = _overlay(found, ("pull", "push", "wait"), "compute", [(span.start_us, span.end_us) for span in busy])
    return _joined([Segment("wait", run.start_us, run.call_us), *found])


def num_batches(run: Run, worker: str) -> int:
    """Returns how many mini-batches the worker took in a run."""
    return sum(span.task == worker and span.operation == _INPUT for span in run.spans)


def _computed_us(run: Run, busy: Sequence[Span], default: float) -> float:
    """Returns when the last gradient was computed; where no gradient is known, when the last operation was."""
    ends_us = [span.end_us for span in busy if span.node in run.gradients] or [span.end_us for span in busy]
    return max(ends_us, default=default)


def _waiting(spans: Iterable[Span]) -> list[Interval]:
    return [(span.start_us, span.end_us) for span in spans if _WAITS.search(span.operation)]


def _overlay(
    ground: Iterable[Segment], over: Sequence[str], phase: str, intervals: Iterable[Interval]
) -> list[Segment]:
    """Returns the segments, with `phase` in the place of those phases in `over` where an interval covers them."""
    covers = _union(intervals)
    found = []
    for segment in ground:
        at_us = segment.start_us
        for start_us, end_us in covers if segment.phase in over else ():
            start_us, end_us = max(start_us, at_us), min(end_us, segment.end_us)
            if start_us < end_us:
                found += [Segment(segment.phase, at_us, start_us), Segment(phase, start_us, end_us)]
                at_us = end_us
        found.append(Segment(segment.phase, at_us, segment.end_us))
    return found


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start_us, end_us in sorted(intervals):
        if found and start_us <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_us))
        else:
            found.append((start_us, end_us))
    return found


def _joined(ground: Iterable[Segment]) -> list[Segment]:
    """Returns the segments without empty ones, neighbours of the same phase as one."""
    found: list[Segment] = []
    for segment in ground:
        if segment.start_us >= segment.end_us:
            continue
        if found and found[-1].phase == segment.phase:
            found[-1] = found[-1]._replace(end_us=segment.end_us)
        else:
            found.append(segment)
    return found


def total_ms(found: Iterable[Segment]) -> dict[str, float]:
    """Returns phase -> milliseconds."""
    totals = dict.fromkeys(PHASES, 0.0)
    for segment in found:
        totals[segment.phase] += (segment.end_us - segment.start_us) / 1000
    return totals


def phase_table(runs: Sequence[Run], worker: str) -> list[str]:
    """Returns the lines that show the mean of the runs, and the slowest of them, in milliseconds."""
    totals = [total_ms(segments(run, worker)) for run in runs]
    steps_ms = [sum(each.values()) for each in totals]
    slowest = steps_ms.index(max(steps_ms))
    mean = {phase: sum(each[phase] for each in totals) / len(runs) for phase in PHASES}
    return ["           " + "".join(f"{phase:>9}" for phase in (*PHASES, "step")),
            _row("mean", mean),
            _row("slowest", totals[slowest]) + f"   (at global step {runs[slowest].global_step})"]


def _row(name: str, times_ms: dict[str, float]) -> str:
    return f"  {name:<9}" + "".join(f"{value:9.2f}" for value in (*times_ms.values(), sum(times_ms.values())))
