"""A worker's heartbeat: a sign of life on the blackboard, every second from its claim until it leaves.

    claim --> a heartbeat every second --> leave
              refused, because another process has the number --> this process ends
              refused, because ps 0 has restarted             --> it claims the number again

See docs/decisions/blackboard.md.
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
from ps_train.coordination.sessions import if_answered
from ps_train.coordination.state import Beat, State, is_same_place, new_claim
from ps_train.errors import BlackboardError, ConfigError
from ps_train.runtime import clock, threads, waits

HEARTBEAT_SECS = 1.0
_LEAVE_SECS = 1.0
_log = logging.getLogger(__name__)


@dataclasses.dataclass
class WorkerProgress:
    """The progress of one worker. The training loop writes it, and the heartbeat sends it to ps 0.

    Attributes:
      step: the global step that the worker has seen last.
      local_steps: the steps that it has taken, including those of an earlier process of this worker.
      num_updates: the updates of this process with a measured staleness (updates/staleness.py).
      sum_staleness: of these updates.
    """

    step: int = 0
    local_steps: int = 0
    num_updates: int = 0
    sum_staleness: int = 0

    @property
    def staleness(self) -> float:
        """The mean staleness of the updates, 0 before the first."""
        return self.sum_staleness / max(1, self.num_updates)


class Heartbeat:
    """The heartbeat of one worker.

    Attributes:
      is_replaced: whether another process has taken this worker's number.
      last: the answer to the last heartbeat. A mismatch stops training, and a chief that has failed ends it. A step
        that waits for another worker does not notice; it ends when the ps end, and no task need wait for it.
    """

    def __init__(
        self, board: Blackboard, task: Task, number: int, progress: WorkerProgress, stop: threading.Event, *,
        has_bound: bool = False,
    ) -> None:
        """Prepares the heartbeat; nothing is sent yet.

        Args:
          number: the worker's number, see `Cluster.number_of`.
          progress: the values of each heartbeat. `claim` sets the local steps that an earlier process took.
          stop: is set if another process has taken the number, or if there is a mismatch.
          has_bound: whether this process has bound the task's port.
        """
        self.is_replaced = False
        self.last = Beat(True, State.IDLE, "", False)
        self._board = board
        self._task = task
        self._number = number
        self._progress = progress
        self._stop = stop
        self._claim = new_claim(addresses.port_of(task.address) if has_bound else None)
        self._left = clock.event()
        board.own_claim = self._claim

    def claim(self, visitor: Blackboard, start_timeout_secs: float) -> None:
        """Makes this process the worker with this number.

        The claim of a dead process expires after the heartbeat time-out, or at once if this process has bound its port.

        Args:
          visitor: a view of the blackboard through ps 0's own server. A session through a server with this worker's
            name would end those of another process with that name before it is clear whether that process is alive.

        Raises:
          ConfigError: a process that is alive has the number.
          ClusterLostError: ps 0 does not answer within `start_timeout_secs`.
        """
        awaited = f"the blackboard on {self._board.first_ps}"
        snapshot = waits.until(lambda: if_answered(visitor.snapshot), start_timeout_secs, awaited, self._stop)
        last_secs = float(snapshot.heartbeats[self._number])
        if snapshot.is_alive(self._number) and not is_same_place(int(snapshot.claims[self._number]), self._claim):
            _log.info("%s sent a heartbeat %.1f s ago; waiting up to %g s to see whether it is still alive",
                      self._task.name, snapshot.age_secs(self._number), snapshot.heartbeat_timeout_secs)
        waits.until(lambda: self._has_claimed(visitor, last_secs), start_timeout_secs, awaited, self._stop)

    def _has_claimed(self, visitor: Blackboard, last_secs: float) -> bool:
        """Claims the number if it is free; `last_secs` is the heartbeat that its holder had sent before this wait."""
        now = if_answered(visitor.snapshot)
        if now is None:
            return False
        holder = int(now.claims[self._number])
        if not is_same_place(holder, self._claim):  # this process itself, if the answer to its claim was lost
            if holder and float(now.heartbeats[self._number]) > last_secs:
                raise ConfigError("task_already_running", f"{self._task} is running already: another process with this "
                                  "--job_name and --task_index is in the cluster; end it, or give this one another "
                                  "index")
            if now.is_alive(self._number):
                return False
        self._progress.local_steps = int(now.local_steps[self._number]) if now.state != State.IDLE else 0
        try:
            visitor.claim(self._number, self._claim)
        except BlackboardError as error:  # ps 0 was lost in between
            _log.debug("%s", error)
            return False
        return True

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Sends heartbeats while its body runs, then leaves."""
        try:
            # A heartbeat that is under way must not arrive after `leave`, so the end waits for it.
            with threads.repeating(self._beat_and_read, period_secs=HEARTBEAT_SECS, name="heartbeat",
                                   join_secs=_LEAVE_SECS):
                try:
                    yield
                finally:
                    self._left.set()
        finally:
            if not self.is_replaced:
                # Saves the other tasks the heartbeat time-out. If it does not succeed soon, this task ends anyway.
                clock.start_call(self._leave, "leave").join(_LEAVE_SECS)

    def beat(self) -> None:
        """Sends one heartbeat.

        Raises:
          BlackboardError: ps 0 does not answer.
        """
        self.last = self._board.beat(self._number, claim=self._claim, step=self._progress.step,
                                     local_steps=self._progress.local_steps, staleness=self._progress.staleness)
        if not self.last.is_accepted:
            self._answer_refusal()

    def _leave(self) -> None:
        with contextlib.suppress(BlackboardError):  # ps 0 is lost, so no task waits for this worker
            self._board.leave(self._number)

    def _beat_and_read(self) -> None:
        if self._left.is_set():
            return
        with contextlib.suppress(BlackboardError):  # the next one may succeed; if ps 0 is lost, training notices
            self.beat()
            if self.last.is_stop_requested:
                waits.stop_on_request(self._stop)
        if self.last.mismatch:
            self._stop.set()

    def _answer_refusal(self) -> None:
        """Claims the number again if ps 0 has restarted; stops this process if another one has the number."""
        if self._left.is_set():
            return
        holder = int(self._board.snapshot().claims[self._number])
        if holder == self._claim:  # another thread of this process has claimed it again
            return
        if not holder:
            self._board.claim(self._number, self._claim)
            return
        self.is_replaced = True
        self._left.set()
        self._stop.set()
