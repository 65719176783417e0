"""Waits that have a bound and name whom they waited for."""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
from typing import Any, Callable

from ps_train.errors import ClusterLostError, StoppedError
from ps_train.runtime.threads import Call

_POLL_SECS = 0.2
_REMIND_SECS = 10.0
_log = logging.getLogger(__name__)


def until(
    condition: Callable[[], Any],
    timeout_secs: float,
    what: str | Callable[[], str],
    stop: threading.Event,
    advice: str = "",
) -> Any:
    """Returns the first true value of `condition()`, which is asked five times a second.

    Args:
      condition: what is waited for; it should not block for long, as the bound is looked at between two questions.
      timeout_secs: the bound.
      what: whom or what is waited for, as in "waited 300 s for ..."; or a function that says so.
      stop: ends the wait at once when it is set, also while the condition blocks.
      advice: what the user may do about it.

    Raises:
      ClusterLostError: the time is over.
      StoppedError: `stop` was set.
    """
    start_secs = time.monotonic()
    remind_secs = start_secs + _REMIND_SECS
    while not (value := _answer(condition, stop)):
        now_secs = time.monotonic()
        name = what if isinstance(what, str) else what()
        if now_secs - start_secs >= timeout_secs:
            raise ClusterLostError(f"waited {timeout_secs:g} s for {name}" + (f"; {advice}" if advice else ""))
        if now_secs >= remind_secs:
            remind_secs += _REMIND_SECS
            _log.info("waiting for %s, since %.0f s, at most %g s", name, now_secs - start_secs, timeout_secs)
        if stop.wait(_POLL_SECS):
            raise StoppedError(f"told to stop while waiting for {name}")
    return value


def _answer(condition: Callable[[], Any], stop: threading.Event) -> Any:
    """Returns what the condition says, or None where `stop` is set while it blocks, on a peer that is frozen say."""
    try:
        return bounded(condition, math.inf, "an answer", stop)
    except StoppedError:
        return None


def bounded(call: Callable[[], Any], timeout_secs: float, what: str, stop: threading.Event | None = None) -> Any:
    """Returns `call()`, made in a thread of its own because TensorFlow gives it no time-out.

    Args:
      stop: ends the wait at once when it is set.

    Raises:
      ClusterLostError: it took longer; the thread is left behind, to end with the process.
      StoppedError: `stop` was set.
      Exception: whatever the call raised.
    """
    thread = Call(call, f"bounded {what}")
    end_secs = time.monotonic() + timeout_secs
    while thread.is_alive() and (remaining_secs := end_secs - time.monotonic()) > 0:
        thread.join(min(remaining_secs, _POLL_SECS) if stop else remaining_secs)
        if stop is not None and stop.is_set() and thread.is_alive():
            raise StoppedError(f"told to stop while waiting for {what}")
    if thread.is_alive():
        raise ClusterLostError(f"waited {timeout_secs:g} s for {what}")
    return thread.result()


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
