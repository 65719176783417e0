"""Waits that get a bound from outside."""

from __future__ import annotations

import threading

import pytest

from ps_train.errors import ClusterLostError
from ps_train.parts.keras.strategies import watchdog


def test_a_body_that_ends_gives_its_value_or_its_error():
    """As if it had been called."""
    assert watchdog.run_watched(lambda: 5, watchdog.Pulse(), str) == 5
    with pytest.raises(ZeroDivisionError):
        watchdog.run_watched(lambda: 1 / 0, watchdog.Pulse(), str)


def test_what_does_not_come_in_time_is_named():
    """Who is missing is asked then, and not before."""
    pulse, never = watchdog.Pulse(), threading.Event()
    pulse.expect("the other tasks", 0.05)
    with pytest.raises(ClusterLostError, match=r"^waited 0.05 s for the other tasks: worker:1 a:1$"):
        watchdog.run_watched(lambda: never.wait(30), pulse, lambda: "worker:1 a:1")
    never.set()


def test_each_beat_renews_the_time(monkeypatch):
    """Overdue is what stayed away for longer than its bound since the last beat."""
    now = [100.0]
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now[0])
    pulse = watchdog.Pulse()
    assert pulse.overdue() == ""
    pulse.expect("a step", 10)
    now[0] = 109.0
    pulse.beat()
    now[0] = 118.0
    assert pulse.overdue() == ""
    now[0] = 120.0
    assert pulse.overdue() == "waited 10 s for a step"
