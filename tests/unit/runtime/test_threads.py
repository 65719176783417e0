"""A call in a thread of its own."""

from __future__ import annotations

import threading

import pytest

from ps_train.runtime.threads import Call


def test_the_result_is_what_was_returned_or_raised():
    """In the thread that asks, whatever it is."""
    returning, raising = Call(lambda: 7, "one"), Call(lambda: int("x"), "other")
    for call in (returning, raising):
        call.join(20)
    assert returning.result() == 7
    with pytest.raises(ValueError, match="'x'"):
        raising.result()


def test_it_is_a_daemon_with_a_name():
    """One that never returns does not keep the process, and a list of threads says what it is."""
    wait = threading.Event()
    call = Call(wait.wait, "waiting for nothing")
    assert call.daemon and call.name == "waiting for nothing" and call.is_alive()
    wait.set()
    call.join(20)
    assert not call.is_alive()
