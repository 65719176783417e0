"""How a worker comes to a training: it waits until the parameters are ready, and finds out whether it belongs there.

    chief    ps answer --> parameters prepared, and of this training? --> LIVE, else NEW
    others   wait for the chief                                      --> LIVE, or OVER
"""

from __future__ import annotations

import enum
import logging
import threading
from typing import Callable

from ps_train.cluster import reachability
from ps_train.cluster.spec import Cluster
from ps_train.coordination import fingerprint
from ps_train.coordination.blackboard import Blackboard
from ps_train.coordination.state import State
from ps_train.errors import BlackboardError, ChiefFailedError, ConfigError
from ps_train.runtime import waits

_log = logging.getLogger(__name__)


class Parameters(enum.Enum):
    """What a worker finds on the ps."""

    NEW = "no parameters of this training: the chief prepares them"
    LIVE = "parameters that are in use: nobody may overwrite them"
    OVER = "a training that has taken its last step"


class Admission:
    """One worker's way to the training, at the start and after each loss."""

    def __init__(
        self, cluster: Cluster, board: Blackboard, *, start_timeout_secs: float, stop: threading.Event,
        own_fingerprint: str,
    ) -> None:
        """Prepares it.

        Args:
          start_timeout_secs: bound of the wait for the other tasks.
          stop: ends every wait.
          own_fingerprint: what this worker must have in common with the others, "" to compare nothing.
        """
        self._cluster = cluster
        self._board = board
        self._start_timeout_secs = start_timeout_secs
        self._stop = stop
        self._fingerprint = own_fingerprint

    def wait(self) -> Parameters:
        """Returns what is there once this worker need not wait any more.

        Raises:
          ClusterLostError: the others were not there within the time-out, or the chief has given up.
          ConfigError: this worker does not fit the training that is running, or two others do not.
          StoppedError: told to stop while waiting.
        """
        reachability.wait_for_tasks(self._cluster.ps, self._start_timeout_secs, self._stop)
        all_ps = ", ".join(map(str, self._cluster.ps))
        if self._cluster.is_chief:
            found = self._until(lambda: Parameters.LIVE if self._board.is_prepared() else Parameters.NEW,
                                f"an answer of {all_ps}")
        else:
            found = self._until(self._ask_as_worker, f"{self._cluster.chief} (chief) to prepare {all_ps}")
        if found is Parameters.LIVE:
            return self._until(lambda: Parameters.LIVE if self._belongs_here() else Parameters.NEW,
                               f"an answer of {all_ps}")
        return found

    def _ask_as_worker(self) -> Parameters | None:
        """Returns None where this worker has to wait for the chief."""
        if mismatch := self._board.mismatch():
            raise ConfigError(mismatch)
        state = self._board.state()
        if state == State.FAILED:
            raise ChiefFailedError
        if state in (State.STOPPING, State.DONE):
            return Parameters.OVER
        return Parameters.LIVE if self._board.is_prepared() else None

    def _until(self, ask: Callable[[], Parameters | None], what: str) -> Parameters:
        """Returns the first answer of `ask()`; a blackboard that does not answer is asked again."""

        def answer() -> Parameters | None:
            try:
                return ask()
            except BlackboardError as error:
                _log.debug("%s", error)
                return None

        return waits.until(answer, self._start_timeout_secs, what, self._stop,
                             "is it started, and does its log say why not?")

    def _belongs_here(self) -> bool:
        """Returns whether this worker fits the training that is running; false where a chief may begin another one.

        Raises:
          ConfigError: it does not fit, and other workers are training.
        """
        theirs = self._board.fingerprint()
        differing = fingerprint.differences(theirs, self._fingerprint, "the running training") if (
            theirs and self._fingerprint) else []
        if not differing:
            return True
        others = [worker for worker in self._board.snapshot().alive()
                  if worker != self._cluster.worker_number]
        if self._cluster.is_chief and not others:
            _log.warning("the ps hold another training, without workers: beginning anew")
            return False
        raise ConfigError("\n".join(f"{self._cluster.task} does not fit the training on {self._cluster.ps[0]}: {line}; "
                                    "start it with the same flags and code" for line in differing))
