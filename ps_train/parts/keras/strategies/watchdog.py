"""A time limit on training: TensorFlow waits for ever for a peer that hangs.

    the training thread   pulse.expect(what, timeout_secs) ... pulse.beat() ... pulse.beat()
    run_watched           raises when no beat comes for longer than that
"""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple

from ps_train.errors import ClusterLostError
from ps_train.runtime.threads import Call

_POLL_SECS = 0.1


class _Expected(NamedTuple):
    what: str
    timeout_secs: float
    since_secs: float


class Pulse:
    """What a thread waits for, and since when."""

    def __init__(self) -> None:
        self._expected = _Expected("", float("inf"), 0.0)

    def expect(self, what: str, timeout_secs: float) -> None:
        """Says what comes next, and how long it may take."""
        self._expected = _Expected(what, timeout_secs, time.monotonic())

    def beat(self) -> None:
        """Says that it came, and is expected again."""
        self._expected = self._expected._replace(since_secs=time.monotonic())

    def overdue(self) -> str:
        """Returns `waited 300 s for ...` if the time is over, else ""."""
        what, timeout_secs, since_secs = self._expected
        return f"waited {timeout_secs:g} s for {what}" if time.monotonic() - since_secs > timeout_secs else ""


def run_watched(body: Callable[[], Any], pulse: Pulse, who_is_missing: Callable[[], str]) -> Any:
    """Returns `body()`, which runs in a thread of its own for as long as its pulse beats.

    Args:
      who_is_missing: says which task cannot be reached, for the error.

    Raises:
      ClusterLostError: no beat came in time; the thread is left behind, and ends with the process.
      Exception: whatever the body raised.
    """
    thread = Call(body, "watched")
    while thread.is_alive():
        thread.join(_POLL_SECS)
        if thread.is_alive() and (overdue := pulse.overdue()):
            raise ClusterLostError(f"{overdue}: {who_is_missing()}")
    return thread.result()
