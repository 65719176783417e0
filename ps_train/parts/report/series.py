"""Reads values over steps from the event files of a folder, as TensorBoard does."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

_MOST_POINTS = 1000  # of a line in a chart
_log = logging.getLogger(__name__)


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
    found: dict[str, list[Point]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*")), key=_begin):
        for event in _events(path):
            if event.HasField("session_log") and event.session_log.status == tf.SessionLog.START:
                run = run_at(event.wall_time)
                found = {tag: [point for point in points if point.step < event.step or run_at(point.time) != run]
                         for tag, points in found.items()}
            for value in event.summary.value:
                if (number := _number(value)) is not None:
                    found.setdefault(value.tag, []).append(Point(event.wall_time, event.step, number))
    return {tag: thinned(points) for tag, points in found.items() if points}


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
