"""Reads the history of a training from its train_dir: values over steps, and of each run events and workers.

    events.*       --read_series---> tag -> points
    journal.jsonl  --run_histories--> the cluster, its events in words, and the progress of each worker over time

A run begins with a process of the chief. A chief that was killed or has lost the cluster, and is started again with the
same command, continues its run.
"""

from __future__ import annotations

import bisect
import dataclasses
import glob
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.control import ended

_MOST_POINTS = 1000  # of a line in a chart
_log = logging.getLogger(__name__)
_SOURCES = {
    "new parameters": "training begins with new parameters",
    "live parameters": "the chief continues with the parameters on the ps",
}
_WORKERS = {
    "joined": "joined",
    "joined again": "joined again, as a new process",
    "silent": "sends no heartbeat: dead, frozen or cut off",
    "back": "sends heartbeats again",
    "finished": "has finished",
    "left": "left before the end",
}


class Point(NamedTuple):
    """A value at a global step, and the seconds since the epoch at which it was written."""

    time: float
    step: int
    value: float


def read_series(folder: str, run_at: Callable[[float], int] = lambda time: 0) -> Mapping[str, list[Point]]:
    """Returns tag -> points, in the order of steps within each run; a histogram gives its mean.

    Steps after which a run continued from a checkpoint count once, as they were taken last. A file whose end is
    missing, because its process was killed, counts as far as it goes.

    Args:
      run_at: returns the number of the run that had begun at a time.
    """
    series: dict[str, list[Point]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*")), key=_begin):
        for event in _events(path):
            if event.HasField("session_log") and event.session_log.status == tf.SessionLog.START:
                run = run_at(event.wall_time)
                series = {tag: [point for point in points if point.step < event.step or run_at(point.time) != run]
                         for tag, points in series.items()}
            for value in event.summary.value:
                if (number := _number(value)) is not None:
                    series.setdefault(value.tag, []).append(Point(event.wall_time, event.step, number))
    return {tag: thinned(points) for tag, points in series.items() if points}


def thinned(points: list) -> list:
    """Returns at most some _MOST_POINTS of these, the first and the last among them."""
    stride = -(-len(points) // _MOST_POINTS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def _begin(path: str) -> tuple[float, str]:
    """Returns when a file begins: it is in its name, as a file copied elsewhere has another time."""
    number = os.path.basename(path).split(".")[3]
    return (float(number) if number.isdigit() else 0.0, path)


def _events(path: str) -> Iterator[tf.Event]:
    try:
        yield from tf.train.summary_iterator(path)
    except tf.errors.OpError as error:  # DataLossError at a torn end; others if the folder fails
        _log.debug("%s: %s", path, error.message)


def _number(value: tf.Summary.Value) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return value.simple_value
    if kind == "histo" and value.histo.num:
        return value.histo.sum / value.histo.num
    if kind == "tensor" and value.metadata.plugin_data.plugin_name == "scalars":  # as TF2 writes them
        return float(tf.make_ndarray(value.tensor))
    return None


class TrainingEvent(NamedTuple):
    """An event in words.

    Attributes:
      time: seconds since the epoch.
      step: the global step that the chief had seen, None where the event has none.
      task: the task, or "chief".
      description: the event in words.
      is_fault: whether something went wrong.
      is_routine: whether it is one of many, such as a checkpoint.
    """

    time: float
    step: int | None
    task: str
    description: str
    is_fault: bool
    is_routine: bool = False


class Sample(NamedTuple):
    """How far each worker was: name -> steps, and name -> mean staleness of its updates."""

    time: float
    step: int
    steps: Mapping[str, int]
    staleness: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class RunHistory:
    """One run, as the journal records it.

    Attributes:
      begin: its first time, in seconds since the epoch; 0 without a journal.
      run: the chief's description of its last process in this run, see `describe_run`; {} without a journal.
      placed: the variables on each ps, see `describe_placement`; {} without a journal.
      events: in order.
      samples: in order.
      losses: (time, step) of each lost session.
      ending: how the last process of the chief ended, "" if that is unknown.
    """

    begin: float
    run: Mapping[str, Any]
    placed: Mapping[str, Any]
    events: Sequence[TrainingEvent]
    samples: Sequence[Sample]
    losses: Sequence[tuple[float, int]]
    ending: str


def run_histories(events: Sequence[Mapping[str, Any]]) -> list[RunHistory]:
    """Returns the history of each run; a single empty one without a journal."""
    runs: list[list[Mapping[str, Any]]] = [[]]
    for event in events:
        if event["event"] == "start" and _is_over(runs[-1], event):
            runs.append([])
        runs[-1].append(event)
    return [run_history(run) for run in runs]


def run_at(histories: Sequence[RunHistory], time: float) -> int:
    """Returns the index of the last run that had begun at a time; 0 before the first one."""
    return max(0, bisect.bisect_right([history.begin for history in histories], time) - 1)


def _is_over(run: Sequence[Mapping[str, Any]], start: Mapping[str, Any]) -> bool:
    """Returns whether another run begins with a start of the chief."""
    before = [event for event in run if event["event"] in ("start", "end")]
    if not before:
        return False
    commands = [event["run"].get("command") for event in before if event["event"] == "start"]
    return commands[-1:] != [start["run"].get("command")] or (
        before[-1]["event"] == "end" and not ended.is_lost_end(before[-1]))


def run_history(events: Sequence[Mapping[str, Any]]) -> RunHistory:
    """Returns the history of one run, from its events in the journal."""
    starts = [index for index, event in enumerate(events) if event["event"] == "start"]
    last = events[starts[-1]] if starts else {}
    ends = [event for event in events[starts[-1]:] if event["event"] == "end"] if starts else []
    return RunHistory(
        begin=events[0]["time"] if events else 0.0, run=last.get("run", {}), placed=last.get("placed", {}),
        events=[described for event in events if (described := _training_event(event)) is not None],
        samples=[_sample(event) for event in events if event["event"] == "sample"],
        losses=[(event["time"], event["step"]) for event in events if event["event"] == "lost"],
        ending=ends[-1]["why"] if ends else "")


def _training_event(event: Mapping[str, Any]) -> TrainingEvent | None:
    kind, name, is_fault, is_routine = event["event"], "chief", False, False
    if kind == "start":
        description = f"starts: {event['run']['model']} on {event['run']['dataset']}"
    elif kind == "session":
        description, is_fault = _session(event)
    elif kind == "lost":
        lost_tasks = f"{', '.join(event['gone'])} did not answer; " if event["gone"] else ""
        description, is_fault = f"lost its session: {lost_tasks}{event['reason']}", True
    elif kind == "checkpoint":
        description, is_routine = f"has saved {event['path']}", True
    elif kind == "worker":
        name, description = event["name"], _WORKERS.get(event["what"], event["what"])
        is_fault = event["what"] == "silent"
    elif kind == "end":
        description, is_fault = f"ends: {event['why']}", "Error:" in event["why"]
    else:  # a sample, or of a later version of ps_train
        return None
    return TrainingEvent(event["time"], event.get("step"), name, description, is_fault, is_routine)


def _session(event: Mapping[str, Any]) -> tuple[str, bool]:
    description = _SOURCES.get(event["source"], f"restores all ps from {event['source']}")
    is_loss = bool(event["step"]) and event["source"] not in _SOURCES
    return (f"{description}; steps after it are taken again" if is_loss else description), is_loss


def _sample(event: Mapping[str, Any]) -> Sample:
    workers = event["workers"]
    return Sample(event["time"], event["step"], {name: worker["steps"] for name, worker in workers.items()},
                  {name: worker["staleness"] for name, worker in workers.items()})
