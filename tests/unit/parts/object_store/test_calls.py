"""Which calls of a store have had no answer, on a clock that the test sets."""

from __future__ import annotations

import types

import pytest

from ps_train.parts.object_store.calls import Calls
from ps_train.runtime import clock


@pytest.fixture
def time(monkeypatch):
    """The clock; set its `secs`."""
    time = types.SimpleNamespace(secs=1000.0)
    monkeypatch.setattr(clock, "now", lambda: time.secs)
    return time


def test_the_call_that_takes_longest_is_named_after_a_minute(time):
    """With how long it takes; not once it has ended, also by an error."""
    calls = Calls()
    with pytest.raises(OSError, match="away"), calls.noting("put a"):
        time.secs += 30
        with calls.noting("read b"):
            assert calls.silence() == ""
            time.secs += 31
            assert calls.silence() == "put a: no answer for 61 s"
        raise OSError("away")
    assert calls.silence() == ""


def test_there_is_one_warning_of_each_call(time, caplog):
    """After some minutes."""
    calls = Calls()
    for _ in range(2):
        with calls.noting("put a"):
            for _ in range(4):
                time.secs += 200
                calls.warn("hdfs://host/run")
    assert [record.getMessage() for record in caplog.records] == ["hdfs://host/run: put a: no answer for 400 s"] * 2
