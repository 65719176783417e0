"""What the chief does during training, beside its own steps. In async that is nothing; sync has `sync/runner.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination.blackboard import Blackboard

CHECK_SECS = 1.0
RUN_OPTIONS = tf.RunOptions(timeout_in_ms=5000)


class ChiefContext(NamedTuple):
    """What the chief knows of the workers.

    Attributes:
      board: the blackboard.
      worker_names: number -> name and address of each worker.
      chief_number: the chief's own number.
      start_timeout_secs: how long the chief waits for workers that are missing.
      is_resumed: whether the parameters are in use already, so that missing workers are dead.
    """

    board: Blackboard
    worker_names: Mapping[int, str]
    chief_number: int
    start_timeout_secs: float
    is_resumed: bool

    def names_of(self, workers: frozenset[int]) -> str:
        """Returns the workers' names and addresses, for messages."""
        return ", ".join(self.worker_names[worker] for worker in sorted(workers))


class ChiefService:
    """What the chief does during training, beside its own steps. This one, for async, does nothing.

    Attributes:
      error: why the service has closed the session, or None.
    """

    error: Exception | None = None

    def start(self, session: tf.Session, context: ChiefContext) -> None:
        """Starts the service in a session whose parameters are ready."""

    def conclude(self, session: tf.Session) -> None:
        """Logs what the user should know when all steps are taken."""

    def stop(self) -> None:
        """Stops the service, before the session is closed."""

    def check_lost(self, error: tf.errors.OpError, context: ChiefContext) -> None:
        """Raises ClusterLostError if training cannot continue in a new session after this error of a lost one."""
