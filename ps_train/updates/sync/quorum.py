"""Whose gradients an update of sync waits for: those who live, who are not finished, or who are yet to come.

    snapshot of the blackboard --> Quorum.look --> Need(living, required, missing, is_enough, is_hopeless)
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Callable, NamedTuple

from ps_train.coordination.state import Snapshot
from ps_train.updates.sync.aggregation import share


class Need(NamedTuple):
    """What the next update needs. A worker is its number.

    Attributes:
      living: the workers that it waits for.
      missing: the workers that are dead, or did not come, and may still.
      finished: the workers that take no further step.
      required: the number of gradients.
      short_secs: for how long those that are there have been too few for the floor, 0 where they are enough.
      is_hopeless: whether they will always be, because too many are finished.
    """

    living: frozenset[int]
    missing: frozenset[int]
    finished: frozenset[int]
    required: int
    short_secs: float
    is_hopeless: bool


class Quorum:
    """The workers of one training, as the chief knows them."""

    def __init__(
        self, replicas_to_aggregate: int, floor: int, num_workers: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begins with nobody but those who are heard of.

        Args:
          replicas_to_aggregate: gradients in an update while all are there.
          floor: gradients in an update at least.
        """
        self._replicas = replicas_to_aggregate
        self._floor = floor
        self._all = frozenset(range(num_workers))
        self._clock = clock
        self._living = self._all
        self._expected: frozenset[int] = frozenset()
        self._patience_end_secs = 0.0
        self._enough_secs: float | None = None

    def expect(self, patience_secs: float) -> None:
        """Counts all as living for so long, or until they are heard of; later, all who lived at the last look.

        For new or restored parameters: the workers have to come, or to find back.
        """
        self._expected = self._living
        self._patience_end_secs = self._clock() + patience_secs
        self._enough_secs = None

    def look(self, snapshot: Snapshot, own: int) -> Need:
        """Returns what the next update needs.

        Args:
          own: the number of the chief, which asks, and so lives.
        """
        now_secs = self._clock()
        there = self._all & {own, *snapshot.alive()}
        self._expected = self._expected - there if now_secs < self._patience_end_secs else frozenset()
        finished = frozenset(worker for worker in self._all if snapshot.finished[worker])
        self._living = living = (there | self._expected) - finished
        if self._enough_secs is None or self._gradients(there - finished) >= self._floor:
            self._enough_secs = now_secs
        return Need(living, self._all - living - finished, finished,
                    required=max(self._floor, self._gradients(living)),
                    short_secs=now_secs - self._enough_secs,
                    is_hopeless=self._gradients(self._all - finished) < self._floor)

    def _gradients(self, workers: Iterable[int]) -> int:
        """Returns how many gradients of an update these workers compute."""
        return min(self._replicas, sum(share(self._replicas, len(self._all), worker) for worker in workers))
