"""Waits with a time limit, whose errors name what was missing.

    until(condition, timeout_secs, awaited, stop)    calls a condition until it is true
    bounded(call, timeout_secs, awaited)             a call that TensorFlow gives no time-out
    Reminder(awaited)                                for any other loop
    StopEvent                                        ends a wait: by a signal, or by `ps_train stop`

A wait of more than ten seconds logs every ten seconds what it waits for.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
from typing import Any, Callable

from ps_train.errors import ClusterLostError, StoppedError
from ps_train.runtime import clock
from ps_train.runtime.clock import AbandonedError

# Bounds the call that describes what is missing, and a last look: no signal and no time limit may wait for a message.
DESCRIBE_SECS = 5.0
_POLL_SECS = 0.2
_REMIND_SECS = 10.0
_log = logging.getLogger(__name__)


class StopEvent(threading.Event):
    """Asks a task to stop.

    Attributes:
      is_requested: whether `ps_train stop` was the reason, and not a signal.
    """

    is_requested = False


def stop_on_request(stop: threading.Event) -> None:
    """Sets the event as a signal would, and notes that `ps_train stop` was the reason."""
    if isinstance(stop, StopEvent):
        stop.is_requested = True
    stop.set()


def is_stop_requested(stop: threading.Event) -> bool:
    """Returns whether `stop_on_request` has set the event."""
    return isinstance(stop, StopEvent) and stop.is_requested


class Reminder:
    """Logs every ten seconds that a wait goes on, and for what."""

    def __init__(self, awaited: str | Callable[[], str], timeout_secs: float = math.inf) -> None:
        """Begins the wait.

        Args:
          awaited: what is missing, or a function that returns it.
          timeout_secs: the time limit of the wait.
        """
        self._awaited, self._timeout_secs = awaited, timeout_secs
        self.start_secs = clock.now()
        self._next_secs = self.start_secs + _REMIND_SECS

    def name(self) -> str:
        """Returns what is missing now."""
        return self._awaited if isinstance(self._awaited, str) else self._awaited()

    def remind(self, now_secs: float | None = None) -> None:
        """Logs a line if ten seconds have passed since the last one."""
        now_secs = clock.now() if now_secs is None else now_secs
        if now_secs < self._next_secs:
            return
        # A line that comes late does not shift the ones after it.
        num_due = (now_secs - self.start_secs) // _REMIND_SECS
        self._next_secs = self.start_secs + (num_due + 1) * _REMIND_SECS
        limit = "" if math.isinf(self._timeout_secs) else f", at most {self._timeout_secs:g} s"
        _log.info("waiting for %s, since %.0f s%s", self.name(), now_secs - self.start_secs, limit)


def until(
    condition: Callable[[], Any], timeout_secs: float, awaited: str | Callable[[], str], stop: threading.Event,
    advice: str = "",
) -> Any:
    """Returns the first true value of `condition()`, which is called five times a second.

    Args:
      condition: may block; after the time limit, its call is abandoned.
      timeout_secs: the time limit.
      awaited: what is missing, as in "waited 300 s for ..."; or a function that returns it.
      stop: ends the wait at once when it is set, even while the condition blocks.
      advice: what the user can do about it, for the error.

    Raises:
      ClusterLostError: `timeout_secs` have passed.
      StoppedError: `stop` was set.
    """
    reminder = Reminder(awaited, timeout_secs)
    while not (value := _answer(condition, reminder.start_secs + timeout_secs - clock.now(), stop, reminder)):
        now_secs = clock.now()
        if now_secs - reminder.start_secs >= timeout_secs:
            suffix = f"; {advice}" if advice else ""
            raise ClusterLostError("timed_out", f"waited {timeout_secs:g} s for {reminder.name()}{suffix}")
        reminder.remind(now_secs)
        if stop.wait(_POLL_SECS):
            raise StoppedError("stopped", f"stopped while waiting for {reminder.name()}")
    return value


def _answer(condition: Callable[[], Any], timeout_secs: float, stop: threading.Event, reminder: Reminder) -> Any:
    """Returns `condition()`, or None if the time is over or `stop` is set while it blocks, as on a frozen peer."""
    try:
        return clock.call(condition, "bounded an answer", timeout_secs=max(timeout_secs, DESCRIBE_SECS), stop=stop,
                          remind=reminder.remind)
    except AbandonedError:
        return None


def bounded(call: Callable[[], Any], timeout_secs: float, awaited: str, stop: threading.Event | None = None) -> Any:
    """Returns `call()`, which runs in a thread because TensorFlow gives it no time-out.

    Args:
      awaited: what the call is waiting for, as in "waited 300 s for ...".
      stop: ends the wait at once when it is set.

    Raises:
      ClusterLostError: the call took longer than `timeout_secs`; its thread is abandoned and ends with the process.
      StoppedError: `stop` was set.
      Exception: from the call.
    """
    reminder = Reminder(awaited, timeout_secs)
    try:
        return clock.call(call, f"bounded {awaited}", timeout_secs=timeout_secs, stop=stop, remind=reminder.remind)
    except AbandonedError as error:
        if stop is not None and stop.is_set():
            raise StoppedError("stopped", f"stopped while waiting for {awaited}") from error
        raise ClusterLostError("timed_out", f"waited {timeout_secs:g} s for {awaited}") from error


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
