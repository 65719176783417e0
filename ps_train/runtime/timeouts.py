"""How long a task waits for others."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Timeouts:
    """The bounds of a task's waits, in seconds. Each is the flag of its name: `start_secs` is --start_timeout_secs.

    Attributes:
      start_secs: for the ps and the chief, at the start and after a loss.
      step_secs: for one session run of training steps.
      save_secs: for the last checkpoint, with every retry.
      eval_secs: for the evaluation of one checkpoint.
      heartbeat_secs: for a sign of life of a worker, which counts as dead afterwards; the flag is --beat_timeout_secs.
      end_secs: for the other workers to finish, after the last step.
      stop_secs: for the work at hand and the last checkpoint, after SIGTERM.
      idle_secs: for a worker, where a ps has none.
    """

    start_secs: float = 300.0
    step_secs: float = 300.0
    save_secs: float = 120.0
    eval_secs: float = 600.0
    heartbeat_secs: float = 10.0
    end_secs: float = 30.0
    stop_secs: float = 20.0
    idle_secs: float = 600.0
