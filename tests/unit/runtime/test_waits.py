"""Waits: they end in time, and say what they waited for."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import types

import pytest

from ps_train.errors import ClusterLostError, StoppedError
from ps_train.runtime import waits
from tests.errors import raises


@contextlib.contextmanager
def _takes(least_secs, most_secs):
    start_secs = time.monotonic()
    yield
    assert least_secs <= time.monotonic() - start_secs <= most_secs


def test_returns_the_first_true_value(stop):
    """The condition is called until it is true, and its value is returned."""
    answers = iter([None, 0, "there"])
    assert waits.until(lambda: next(answers), 10, "it", stop) == "there"


def test_checks_at_once(stop, monkeypatch):
    """A condition that holds already costs no waiting."""
    monkeypatch.setattr(waits, "_POLL_SECS", 60)
    with _takes(0, 30):
        assert waits.until(lambda: 7, 10, "it", stop) == 7


def test_an_expired_wait_names_what_it_waited_for(stop):
    """The error says how long, for what, and what the user may do."""
    with _takes(0.3, 30), raises("timed_out", kind=ClusterLostError) as caught:
        waits.until(lambda: False, 0.3, "ps:0 host:1", stop, "is it up?")
    assert "0.3 s for ps:0 host:1; is it up?" in str(caught.value)


def test_what_it_waits_for_may_change(stop):
    """The error has the newest name."""
    missing = ["a", "b"]

    def condition():
        del missing[1:]

    with raises("timed_out") as caught:
        waits.until(condition, 0.1, lambda: " and ".join(missing), stop)
    assert str(caught.value).endswith("for a")


def test_a_signal_ends_the_wait_at_once(stop):
    """Not at the time limit."""
    with _takes(0.2, 20), raises("stopped", kind=StoppedError):
        threading.Timer(0.2, stop.set).start()
        waits.until(lambda: False, 30, "it", stop)


def test_a_signal_ends_the_wait_while_the_condition_blocks(stop):
    """A frozen peer does not answer for as long as a call may take; that does not delay the signal."""
    forever = threading.Event()
    with _takes(0.2, 20), raises("stopped", kind=StoppedError):
        threading.Timer(0.2, stop.set).start()
        waits.until(forever.wait, 30, "it", stop)
    forever.set()


def test_a_condition_that_never_returns_ends_with_the_wait(stop, monkeypatch):
    """Issue: an evaluator whose folder hung waited for ever, "at most 300 s"."""
    monkeypatch.setattr(waits, "DESCRIBE_SECS", 0.1)
    forever = threading.Event()
    with _takes(0.3, 20), raises("timed_out", kind=ClusterLostError):
        waits.until(forever.wait, 0.3, "it", stop)
    forever.set()


class _Clock:
    """Seconds that pass only in the pauses of a wait; stands for `time` and for the event that ends the wait."""

    def __init__(self):
        self.secs = 0.0

    def monotonic(self):
        return self.secs

    def is_set(self):
        return False

    def wait(self, secs):
        self.secs += 1
        return False


def test_a_long_wait_reminds(monkeypatch, caplog):
    """Every ten seconds it says what it waits for, since when, and until when; it reads the monotonic clock only."""
    clock = _Clock()
    monkeypatch.setattr(waits, "clock", types.SimpleNamespace(
        now=clock.monotonic, call=lambda condition, name, **_: condition()))
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    with caplog.at_level(logging.INFO), pytest.raises(ClusterLostError):
        waits.until(lambda: False, 35, "ps:0", clock)
    assert caplog.messages == [f"waiting for ps:0, since {since} s, at most 35 s" for since in (10, 20, 30)]


def test_a_wait_reminds_while_its_condition_blocks(stop, monkeypatch):
    """Many hosts that drop packets take longer than the time between two lines."""
    has_reminded, lines = threading.Event(), []
    monkeypatch.setattr(waits, "_REMIND_SECS", 0.01)
    monkeypatch.setattr(waits._log, "info", lambda text, *args: (lines.append(text % args), has_reminded.set()))
    assert waits.until(lambda: has_reminded.wait(60), 70, "ps:0", stop)
    assert lines[0].startswith("waiting for ps:0, since ")


def test_a_reminder_that_comes_late_does_not_come_twice(monkeypatch, caplog):
    """It may have had no chance for longer than the time between two lines."""
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    reminder = waits.Reminder("ps:0")
    with caplog.at_level(logging.INFO):
        for secs in (28, 28.2, 33, 39):
            reminder.remind(reminder.start_secs + secs)
    assert caplog.messages == ["waiting for ps:0, since 28 s", "waiting for ps:0, since 33 s"]


def test_a_bounded_call_that_takes_long_reminds(monkeypatch, caplog):
    """It says so as often as a wait for a condition does."""
    has_reminded = threading.Event()
    monkeypatch.setattr(waits, "_REMIND_SECS", 0.01)
    monkeypatch.setattr(waits._log, "info", lambda text, *args: (lines.append(text % args), has_reminded.set()))
    lines = []
    assert waits.bounded(lambda: has_reminded.wait(60), 60, "the last checkpoint")
    assert re.match(r"waiting for the last checkpoint, since \d s, at most 60 s$", lines[0])


def test_a_reminder_works_in_any_loop(monkeypatch, caplog):
    """It names what is missing then; without a time limit if it has none."""
    missing = ["worker:1", "worker:2"]
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    reminder = waits.Reminder(lambda: " and ".join(missing))
    with caplog.at_level(logging.INFO):
        for secs in (9, 10, 11, 19, 20):
            reminder.remind(reminder.start_secs + secs + 0.5)
            missing[1:] = []
    assert caplog.messages == ["waiting for worker:1, since 10 s", "waiting for worker:1, since 20 s"]


def test_a_bounded_call_returns_its_value():
    """A call that ends in time gives its value."""
    assert waits.bounded(lambda: 42, 10, "it") == 42


def test_a_bounded_call_raises_what_the_call_raised():
    """The error of the call is raised in the caller, as it was."""
    error = ZeroDivisionError("mine")

    def fail():
        raise error

    with pytest.raises(ZeroDivisionError) as caught:
        waits.bounded(fail, 10, "it")
    assert caught.value is error


def test_a_bounded_call_that_hangs_is_left_behind():
    """The caller goes on after the bound, and the thread cannot hold the process."""
    forever = threading.Event()
    with _takes(0.2, 30), raises("timed_out", kind=ClusterLostError):
        waits.bounded(forever.wait, 0.2, "an answer that never comes")
    left = [thread for thread in threading.enumerate() if thread.name == "bounded an answer that never comes"]
    are_daemons = [thread.daemon for thread in left]
    forever.set()
    left[0].join(5)
    assert are_daemons == [True]
