"""How old what is served is: the seconds from a training step, and from an event, to a place where it is served.

    state 1 cut       state 2 cut             state 2 served
    |-----------------|-----------------------|
    the steps between wait this long, at least, and the length of the interval longer, at most

So a push is a series of ages, from the oldest step in it to the newest. The events of a push likewise: those between
the watermark of the push before and its own. The clocks of the machines must agree.
"""

from __future__ import annotations

import collections
import time
from typing import Any

import numpy as np

from ps_train.parts.live.pushes import Begin

_PUSHES = 100  # the last ones
_AGES = 20  # of a push


class ServedAges:
    """The ages at one place, for the last 100 pushes.

    Attributes:
      last_secs: when the last push was served, in seconds since 1970; 0 before.
    """

    def __init__(self) -> None:
        """Has seen no push yet."""
        self.last_secs = 0.0
        self._previous: Begin | None = None
        self._trained: collections.deque[float] = collections.deque(maxlen=_PUSHES * _AGES)
        self._events: collections.deque[float] = collections.deque(maxlen=_PUSHES * _AGES)

    def served(self, begin: Begin) -> None:
        """Notes that a push is served now; the first one only begins an interval."""
        now_secs, previous = time.time(), self._previous
        self._previous, self.last_secs = begin, now_secs
        if previous is None or previous.training != begin.training or begin.step <= previous.step:
            return
        self._trained.extend(now_secs - np.linspace(previous.cut_secs, begin.cut_secs, _AGES))
        if previous.watermark_secs is not None and begin.watermark_secs is not None:
            self._events.extend(now_secs - np.linspace(previous.watermark_secs, begin.watermark_secs, _AGES))

    def as_json(self) -> dict[str, Any]:
        """Returns the median and the 99 % of both, in seconds; None for what is not known."""
        return {f"{name}_secs_{share}": _quantile(ages, quantile)
                for name, ages in (("trained_to_served", self._trained), ("event_to_served", self._events))
                for share, quantile in (("p50", 0.5), ("p99", 0.99))}


def _quantile(ages: collections.deque[float], quantile: float) -> float | None:
    return round(float(np.quantile(ages, quantile)), 3) if ages else None
