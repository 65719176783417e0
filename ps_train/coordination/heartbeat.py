"""A worker's sign of life on the blackboard, from when it claims its number until it leaves.

    claim --> a beat every second --> leave
              a claim that somebody else took ends this process; one that a restarted ps forgot is made again
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator

from ps_train.cluster import addresses
from ps_train.cluster.spec import Task
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.claims import is_same_place, new_claim
from ps_train.coordination.state import Snapshot, State
from ps_train.errors import BlackboardError, ConfigError
from ps_train.runtime import threads, waits

HEARTBEAT_SECS = 1.0
_LEAVE_SECS = 1.0
_log = logging.getLogger(__name__)


@dataclasses.dataclass
class WorkerProgress:
    """How far one worker is: whoever trains writes it, and the heartbeat sends it to ps 0.

    Attributes:
      step: the global step that the worker has seen last.
      local_steps: the steps that it has taken, those of an earlier process of this worker among them.
    """

    step: int = 0
    local_steps: int = 0


class Heartbeat:
    """The sign of life of one worker.

    Attributes:
      is_replaced: whether another process has taken this worker's number.
      has_chief_failed: whether training is over because the chief's own code failed. A step that waits for another
        worker cannot see it; it ends with the ps, for which nobody need wait then.
      mismatch: how two tasks were told of different clusters, "" where they were not; then training stops.
    """

    def __init__(
        self, board: Blackboard, task: Task, number: int, progress: WorkerProgress, stop: threading.Event, *,
        has_bound: bool = False,
    ) -> None:
        """Prepares it; nothing is sent yet.

        Args:
          number: the worker's number, see `Cluster.number_of`.
          progress: what each beat reports; `claim` sets the local steps that an earlier process took.
          stop: is set when another process has taken the number, or where the tasks do not fit together.
          has_bound: whether this process has bound the task's port.
        """
        self.is_replaced = False
        self.has_chief_failed = False
        self.mismatch = ""
        self._board = board
        self._task = task
        self._number = number
        self._progress = progress
        self._stop = stop
        self._claim = new_claim(addresses.port_of(task.address) if has_bound else None)
        self._left = threading.Event()

    def claim(self, visitor: Blackboard, start_timeout_secs: float) -> None:
        """Makes this process the worker of its number.

        A process that had it and died is forgotten after the heartbeat time-out, or at once where this process has
        bound the port of the dead one.

        Args:
          visitor: a view of the blackboard through ps 0's own server. A session through a server of this worker's name
            would end those of another process with that name, before it is known whether that is alive.

        Raises:
          ConfigError: a process that is alive has it.
          ClusterLostError: ps 0 does not answer within `start_timeout_secs`.
        """
        what = f"the blackboard on {self._board.first_ps}"
        snapshot = waits.until(lambda: _snapshot(visitor), start_timeout_secs, what, self._stop)
        beat_secs = float(snapshot.beats[self._number])
        if is_same_place(int(snapshot.claims[self._number]), self._claim):
            self._take(visitor)
            return
        if snapshot.is_alive(self._number):
            _log.info("%s was here %.1f s ago; waiting up to %g s to see whether it still is", self._task.name,
                      snapshot.age_secs(self._number), snapshot.heartbeat_timeout_secs)

        def is_free() -> bool:
            now = _snapshot(visitor)
            if now is None:
                return False
            if now.claims[self._number] and float(now.beats[self._number]) > beat_secs:
                raise ConfigError(f"{self._task} is running already: another process with this --job_name and "
                                  "--task_index is in the cluster; end it, or give this one another index")
            return not now.is_alive(self._number)

        waits.until(is_free, start_timeout_secs, what, self._stop)
        self._take(visitor)

    def _take(self, visitor: Blackboard) -> None:
        now = visitor.snapshot()
        self._progress.local_steps = int(now.local_steps[self._number]) if now.state != State.IDLE else 0
        visitor.claim(self._number, self._claim)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Beats while its body runs, then leaves."""
        try:
            # A beat that is under way may not come after the leaving.
            with threads.repeating(self._beat_and_listen, period_secs=HEARTBEAT_SECS, name="heartbeat",
                                   join_secs=_LEAVE_SECS):
                try:
                    yield
                finally:
                    self._left.set()
        finally:
            if not self.is_replaced:
                # A courtesy, so that nobody waits for the time-out of its beats: it may not hold up the end.
                leaving = threading.Thread(target=self._leave, daemon=True, name="leave")
                leaving.start()
                leaving.join(_LEAVE_SECS)

    def beat(self) -> None:
        """Sends one sign of life.

        Raises:
          BlackboardError: ps 0 does not answer.
        """
        if not self._board.beat(self._number, self._claim, self._progress.step, self._progress.local_steps):
            self._answer_refusal()

    def _leave(self) -> None:
        with contextlib.suppress(BlackboardError):  # then there is nobody who would wait for this worker
            self._board.leave(self._number)

    def _beat_and_listen(self) -> None:
        if self._left.is_set():
            return
        with contextlib.suppress(BlackboardError):  # the next beat may get through; the training will notice
            self.beat()
            self.has_chief_failed = self._board.state() == State.FAILED
            self.mismatch = self._board.mismatch()
        if self.mismatch:
            self._stop.set()

    def _answer_refusal(self) -> None:
        """Claims again where ps 0 has restarted and forgotten; gives way where another process has the number."""
        if self._left.is_set():
            return
        if not self._board.snapshot().claims[self._number]:
            self._board.claim(self._number, self._claim)
            return
        self.is_replaced = True
        self._left.set()
        self._stop.set()


def _snapshot(board: Blackboard) -> Snapshot | None:
    try:
        return board.snapshot()
    except BlackboardError as error:
        _log.debug("%s", error)
        return None
