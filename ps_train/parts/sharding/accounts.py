"""Which ranges a worker has in hand, and which of them it has trained on.

    given --> a step takes the last batch, or one of a later range --> that session run has succeeded --> confirmed
                                                                       its gradients were lost --> to be given again

In sync, a session run may succeed although its gradients are in no update: then its verdict says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ps_train.parts.sharding.local_ranges import VERDICT
from ps_train.parts.sharding.range_queue import Assignment


@dataclasses.dataclass
class _Held:
    assignment: Assignment
    # The worker's count of steps when the last batch was known to be taken; None before that.
    last_taken: int | None = None
    is_pending: bool = False  # whether a batch waits for its verdict
    is_lost: bool = False  # whether the gradients of a batch were lost


class Accounts:
    """The accounts of one worker, in one session. The input reads ranges in the order in which they were given."""

    def __init__(self, *, has_verdicts: bool = False) -> None:
        """Creates accounts without a range.

        Args:
          has_verdicts: whether a batch counts as trained on only after a verdict.
        """
        self._has_verdicts = has_verdicts
        self._held: list[_Held] = []

    @property
    def held(self) -> list[Assignment]:
        """The ranges that were given and are not confirmed, in their order."""
        return [one.assignment for one in self._held]

    def give(self, assignment: Assignment) -> None:
        """Adds a range."""
        self._held.append(_Held(assignment))

    def note(self, notes: Iterable[tuple[int, int]], num_steps: int) -> None:
        """Adds notes on batches that steps have taken.

        Args:
          notes: the number of each batch's range, and whether it is the last batch of the range; or VERDICT, and
            whether the batches before it are lost.
          num_steps: the steps that this worker has taken, read after the notes.
        """
        for number, is_last in notes:
            if number == VERDICT:
                self._judge(is_lost=is_last)
                continue
            numbers = [one.assignment.number for one in self._held]
            if number not in numbers:  # of a queue that has begun anew since
                continue
            # All before it was read: ranges without a batch, too, such as those with malformed lines only.
            ended = numbers.index(number) + int(is_last)
            self._held[numbers.index(number)].is_pending = self._has_verdicts
            for one in self._held[:ended]:
                one.last_taken = num_steps if one.last_taken is None else one.last_taken

    def _judge(self, *, is_lost: bool) -> None:
        for one in self._held:
            one.is_lost |= one.is_pending and is_lost
            one.is_pending = False

    def end(self) -> None:
        """Notes that the input has read all that was given, and that every batch was trained on but for those lost."""
        for one in self._held:
            one.last_taken, one.is_pending = -1, False

    def done(self, num_steps: int | None) -> list[Assignment]:
        """Returns the ranges that this worker has trained on.

        Args:
          num_steps: the steps that it has taken; None if no session run is under way.
        """
        # A batch may be of the run that was under way when the notes were read. Once there are more steps, a run has
        # succeeded since, and all that began before it.
        return [one.assignment for one in self._held if not (one.is_pending or one.is_lost)
                and one.last_taken is not None and (num_steps is None or num_steps > one.last_taken)]

    def take_lost(self) -> list[Assignment]:
        """Returns and forgets the ranges that were read to their end, and of which gradients were lost."""
        lost = [one for one in self._held if one.is_lost and not one.is_pending and one.last_taken is not None]
        self._held = [one for one in self._held if one not in lost]
        return [one.assignment for one in lost]

    def confirm(self, assignments: Iterable[Assignment]) -> None:
        """Takes ranges out that ps 0 knows to be done."""
        confirmed = set(assignments)
        self._held = [one for one in self._held if one.assignment not in confirmed]
