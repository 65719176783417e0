"""A Chrome trace of what several workers recorded: one time line, a process for each task (pure: no TensorFlow).

    ps:0      operations for worker:0 · operations for worker:1 · received for worker:0 · ...
    worker:0  steps · the phases of each · operations · received
    ...

A row is a thread of its process; where its bars overlap it is several.

The format is the "JSON Object Format" of the Trace Event Format, which chrome://tracing, https://ui.perfetto.dev and
TensorBoard's trace viewer read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ps_train import phases
from ps_train.phases import Run
from ps_train.spans import TRANSFER, Span


class Part(NamedTuple):
    """What one worker recorded.

    Attributes:
      worker: the task's name.
      runs: its session runs, all times by the clock of ps 0.
      clock_error_us: how far off that may be.
    """

    worker: str
    runs: Sequence[Run]
    clock_error_us: float


def pack(part: Part) -> bytes:
    """Returns a part as bytes that another process can `unpack`."""
    return zlib.compress(json.dumps(part).encode())


def unpack(packed: bytes) -> Part:
    """Returns what was packed."""
    worker, runs, clock_error_us = json.loads(zlib.decompress(packed))
    return Part(worker, [Run(step, start_us, call_us, end_us, [Span(*span) for span in spans], gradients)
                         for step, start_us, call_us, end_us, spans, gradients in runs], clock_error_us)


class Bar(NamedTuple):
    """One bar: what a row of a task shows from one moment to another, in microseconds since 1970."""

    task: str
    row: str
    name: str
    start_us: float
    end_us: float
    details: dict[str, Any]


def trace(parts: Sequence[Part]) -> dict[str, Any]:
    """Returns the trace, ready for `json.dump`; its time begins with the first bar."""
    bars = sorted((bar for part in parts for run in part.runs for bar in _bars(part.worker, run)),
                  key=lambda bar: bar.start_us)
    start_us = bars[0].start_us if bars else 0.0
    rows: dict[tuple[str, str], list[Bar]] = {}
    for bar in bars:
        rows.setdefault((bar.task, bar.row), []).append(bar)
    events: list[dict[str, Any]] = []
    for pid, task in enumerate(sorted({task for task, _ in rows}, key=_rank_of_task)):
        events += _label("process", pid, 0, task)
        lanes = [lane for row in sorted((row for row in rows if row[0] == task), key=_rank_of_row)
                 for lane in _lanes(rows[row])]
        for tid, lane in enumerate(lanes):
            events += _label("thread", pid, tid, lane[0].row)
            events += [{"ph": "X", "pid": pid, "tid": tid, "name": bar.name, "cat": bar.row.split()[0],
                        "ts": bar.start_us - start_us, "dur": bar.end_us - bar.start_us, "args": bar.details}
                       for bar in lane]
    errors_us = {part.worker: part.clock_error_us for part in parts}
    return {"traceEvents": events, "displayTimeUnit": "ms",
            "otherData": {"start_us_since_1970": start_us, "clock_error_us": errors_us}}


def _bars(worker: str, run: Run) -> Iterator[Bar]:
    yield Bar(worker, "steps", f"step {run.global_step}", run.start_us, run.end_us,
              {"batches": phases.num_batches(run, worker)})
    for phase, start_us, end_us in phases.segments(run, worker):
        yield Bar(worker, "phases", phase, start_us, end_us, {})
    for span in run.spans:
        whose = "" if span.task == worker else f" for {worker}"
        details: dict[str, Any] = {"node": span.node, "step": run.global_step}
        if span.operation == TRANSFER:
            details.update({"from": span.sender, "bytes": span.num_bytes})
            yield Bar(span.task, f"received{whose}", f"{span.node} from {span.sender}", span.start_us, span.end_us,
                      details)
        else:
            yield Bar(span.task, f"operations{whose}", span.operation, span.start_us, span.end_us, details)


def _lanes(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Deals the bars of a row, which come by start, out to as few lanes as it takes that none overlaps in its lane."""
    lanes: list[list[Bar]] = []
    for bar in bars:
        lane = next((lane for lane in lanes if lane[-1].end_us <= bar.start_us), None)
        if lane is None:
            lanes.append([bar])
        else:
            lane.append(bar)
    return lanes


def _label(kind: str, pid: int, tid: int, name: str) -> list[dict[str, Any]]:
    """Returns what names a process or a thread, and keeps it in its place."""
    return [{"ph": "M", "pid": pid, "tid": tid, "name": f"{kind}_name", "args": {"name": name}},
            {"ph": "M", "pid": pid, "tid": tid, "name": f"{kind}_sort_index",
             "args": {"sort_index": pid if kind == "process" else tid}}]


def _rank_of_task(task: str) -> tuple:
    """The ps first, then the chief where it has a job of its own, then the workers."""
    job, _, index = task.partition(":")
    return (("ps", "chief", "master", "worker").index(job), int(index))


def _rank_of_row(row: tuple[str, str]) -> tuple:
    kind, _, whose = row[1].partition(" for ")
    return (whose, ("steps", "phases", "operations", "received").index(kind))
