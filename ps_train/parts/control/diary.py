"""Keeps the chief's journal: compares the blackboard on ps 0 with its state a second ago.

    snapshot, every second --changes--> the workers that joined, fell silent, came back, finished or left
                           --sample---> how far each worker is, at growing intervals
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple

import numpy as np

from ps_train.cluster.spec import Cluster
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import Snapshot
from ps_train.errors import BlackboardError
from ps_train.runtime import threads
from ps_train.storage.journal import Journal

_POLL_SECS = 1.0
_SAMPLE_SECS = 5.0  # between two samples at the start
_SAMPLES_PER_LENGTH = 200  # later this part of the time since the start: a month takes a few thousand lines


class WorkerChange(NamedTuple):
    """A change of a worker's state."""

    number: int
    change: str


def changes(before: Snapshot | None, now: Snapshot) -> list[WorkerChange]:
    """Returns the change of each worker between two snapshots, the first of which may be missing."""
    numbers = np.flatnonzero(now.claims) if before is None else np.flatnonzero(
        (now.claims != 0) | (before.claims != 0) | now.finished)
    changed = [(int(number), _change(before, now, int(number))) for number in numbers]
    return [WorkerChange(number, change) for number, change in changed if change]


def _change(before: Snapshot | None, now: Snapshot, number: int) -> str:
    """Returns "" for no change."""
    old, new = (0 if before is None else int(before.claims[number])), int(now.claims[number])
    if now.finished[number] and (before is None or not before.finished[number]):
        return "finished"
    if not new:
        return "left" if old and not now.finished[number] else ""
    if before is None or not old:
        return "joined"
    if old != new:
        return "joined again"
    if before.is_alive(number) != now.is_alive(number):
        return "back" if now.is_alive(number) else "silent"
    return ""


class Diary:
    """The journal of the workers, as the chief keeps it."""

    def __init__(self, journal: Journal, board: Blackboard, cluster: Cluster, global_step: Callable[[], int]) -> None:
        """Prepares it.

        Args:
          board: its view of ps 0.
          global_step: returns the step that the chief has seen last.
        """
        self._journal, self._board, self._cluster, self._global_step = journal, board, cluster, global_step
        self._seen: Snapshot | None = None
        self._start_secs = time.monotonic()
        self._sample_secs = self._start_secs

    def look(self) -> None:
        """Reads the blackboard on ps 0, and notes the changes."""
        try:
            now = self._board.snapshot()
        except BlackboardError:  # ps 0 is lost, which the training notes; the claims of its successor are new ones
            return
        # A clock that went back is that of a new ps 0, on which all workers will join again.
        is_new_ps = self._seen is not None and now.now_secs < self._seen.now_secs
        for number, change in () if is_new_ps else changes(self._seen, now):
            self._journal.note("worker", name=self._cluster.worker_name(number), what=change, step=self._global_step())
        self._seen = now
        if time.monotonic() >= self._sample_secs:
            self.sample(now)

    def sample(self, now: Snapshot) -> None:
        """Notes how far each worker is."""
        now_secs = time.monotonic()
        self._sample_secs = now_secs + max(_SAMPLE_SECS, (now_secs - self._start_secs) / _SAMPLES_PER_LENGTH)
        self._journal.note("sample", workers=self._workers(now), step=max(self._global_step(), int(now.steps.max())))

    def conclude(self) -> None:
        """Looks a last time."""
        self._sample_secs = 0.0
        self.look()

    def _workers(self, now: Snapshot) -> Mapping[str, Any]:
        numbers = np.flatnonzero((now.claims != 0) | (now.local_steps != 0))
        staleness = np.zeros(len(now.claims)) if now.staleness is None else now.staleness
        return {self._cluster.worker_name(int(number)): {
            "steps": int(now.local_steps[number]), "staleness": round(float(staleness[number]), 3)}
            for number in numbers}


@contextlib.contextmanager
def keeping_diary(
    journal: Journal, board: Blackboard, cluster: Cluster, global_step: Callable[[], int]
) -> Iterator[None]:
    """Keeps the journal while its body runs; for the chief."""
    diary = Diary(journal, board, cluster, global_step)
    with threads.repeating(diary.look, period_secs=_POLL_SECS, name="diary", join_secs=_POLL_SECS):
        yield
    diary.conclude()
