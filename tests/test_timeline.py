"""The Chrome trace of several workers."""

from __future__ import annotations

import json

from ps_train import timeline
from ps_train.phases import Run
from ps_train.spans import TRANSFER, Span
from ps_train.timeline import Part

ORIGIN_US = 1.8e15


def part(worker, start_us):
    """Returns a worker's part: one step of 100 us, with overlapping operations on ps 0."""
    start_us += ORIGIN_US
    return Part(worker, [Run(5, start_us, start_us, start_us + 100, [
        Span("ps:0", "ReadVariableOp", "w/Read", "", 0, start_us + 10, start_us + 30),
        Span("ps:0", "ReadVariableOp", "b/Read", "", 0, start_us + 20, start_us + 25),
        Span(worker, TRANSFER, "w/Read", "ps:0", 40, start_us + 30, start_us + 40),
        Span(worker, "MatMul", "xw", "", 0, start_us + 40, start_us + 70)], ["xw"])], 250.0)


def shown(trace):
    """Returns (task, row) -> [(name, ts, dur), ...]."""
    processes = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"]
                 if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace["traceEvents"]
               if event["name"] == "thread_name"}
    found = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            row = (processes[event["pid"]], threads[event["pid"], event["tid"]])
            found.setdefault(row, []).append((event["name"], event["ts"], event["dur"]))
    return found


def test_every_task_is_a_process_on_one_time_line():
    """The ps first; what a ps does for different workers is in different rows; time begins with the first event."""
    trace = json.loads(json.dumps(timeline.trace([part("worker:1", 500), part("worker:0", 0)])))
    assert [(event["pid"], event["args"]["name"]) for event in trace["traceEvents"]
            if event["name"] == "process_name"] == [(0, "ps:0"), (1, "worker:0"), (2, "worker:1")]
    rows = shown(trace)
    assert rows["worker:0", "steps"] == [("step 5", 0, 100)]
    assert rows["worker:1", "steps"] == [("step 5", 500, 100)]
    assert rows["worker:1", "operations"] == [("MatMul", 540, 30)]
    assert rows["worker:1", "received"] == [("w/Read from ps:0", 530, 10)]
    assert [name for name, _, _ in rows["worker:0", "phases"]] == ["call", "pull", "compute", "call"]
    assert sum(length for _, _, length in rows["worker:0", "phases"]) == 100
    assert sorted(rows["ps:0", "operations for worker:1"]) == [("ReadVariableOp", 510, 20), ("ReadVariableOp", 520, 5)]
    assert set(rows) >= {("ps:0", "operations for worker:0"), ("worker:0", "received")}
    assert trace["otherData"] == {"start_us_since_1970": ORIGIN_US,
                                  "clock_error_us": {"worker:0": 250.0, "worker:1": 250.0}}


def test_bars_that_overlap_are_in_lanes_of_their_own():
    """A viewer draws the bars of a thread one inside the other: what runs at once must not be in one thread."""
    bars = {}
    for event in timeline.trace([part("worker:0", 0)])["traceEvents"]:
        if event["ph"] == "X":
            bars.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(bars) == 6  # ps: two lanes of operations; worker: steps, phases, operations, received
    for lane in bars.values():
        assert all(before[1] <= after[0] for before, after in zip(lane, lane[1:]))


def test_tasks_and_rows_stand_in_order():
    """Job by job, by number and not by name; a worker's steps above its phases, operations and transfers."""
    parts = [part(f"worker:{index}", 1000 * index) for index in (10, 9, 2)] + [part("chief:0", 0)]
    events = timeline.trace(parts)["traceEvents"]
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == [
        "ps:0", "chief:0", "worker:2", "worker:9", "worker:10"]
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 1] == [
        "steps", "phases", "operations", "received"]
    ranks = [(event["pid"], event["args"]["sort_index"]) for event in events if event["name"] == "process_sort_index"]
    assert ranks == [(pid, pid) for pid in range(5)]


def test_a_part_is_the_same_when_it_arrives():
    """Packed and unpacked, also one without any step."""
    for sent in (part("worker:3", 0), Part("worker:0", [], 0.0)):
        assert timeline.unpack(timeline.pack(sent)) == sent
