"""The chief looks for new data, each time in a thread: a store that does not answer takes a minute or more.

    text of the queue --GrowingFiles.extend, in a thread--> the longer text --at the next call--> queue on ps 0

Meanwhile the input gets its ranges, and a chief that is asked to stop does so: the thread is left to itself. There is
one look at a time, also if a session is lost meanwhile.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ps_train.parts.sharding.growth import Freshness
from ps_train.parts.sharding.local_ranges import LocalRanges
from ps_train.parts.sharding.range_plan import Extension
from ps_train.parts.sharding.range_queue import RangeQueue
from ps_train.runtime import clock, threads

# The chief looks for new data that often; less often while a look takes much CPU time, as the text of what it knows
# grows, or while a store answers late.
_LOOK_SECS, _MOST_LOOK_SECS, _LOOK_PAUSES = 1.0, 30.0, 20.0
# Most looks are over by then, so that what they find is in the queue before the input ends for want of a range.
_WAIT_SECS = 1.0


class _Found(NamedTuple):
    """What a look has found: the ranges, whether it could list all folders, and the CPU time that it took."""

    extension: Extension
    has_seen_all: bool
    cpu_secs: float


class _Look:
    """A look in a thread, and what it began with."""

    def __init__(self, local: LocalRanges, generation: int) -> None:
        self._local, self._text, self.generation = local, local.plan_text, generation
        self.begin_secs = clock.now()
        # A real thread, also on a virtual clock: files take real time.
        self.call = threads.Call(self._find, "look for data")

    def _find(self) -> _Found:
        start_cpu_secs, extension = time.thread_time(), self._local.extended(self._text)
        return _Found(extension, self._local.growing.has_seen_all, time.thread_time() - start_cpu_secs)


class GrowthWatch:
    """Looks for new data of one training, and adds it to the queue.

    Attributes:
      freshness: how long training on new data takes.
      idle_secs: for how long there was no new data in this session, at the last look.
    """

    def __init__(self, local: LocalRanges, queue: RangeQueue) -> None:
        """Looks at nothing yet."""
        self._local, self._queue = local, queue
        self.freshness = Freshness()
        self._look: _Look | None = None  # that is under way, or whose result nobody has taken
        self._looked_secs, self._pause_secs = 0.0, _LOOK_SECS
        self.restart()

    def restart(self) -> None:
        """Begins to count anew for how long there was no new data: a time without a session is no such time."""
        self._grown_secs, self.idle_secs = clock.now(), 0.0

    def look(self, generation: int) -> None:
        """Begins a look once a second, and adds to the queue of this generation what a look has found.

        While a look takes more than 1/20 s of CPU time, it waits 20 times as long between two, and twice as long as a
        look took, but no more than 30 s. Returns within about a second, whether or not the look is over.

        Raises:
          BlackboardError: ps 0 does not answer.
          Exception: what has ended the look.
        """
        if self._look is None:
            if clock.now() - self._looked_secs < self._pause_secs:
                return
            self._look = _Look(self._local, generation)
            self._looked_secs = self._look.begin_secs
            self._look.call.join(_WAIT_SECS)
        look = self._look
        if not look.call.is_alive():
            self._look = None
            self._take(look.call.result(), look.generation)

    def _take(self, found: _Found, generation: int) -> None:
        start_cpu_secs, extension = time.thread_time(), found.extension
        if extension.num_ranges or not found.has_seen_all:  # then there may be new data
            self._grown_secs = clock.now()
        if extension.num_ranges:
            num_known = len(extension.plan) - extension.num_ranges
            if self._queue.add(generation, first=num_known, num_ranges=extension.num_ranges, plan=extension.text):
                self._local.adopt(extension.text)
            else:  # an earlier call, whose answer was lost, or an earlier chief has added some
                self._local.adopt(self._queue.plan())
        # At the end of a look: what it finds may have come long ago, if this process was frozen.
        self.idle_secs = self._looked_secs - self._grown_secs
        done = self._queue.state().done
        if len(done) == len(self._local.plan):
            self.freshness.note(self._local.plan_text, done)
        looked_secs = clock.now() - self._looked_secs
        cpu_secs = found.cpu_secs + time.thread_time() - start_cpu_secs
        self._pause_secs = min(_MOST_LOOK_SECS, max(_LOOK_SECS, 2 * looked_secs, _LOOK_PAUSES * cpu_secs))
