"""Reads the values over steps of a train_dir from its event files, and the evaluations among them as events.

    events.*  --read_series--> tag -> points --evaluation_events--> evaluations, with the best so far

The event files have the evaluations of the chief and of an evaluator; the journal is the chief's alone.
"""

from __future__ import annotations

import glob
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.parts.control.history import SteadyTime, TrainingEvent
from ps_train.parts.selection.flags import Target
from ps_train.parts.selection.record import SELECTION_RECORD

_MOST_POINTS = 1000  # of a line in a chart
_log = logging.getLogger(__name__)


class Point(NamedTuple):
    """A value at a global step, and the seconds since the epoch at which it was written."""

    time: float
    step: int
    value: float


def read_series(
    folder: str, run_at: Callable[[float], int] = lambda time: 0,
    clock_loss: Callable[[float, int], float] = lambda secs, step: 0.0, max_points: int | None = _MOST_POINTS,
) -> Mapping[str, list[Point]]:
    """Returns tag -> points, in the order of steps within each run; of a histogram, the mean.

    Steps that were repeated after a restored checkpoint count once, as they were taken last. A file without an end,
    because its process was killed, counts as far as it goes.

    Args:
      run_at: returns the number of the run that had begun at a time.
      clock_loss: returns by how many seconds the clock had been set back when it gave a time to a step.
      max_points: about the most points of a tag; None for all.
    """
    series: dict[str, list[Point]] = {}
    paths = glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*"))
    lost_secs = {path: _clock_loss_of_file(path, clock_loss) for path in paths}
    for path in sorted(paths, key=lambda path: (_begin(path) + lost_secs[path], path)):
        steady = SteadyTime(lost_secs[path])
        for event in _events(path):
            time = steady.of(event.wall_time)
            if event.HasField("session_log") and event.session_log.status == tf.SessionLog.START:
                run = run_at(time)
                series = {tag: [point for point in points if point.step < event.step or run_at(point.time) != run]
                         for tag, points in series.items()}
            for value in event.summary.value:
                if (number := _number(value)) is not None:
                    series.setdefault(value.tag, []).append(Point(time, event.step, number))
    return {tag: thinned(points, max_points or len(points)) for tag, points in series.items() if points}


def thinned(points: list, max_points: int = _MOST_POINTS) -> list:
    """Returns about `max_points` of the points at most, with the first and the last one."""
    stride = -(-len(points) // max_points)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def _clock_loss_of_file(path: str, clock_loss: Callable[[float, int], float]) -> float:
    """Returns by how many seconds the clock had been set back before the first event with a step."""
    first = next((event for event in _events(path) if event.HasField("session_log") or event.summary.value), None)
    return 0.0 if first is None else clock_loss(first.wall_time, first.step)


def _begin(path: str) -> float:
    """Returns the begin of a file from its name, as the time of a copied file differs."""
    number = os.path.basename(path).split(".")[3]
    return float(number) if number.isdecimal() else 0.0


def _events(path: str) -> Iterator[tf.Event]:
    try:
        yield from tf.train.summary_iterator(os.fsencode(path))  # a name that is no text is no str to TensorFlow
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


def read_target(train_dir: str) -> Target | None:
    """Returns the metric by which the best checkpoint of a folder was chosen, None if none was."""
    try:
        with open(os.path.join(train_dir, SELECTION_RECORD), encoding="utf-8") as file:
            record = json.load(file)
        selected = record.get("keep_best") or record["early_stopping"]
        return Target(str(selected["metric"]), bool(selected["is_max"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # a missing file, or one of another version
        return None


def evaluation_events(evaluations: Mapping[str, Sequence[Point]], target: Target | None) -> list[TrainingEvent]:
    """Returns the evaluations in the order of time, each with all its metrics; all but the best so far are routine."""
    metrics_at: dict[tuple[float, int], dict[str, float]] = {}
    for tag, points in sorted(evaluations.items()):
        for point in points:
            metrics_at.setdefault((point.time, point.step), {})[tag] = point.value
    best = _best_so_far(evaluations, target)
    events = []
    for (time, step), values in sorted(metrics_at.items()):
        description, is_best = ", ".join(f"{tag} {value:.4g}" for tag, value in values.items()), (time, step) in best
        if target and is_best:
            description += f"; the best {target.metric} so far"
        events.append(TrainingEvent(time, step, "evaluation", description, is_fault=False, is_routine=not is_best))
    return events


def best_figure(evaluations: Mapping[str, Sequence[Point]], target: Target | None) -> Iterator[tuple[str, str]]:
    """Yields the best value of the folder, if one was chosen."""
    if target and (best := _best_so_far(evaluations, target)):
        _, step = list(best)[-1]
        yield f"{list(best.values())[-1]:.4g}", f"best {target.metric}, at step {step:,}"


def _best_so_far(
    evaluations: Mapping[str, Sequence[Point]], target: Target | None
) -> dict[tuple[float, int], float]:
    """Returns (time, step) -> value of each evaluation that was better than all before it."""
    best: dict[tuple[float, int], float] = {}
    if target is None:
        return best
    record = -math.inf if target.is_max else math.inf
    for point in sorted(evaluations.get(target.metric, ())):
        if point.value > record if target.is_max else point.value < record:
            best[point.time, point.step] = record = point.value
    return best
