"""What the chief does beside its own training steps, as the update mode defines it; `sync/runner.py` has sync's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.coordination.blackboard import Blackboard

LOOK_SECS = 1.0
RUN_OPTIONS = tf.RunOptions(timeout_in_ms=5000)


class Watch(NamedTuple):
    """How the chief knows who is there.

    Attributes:
      board: the blackboard.
      names: number -> name and address of each worker.
      own: the chief's number.
      start_timeout_secs: for how long workers that are not here are waited for.
      is_live: whether the parameters are in use already, and those who are not here dead.
    """

    board: Blackboard
    names: Mapping[int, str]
    own: int
    start_timeout_secs: float
    is_live: bool

    def name(self, workers: frozenset[int]) -> str:
        """Returns their names and addresses."""
        return ", ".join(self.names[worker] for worker in sorted(workers))


class ChiefService:
    """What the chief does besides while it trains; this one, of async, does nothing.

    Attributes:
      error: why it closed the session, or None.
    """

    error: Exception | None = None

    def start(self, session: tf.Session, watch: Watch) -> None:
        """Begins, once the parameters in the session are ready."""

    def conclude(self, session: tf.Session) -> None:
        """Says what the user should know when all steps are taken."""

    def stop(self) -> None:
        """Ends; the session is closed next."""

    def check_lost(self, error: tf.errors.OpError, watch: Watch) -> None:
        """Raises ClusterLostError where training cannot go on in a new session after this error of a lost one."""
