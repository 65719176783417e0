"""Whether a worker may train: it waits until the parameters are ready, and checks that it fits the training.

    chief    ps answer --> parameters prepared, and of this training? --> LIVE, else NEW
    others   wait for the chief to prepare them for this training    --> LIVE, or OVER
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
from ps_train.coordination.state import AdmissionView, State
from ps_train.errors import BlackboardError, ChiefFailedError, ConfigError
from ps_train.runtime import waits

_log = logging.getLogger(__name__)


class Parameters(enum.Enum):
    """What a worker finds on the parameter servers."""

    NEW = "no parameters of this training: the chief prepares them"
    LIVE = "parameters that are in use and must not be overwritten"
    OVER = "a training that has taken its last step"


class Admission:
    """Admits one worker to the training, at the start and after each lost session."""

    def __init__(
        self, cluster: Cluster, board: Blackboard, *, start_timeout_secs: float, stop: threading.Event,
        own_fingerprint: str,
    ) -> None:
        """Prepares it.

        Args:
          start_timeout_secs: how long to wait for the other tasks.
          stop: ends every wait.
          own_fingerprint: what this worker must have in common with the others; "" compares nothing.
        """
        self._cluster = cluster
        self._board = board
        self._start_timeout_secs = start_timeout_secs
        self._stop = stop
        self._fingerprint = own_fingerprint

    def wait(self) -> Parameters:
        """Returns what this worker finds, once it need not wait any longer.

        Raises:
          ClusterLostError: the others did not answer within the time-out, or the chief has given up.
          ConfigError: this worker does not fit the running training, or two tasks were given different clusters.
          StoppedError: told to stop while waiting.
        """
        reachability.wait_for_tasks(self._cluster.ps, self._start_timeout_secs, self._stop)
        all_ps = ", ".join(map(str, self._cluster.ps))
        if self._cluster.is_chief:
            return self._until(self._ask_as_chief, f"an answer of {all_ps}")
        awaited = f"{self._cluster.chief} (chief) to prepare {all_ps}"
        return self._until(self._ask_as_worker, lambda: f"{awaited} ({self._board.describe_joined(self._cluster)})")

    def _ask_as_chief(self) -> Parameters | None:
        """Returns None if a worker of the training that was to be replaced has come at this moment."""
        view = self._board.admission_view()
        found = Parameters.LIVE if view.is_prepared else Parameters.NEW
        if view.is_prepared and not self._belongs_here(view):
            _log.warning("the ps hold the parameters of another training, which has no workers: starting a new one")
            self._board.announce(State.IDLE)  # nobody joins the other training from now on
            if self._others_in(self._board.admission_view()):  # one has, between the two calls before
                self._board.announce(view.state)
                return None
            found = Parameters.NEW
        self._board.admit(self._cluster.worker_number)
        return found

    def _ask_as_worker(self) -> Parameters | None:
        """Returns None while this worker has to wait for the chief."""
        found = self._found_in(self._board.admission_view())
        if found is not Parameters.LIVE:
            return found
        self._board.admit(self._cluster.worker_number)
        # A chief that looked before may have begun another training meanwhile. Each of the two writes before it looks
        # again, so at least one of them sees the other.
        found = self._found_in(self._board.admission_view())
        if found is not Parameters.LIVE:
            self._board.withdraw(self._cluster.worker_number)
        return found

    def _found_in(self, view: AdmissionView) -> Parameters | None:
        if view.mismatch:
            raise ConfigError(view.mismatch)
        if view.state == State.FAILED:
            raise ChiefFailedError
        if view.state == State.DONE:
            return Parameters.OVER
        if not ((view.state == State.STOPPING or view.is_prepared) and self._belongs_here(view)):
            return None
        return Parameters.OVER if view.state == State.STOPPING else Parameters.LIVE

    def _until(self, ask: Callable[[], Parameters | None], what: str | Callable[[], str]) -> Parameters:
        """Returns the first answer of `ask()` that is not None; asks again if the blackboard does not answer."""

        def answer() -> Parameters | None:
            try:
                return ask()
            except BlackboardError as error:
                _log.debug("%s", error)
                return None

        return waits.until(answer, self._start_timeout_secs, what, self._stop,
                             "is it started, and what does its log say?")

    def _belongs_here(self, view: AdmissionView) -> bool:
        """Returns whether this worker fits the prepared parameters; false if the chief may replace them.

        Raises:
          ConfigError: it does not fit, and other workers are training.
        """
        differing = fingerprint.differences(
            view.fingerprint, self._fingerprint, their_name="the running training"
        ) if view.fingerprint and self._fingerprint else []
        if not differing:
            return True
        # A worker that is alive and not admitted may wait as this one does, for the new training that both are of.
        if self._others_in(view):
            raise ConfigError("\n".join(f"{self._cluster.task} does not fit the training on {self._cluster.ps[0]}: "
                                        f"{line}; start it with the same flags and code" for line in differing))
        return False

    def _others_in(self, view: AdmissionView) -> frozenset[int]:
        """Returns the other workers that use the parameters."""
        return view.admitted - {self._cluster.worker_number}
