"""The quorum: how many gradients an update waits for, and from which workers.

    snapshot of the blackboard --> Quorum.check --> QuorumStatus

It waits for the workers that are alive and not finished, and for a time for those that have not arrived yet. See
docs/decisions/sync.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Callable, NamedTuple

from ps_train.coordination.state import Snapshot
from ps_train.updates.sync.aggregation import gradients_of_worker


class QuorumStatus(NamedTuple):
    """What the next update waits for. Workers are given by number.

    Attributes:
      members: the workers that it waits for.
      missing: the workers that are dead or have not arrived, but may still come.
      finished: the workers that take no more steps.
      required: the number of gradients.
      short_secs: for how long the workers that are here have been too few for the floor, 0 if they are enough.
      is_hopeless: whether they will always be too few, because too many have finished.
    """

    members: frozenset[int]
    missing: frozenset[int]
    finished: frozenset[int]
    required: int
    short_secs: float
    is_hopeless: bool


class Quorum:
    """The workers of one training, as the chief knows them."""

    def __init__(
        self, *, replicas_to_aggregate: int, floor: int, num_workers: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates a quorum that expects no worker before its first heartbeat.

        Args:
          replicas_to_aggregate: gradients in an update while all workers are there.
          floor: gradients in an update at least.
          num_workers: the number of workers, chief included.
          clock: returns seconds.
        """
        self._replicas = replicas_to_aggregate
        self._floor = floor
        self._all = frozenset(range(num_workers))
        self._clock = clock
        self._members = self._all
        self._expected: frozenset[int] = frozenset()
        self._expected_until_secs = 0.0
        self._enough_secs: float | None = None

    def expect(self, timeout_secs: float) -> None:
        """Awaits, for this long at most, workers that have not arrived yet.

        At first these are all workers; later, the members at the last check. Call it when the parameters
        are new or restored: the workers have to come, or to come back.
        """
        self._expected = self._members
        self._expected_until_secs = self._clock() + timeout_secs
        self._enough_secs = None

    def check(self, snapshot: Snapshot, chief_number: int) -> QuorumStatus:
        """Returns what the next update waits for.

        Args:
          snapshot: what ps 0 knows of the workers.
          chief_number: the number of the chief, which is alive because it asks.
        """
        now_secs = self._clock()
        here = self._all & {chief_number, *snapshot.alive()}
        self._expected = self._expected - here if now_secs < self._expected_until_secs else frozenset()
        finished = frozenset(worker for worker in self._all if snapshot.finished[worker])
        self._members = members = (here | self._expected) - finished
        if self._enough_secs is None or self._num_gradients(here - finished) >= self._floor:
            self._enough_secs = now_secs
        return QuorumStatus(
            members=members, missing=self._all - members - finished, finished=finished,
            required=max(self._floor, self._num_gradients(members)),
            short_secs=now_secs - self._enough_secs,
            is_hopeless=self._num_gradients(self._all - finished) < self._floor)

    def _num_gradients(self, workers: Iterable[int]) -> int:
        """Returns how many gradients of an update these workers compute."""
        return min(self._replicas, sum(
            gradients_of_worker(worker, replicas_to_aggregate=self._replicas, num_workers=len(self._all))
            for worker in workers))
