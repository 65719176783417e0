"""The chief's side of `ps_train status` and `ps_train save`."""

from __future__ import annotations

import collections
import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from ps_train.cluster.spec import Cluster
from ps_train.errors import BlackboardError
from ps_train.parts.control.control_board import ControlBoard
from ps_train.runtime import threads

_POLL_SECS = 1.0
_RATE_LOOKS = 11  # so the rate is that of the last ten seconds
_log = logging.getLogger(__name__)

SaveNow = Callable[[Callable[[str, str], None]], None]


class ClientService:
    """Answers clients while the chief runs."""

    def __init__(
        self, board: ControlBoard, about: Mapping[str, Any], save_now: SaveNow, global_step: Callable[[], int],
        table_shares: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        """Prepares it.

        Args:
          board: its view of ps 0.
          about: describes the training.
          global_step: returns the step that this worker has seen last.
          save_now: asks for a checkpoint; calls its argument with the path and "", or with "" and what went wrong.
          table_shares: returns the rows of each table on each ps; see `upkeep.shares_of`.
        """
        self._board, self._about, self._save_now = board, about, save_now
        self._num_taken = 0
        self._global_step, self._table_shares = global_step, table_shares
        self._seen: collections.deque[tuple[float, int]] = collections.deque(maxlen=_RATE_LOOKS)

    def look(self) -> None:
        """Reads what was asked, and does it."""
        with contextlib.suppress(BlackboardError):  # ps 0 is lost; the training finds that out, too
            asked = self._board.asked()
            if not asked.has_about:  # ps 0 is new, and counts from 0
                self._num_taken = 0
            self._board.write_about(
                {**self._about, "steps_per_sec": self._steps_per_sec(), "tables": self._table_shares()})
            # A client may have asked while nobody trained, or a chief that has died: it still waits.
            if asked.num_saves > max(asked.num_answered, self._num_taken):
                self._num_taken = asked.num_saves
                self._save_now(lambda path, problem, number=asked.num_saves: self._answer(number, path, problem))

    def _steps_per_sec(self) -> float | None:
        """Returns the global steps per second lately, None at the start."""
        self._seen.append((time.monotonic(), self._global_step()))
        (first_secs, first_step), (last_secs, last_step) = self._seen[0], self._seen[-1]
        return max(0, last_step - first_step) / (last_secs - first_secs) if first_step and len(self._seen) > 1 else None

    def _answer(self, number: int, path: str, problem: str) -> None:
        try:
            self._board.answer_save(number, path, problem)
        except BlackboardError as error:
            _log.warning("cannot answer `ps_train save`: %s", error)


@contextlib.contextmanager
def answering_clients(
    cluster: Cluster, target: str, about: Mapping[str, Any], save_now: SaveNow, global_step: Callable[[], int],
    table_shares: Callable[[], list[dict[str, Any]]],
) -> Iterator[None]:
    """Answers clients while its body runs; for the chief."""
    board = ControlBoard(cluster.ps[0], cluster.task, target=target, is_elastic=cluster.is_elastic)
    service = ClientService(board, about, save_now, global_step, table_shares)
    with contextlib.closing(board), threads.repeating(service.look, period_secs=_POLL_SECS, name="control"):
        yield
