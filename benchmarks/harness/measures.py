"""From what was recorded to figures: pure functions.

Rates are taken over the second half of a run's time, when every worker has joined and everything is warm.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


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
    if len(times) < 3 or times[-1] <= times[0]:
        raise ValueError(f"{len(times)} samples say nothing about a rate; let the run last longer")
    middle = (times[0] + times[-1]) / 2
    start = min(next(index for index, secs in enumerate(times) if secs >= middle), len(times) - 2)
    return (counts[-1] - counts[start]) / (times[-1] - times[start])


def bytes_per_batch(
    byte_times: Sequence[float], num_bytes: Sequence[float], times: Sequence[float], batches: Sequence[float]
) -> float | None:
    """Returns bytes per mini-batch over the second half, from two series with times of their own; None where unknown.

    Args:
      byte_times: when the bytes were counted; only what lies within `times` is used.
      num_bytes: transferred so far.
      times: when the batches were counted.
      batches: trained on so far.
    """
    middle = (times[0] + times[-1]) / 2
    inside = [(secs, count) for secs, count in zip(byte_times, num_bytes) if middle <= secs <= times[-1]]
    if len(inside) < 2:
        return None
    (start_secs, start_bytes), (end_secs, end_bytes) = inside[0], inside[-1]
    start_batches, end_batches = np.interp([start_secs, end_secs], times, batches)
    return None if end_batches <= start_batches else float((end_bytes - start_bytes) / (end_batches - start_batches))


def secs_to(curve: Sequence[Point], accuracy: float) -> float | None:
    """Returns when the curve first reaches an accuracy, or None where it does not."""
    return next((point.secs for point in curve if point.accuracy is not None and point.accuracy >= accuracy), None)


def spread(values: Sequence[float | None]) -> Spread | None:
    """Returns median, least and greatest; None where a run has no value, as then there is no honest median."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(statistics.median(known), min(known), max(known), len(known))
