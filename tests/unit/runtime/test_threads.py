"""A call in a thread."""

from __future__ import annotations

import threading
import time

import pytest

from ps_train.runtime import threads
from ps_train.runtime.threads import Call


def test_the_result_is_what_was_returned_or_raised():
    """In the thread that calls `result`."""
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


def test_a_repeated_call_goes_on_after_an_error(caplog):
    """Issue: a heartbeat ended for ever when there was no memory for one thread."""
    calls, has_gone_on = [], threading.Event()

    def call():
        calls.append(None)
        if len(calls) == 1:
            raise RuntimeError("can't start new thread")
        has_gone_on.set()

    with threads.repeating(call, period_secs=0.001, name="heartbeat", join_secs=20):
        assert has_gone_on.wait(20)
    (line,) = caplog.records
    assert line.getMessage() == "the thread 'heartbeat' goes on after an error"
    assert "new thread" in str(line.exc_info[1])


def test_threads_of_one_name_are_waited_for():
    """Only those, and not for longer than allowed."""
    gates = {name: threading.Event() for name in ("awaited", "other")}
    started = [threads.Call(gate.wait, name) for name, gate in gates.items()]
    begin_secs = time.monotonic()
    threads.join_named("awaited", timeout_secs=0.1)
    assert started[0].is_alive() and time.monotonic() - begin_secs >= 0.1
    gates["awaited"].set()
    threads.join_named("awaited", timeout_secs=60)
    assert not started[0].is_alive() and started[1].is_alive()
    gates["other"].set()


@pytest.mark.parametrize(("limit", "expected"), [
    ("max 100000\n", 64), ("400000 100000\n", 4), ("50000 100000\n", 1), ("350000 100000\n", 3),
    ("9900000 100000\n", 64), (None, 64)])
def test_a_container_has_the_cores_of_its_limit(tmp_path, monkeypatch, limit, expected):
    """Not those of its node: each thread above the limit waits until the next period."""
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(threads, "_CPU_LIMIT", str(tmp_path / "cpu.max"))
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit, encoding="ascii")
    assert threads.num_cores() == expected
