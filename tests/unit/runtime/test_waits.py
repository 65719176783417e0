"""Waits: they end in time, and say whom they waited for."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import types

import pytest

from ps_train.errors import ClusterLostError, StoppedError
from ps_train.runtime import waits


@contextlib.contextmanager
def _takes(least_secs, most_secs):
    start_secs = time.monotonic()
    yield
    assert least_secs <= time.monotonic() - start_secs <= most_secs


def test_returns_the_first_true_value(stop):
    """The condition is asked again until it is true, and its value is returned."""
    answers = iter([None, 0, "there"])
    assert waits.until(lambda: next(answers), 10, "it", stop) == "there"


def test_asks_at_once(stop, monkeypatch):
    """What is there already costs no waiting."""
    monkeypatch.setattr(waits, "_POLL_SECS", 60)
    with _takes(0, 30):
        assert waits.until(lambda: 7, 10, "it", stop) == 7


def test_an_expired_wait_names_what_it_waited_for(stop):
    """The error says how long, for whom, and what the user may do."""
    with _takes(0.3, 30), pytest.raises(ClusterLostError, match=r"^waited 0.3 s for ps:0 host:1; is it up\?$"):
        waits.until(lambda: False, 0.3, "ps:0 host:1", stop, "is it up?")


def test_what_it_waits_for_may_change(stop):
    """The name is asked for when it is told, so that it is the latest."""
    missing = ["a", "b"]

    def condition():
        del missing[1:]

    with pytest.raises(ClusterLostError, match="^waited 0.1 s for a$"):
        waits.until(condition, 0.1, lambda: " and ".join(missing), stop)


def test_a_signal_ends_the_wait_at_once(stop):
    """`stop` is not waited out."""
    with _takes(0.2, 20), pytest.raises(StoppedError, match="^told to stop while waiting for it$"):
        threading.Timer(0.2, stop.set).start()
        waits.until(lambda: False, 30, "it", stop)


def test_a_signal_ends_the_wait_while_the_condition_blocks(stop):
    """A peer that is frozen answers nothing, for as long as a call may take: the signal is heard all the same."""
    forever = threading.Event()
    with _takes(0.2, 20), pytest.raises(StoppedError, match="^told to stop while waiting for it$"):
        threading.Timer(0.2, stop.set).start()
        waits.until(forever.wait, 30, "it", stop)
    forever.set()


def test_a_long_wait_reminds(stop, monkeypatch, caplog):
    """Every ten seconds it says what it waits for, since when, and until when; it reads the monotonic clock only."""
    seconds = itertools.count()
    monkeypatch.setattr(waits, "time", types.SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(waits, "_POLL_SECS", 0)
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    with caplog.at_level(logging.INFO), pytest.raises(ClusterLostError):
        waits.until(lambda: False, 35, "ps:0", stop)
    assert caplog.messages == [f"waiting for ps:0, since {since} s, at most 35 s" for since in (10, 20, 30)]


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
    with _takes(0.2, 30), pytest.raises(ClusterLostError, match="^waited 0.2 s for an answer that never comes$"):
        waits.bounded(forever.wait, 0.2, "an answer that never comes")
    left = [thread for thread in threading.enumerate() if thread.name == "bounded an answer that never comes"]
    are_daemons = [thread.daemon for thread in left]
    forever.set()
    left[0].join(5)
    assert are_daemons == [True]
