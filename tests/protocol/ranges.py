"""The input by ranges of a worker on the twin, and what must hold of it.

    ps 0 --RangeQueue--> the feeder --queue of the worker's server--> Batches --a batch a step--> the parameters
                                   <--notes on taken batches---------/

All of that is the code of ps_train but `Batches`, which stands for tf.data: it takes a range when the one before is
read, and gives its batches one by one.
"""

from __future__ import annotations

import collections
from typing import Any

from tests.protocol.history import History
from tests.protocol.model import RANGE_BYTES, RangeOps, Setting
from tests.protocol.processes import Process
from tests.protocol.sessions import Request
from tests.protocol.simulation import World
from tests.tensorflow_mode import tf

BATCHES = 2  # of a range


class RangeHistory:
    """Which step has taken which batch, and who has begun which range.

    Attributes:
      batch_of: step -> its range, by its place in the data, and the number of its batch there; a step is known as in
        `history.py`.
    """

    def __init__(self, world: World, setting: Setting, history: History) -> None:
        self._world, self._setting, self._history = world, setting, history
        self.batch_of: dict[int, tuple[int, int]] = {}
        self._begun: dict[tuple[int, int, int], tuple[int, int]] = {}
        world.on_write("ps_train/ranges/owners", self._owners)
        world.on_write("ps_train/ranges/done", self._done)

    def begins(self, worker: int, session: int, number: int) -> None:
        """A worker's input begins to read a range, in the session of this number."""
        values = self._world.processes["ps:0"].store.values
        if "ps_train/ranges/done" not in values:  # ps 0 is lost, and the queue with it
            return
        if values["ps_train/ranges/owners"][number] != worker + 1:  # it was frozen, and its ranges were given away
            return
        key = (int(values["ps_train/ranges/generation"]), number, int(values["ps_train/ranges/done"][number]))
        last = self._begun.get(key)
        if last is not None and (last[0] != worker or last[1] == session):
            self._history.fail(f"a range is trained on again without a reason: {number} by worker:{worker}, after "
                               f"worker:{last[0]}")
        self._begun[key] = worker, session

    def loses(self, worker: int) -> None:
        """A worker learns that gradients of it are lost: it begins their ranges again."""
        self._forget(lambda key, begun: begun[0] == worker)

    def _owners(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        if old is not None and len(old) == len(new):
            taken_away = {number for number in range(len(new)) if old[number] and old[number] != new[number]}
            self._forget(lambda key, begun: key[1] in taken_away)

    def _forget(self, is_free: Any) -> None:
        self._begun = {key: begun for key, begun in self._begun.items() if not is_free(key, begun)}

    def _done(self, ps: Process, request: Request, old: Any, new: Any) -> None:
        if max(new, default=0) > self._setting.num_epochs:
            self._history.fail(f"a range is done more often than there are epochs: {new}")

    def missing(self) -> str:
        """Returns what the last checkpoint lacks or has too often, or ""."""
        num_epochs, saved = self._setting.num_epochs, self._history.saved
        for index, steps in enumerate(saved[max(saved)]):
            counts = collections.Counter(self.batch_of.get(step) for step in steps)
            for batch in [(number, part) for number in range(self._setting.num_ranges) for part in range(BATCHES)]:
                if counts[batch] < num_epochs or (counts[batch] > num_epochs and not self._history.had_fault):
                    return (f"a batch is not trained on as promised: ps:{index} has batch {batch[1]} of range "
                            f"{batch[0]} {counts[batch]} times, and not {num_epochs}")
        return ""


class Batches:
    """The input of one session."""

    def __init__(self, worker: int, session: Any, ops: RangeOps, ranges: RangeHistory, session_number: int) -> None:
        self._worker, self._session, self._ops, self._ranges = worker, session, ops, ranges
        self._session_number = session_number
        self._range, self._place, self._batch = -1, -1, BATCHES

    def take(self, options: Any) -> tuple[int, int]:
        """Returns the range and the number of the next batch, and notes that a step takes it.

        Raises:
          tf.errors.OutOfRangeError: the data end, for now.
        """
        if self._batch == BATCHES:
            number, start = map(int, self._session.run(self._ops.next_range, options=options))
            if number < 0:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence")
            self._ranges.begins(self._worker, self._session_number, number)
            self._range, self._place, self._batch = number, start // RANGE_BYTES, 0
        batch, self._batch = self._batch, self._batch + 1
        mark = [self._range, int(batch == BATCHES - 1)]
        self._session.run(self._ops.note_op, {self._ops.mark: mark}, options=options)
        return self._place, batch
