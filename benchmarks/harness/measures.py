"""From what was recorded to figures: pure functions.

Rates are taken over the second half of a run's time, when every worker has joined and everything is warm.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FEWEST_SAMPLES = 3  # that tell a rate


class Point(NamedTuple):
    """A point of the curve of accuracy.

    Attributes:
      secs: since the first sample.
      batches: mini-batches of all workers.
      accuracy: share of the test set, or None where it was not evaluated.
    """

    secs: float
    batches: int
    accuracy: float | None


class Spread(NamedTuple):
    """A figure over several runs."""

    median: float
    low: float
    high: float
    runs: int


def rate(times: Sequence[float], counts: Sequence[float]) -> float:
    """Returns counts per second over the second half of the time.

    Raises:
      ValueError: there are too few samples to say.
    """
    if len(times) < FEWEST_SAMPLES or times[-1] <= times[0]:
        raise ValueError(f"{len(times)} samples say nothing about a rate; let the run last longer")
    middle = (times[0] + times[-1]) / 2
    start = min(next(index for index, secs in enumerate(times) if secs >= middle), len(times) - 2)
    return (counts[-1] - counts[start]) / (times[-1] - times[start])


def second_half(
    series: Sequence[tuple[float, float | None]], start_secs: float, end_secs: float
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Returns the first and the last (time, value) in the second half of a time; None where there are not two.

    Args:
      series: (time, value); a value that is None was not known.
      start_secs: when the time begins.
      end_secs: when it ends.
    """
    middle = (start_secs + end_secs) / 2
    inside = [(secs, value) for secs, value in series if value is not None and middle <= secs <= end_secs]
    return (inside[0], inside[-1]) if len(inside) >= 2 else None


def per_second(
    series: Sequence[tuple[float, float | None]], start_secs: float, end_secs: float
) -> float | None:
    """Returns the growth of a series per second over the second half of a time; None where it is not known."""
    ends = second_half(series, start_secs, end_secs)
    return (ends[1][1] - ends[0][1]) / (ends[1][0] - ends[0][0]) if ends else None


def per_batch(
    series: Sequence[tuple[float, float | None]], times: Sequence[float], batches: Sequence[float]
) -> float | None:
    """Returns the growth of a series per mini-batch over the second half of a recording; None where it is not known.

    Args:
      series: (time, value), at times of its own.
      times: when the batches were counted.
      batches: trained on so far.
    """
    ends = second_half(series, times[0], times[-1])
    if ends is None:
        return None
    (start_secs, start_value), (end_secs, end_value) = ends
    start_batches, end_batches = np.interp([start_secs, end_secs], times, batches)
    return float((end_value - start_value) / (end_batches - start_batches)) if end_batches > start_batches else None


def secs_to(curve: Sequence[Point], accuracy: float) -> float | None:
    """Returns when the curve first reaches an accuracy, or None where it does not."""
    return next((point.secs for point in curve if point.accuracy is not None and point.accuracy >= accuracy), None)


def spread(values: Sequence[float | None]) -> Spread | None:
    """Returns median, least and greatest; None where a run has no value, as then there is no honest median."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(statistics.median(known), min(known), max(known), len(known))
