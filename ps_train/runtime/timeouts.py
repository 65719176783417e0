"""The time limits of a task's waits, as one value."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Timeouts:
    """Time limits in seconds, each from the flag of its name: `start_secs` is --start_timeout_secs.

    Attributes:
      start_secs: to wait for the ps and the chief, at the start and after a loss.
      step_secs: for one session run of training steps.
      save_secs: for the last checkpoint, including retries.
      eval_secs: for the evaluation of one checkpoint.
      heartbeat_secs: without a heartbeat, after which a worker counts as dead; the flag is --beat_timeout_secs.
      end_secs: to wait for the other workers after the last step.
      stop_secs: for the work at hand and the last checkpoint after SIGTERM.
      idle_secs: without any worker, after which a ps exits.
    """

    start_secs: float = 300.0
    step_secs: float = 300.0
    save_secs: float = 120.0
    eval_secs: float = 600.0
    heartbeat_secs: float = 10.0
    end_secs: float = 30.0
    stop_secs: float = 20.0
    idle_secs: float = 600.0
