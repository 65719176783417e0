"""Which calls of a store are under way, and since when: not each library behind fsspec gives a call a bound.

    calls.noting("put NAME")   around a call, in the thread that makes it
    calls.silence()            "put NAME: no answer for 312 s", for whoever says how far that thread is
    calls.watched(place)       a thread that warns, once, of each call that takes several minutes

A call that hangs is left alone: nothing can end it, and the store may still answer.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator

from ps_train.runtime import clock, threads

_SILENT_SECS = 60.0  # longer than most calls take; that of a large file may take longer
_WARN_SECS = 300.0
_LOOK_SECS = 10.0
_log = logging.getLogger(__name__)


class Calls:
    """The calls of one store that are under way, in all threads."""

    def __init__(self) -> None:
        """There are none yet."""
        self._numbers = itertools.count()
        self._begun: dict[int, tuple[float, str]] = {}  # number -> when, and what; threads add and remove their own
        self._warned: set[int] = set()

    @contextlib.contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Counts its body as a call that is under way; `what` names it."""
        number = next(self._numbers)
        self._begun[number] = clock.now(), what
        try:
            yield
        finally:
            del self._begun[number]

    def silence(self) -> str:
        """Returns which call has had no answer for the longest time, and for how long; "" if none takes a minute."""
        oldest = min(self._begun.copy().values(), default=None)
        return _silence(*oldest) if oldest and clock.now() - oldest[0] >= _SILENT_SECS else ""

    def watched(self, place: str) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which a thread warns of calls without an answer.

        Args:
          place: of the store, for the warnings.
        """
        return threads.repeating(lambda: self.warn(place), period_secs=_LOOK_SECS, name="store calls")

    def warn(self, place: str) -> None:
        """Warns of each call that has had no answer for some minutes, once."""
        for number, (begun_secs, what) in self._begun.copy().items():
            if clock.now() - begun_secs >= _WARN_SECS and number not in self._warned:
                self._warned.add(number)
                _log.warning("%s: %s", place, _silence(begun_secs, what))


def _silence(begun_secs: float, what: str) -> str:
    return f"{what}: no answer for {clock.now() - begun_secs:.0f} s"
