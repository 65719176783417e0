"""What a feeder says of ranges, and when it looks for data, with a queue that answers as a test says."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from ps_train.errors import BlackboardError
from ps_train.parts.readers.file_ranges import FileRange
from ps_train.parts.sharding.feeder import RangeFeeder
from ps_train.parts.sharding.local_ranges import LocalRanges
from ps_train.parts.sharding.range_plan import Extension
from ps_train.runtime import clock

PLAN = [FileRange(number, "a", 10 * number, 10 * number + 10, -1) for number in range(9)]


@pytest.fixture
def feeder():
    """Knows 2 of 9 ranges."""
    local = mock.Mock(plan=PLAN[:2], has_verdicts=False)
    local.describe = lambda numbers: LocalRanges.describe(local, numbers)
    local.adopt = lambda text: setattr(local, "plan", PLAN)
    return RangeFeeder(local, mock.Mock(), mock.Mock(), mock.Mock(), 10.0)


@pytest.mark.parametrize("answers", [True, False])
def test_ranges_of_new_data_are_named_when_a_worker_returns_them(feeder, caplog, answers):
    """The answer that assigned them may be lost; ps 0 may have gone when a worker asks what they are."""
    caplog.set_level("INFO")
    queue = feeder._queue
    queue.plan.side_effect = None if answers else BlackboardError("ps_unreachable", "no answer")
    queue.give_back.return_value, queue.release_silent.return_value = [8, 3], {1: [8]}
    feeder.give_back()
    feeder.release_silent()
    assert "number 3, 8" in caplog.text and "number 8" in caplog.text
    assert ("of 20 bytes" in caplog.text) == answers


def test_a_failure_of_the_thread_is_raised_once_the_input_has_ended(feeder):
    """Otherwise a step would wait for a range until its time-out."""
    feeder._local.poll, feeder._cluster.is_chief = "poll", False
    feeder._queue.exchange.side_effect = ValueError("a fault")
    session = mock.Mock()
    session.run.side_effect = lambda fetched, *_, **__: (0, np.zeros([0, 2])) if fetched == "poll" else None
    feeder.start(session)
    feeder._thread.join(10.0)
    session.run.assert_called_with(feeder._local.end_op, options=mock.ANY)
    with pytest.raises(ValueError, match="a fault"):
        feeder.settle(session, is_data_end=True)


def test_the_chief_looks_less_often_while_a_look_takes_long(feeder, monkeypatch):
    """20 times its CPU time, and twice its time; 1 to 30 s; what it did not look at does not count as idle."""
    time = mock.Mock(secs=1000.0, cpu_secs=0.0, look_secs=0.01, look_cpu_secs=0.01)
    monkeypatch.setattr(clock, "now", lambda: time.secs)
    monkeypatch.setattr("time.thread_time", lambda: time.cpu_secs)

    def extended(text):
        time.secs += time.look_secs
        time.cpu_secs += time.look_cpu_secs
        return Extension(PLAN, text, 0, 0)

    feeder._local.extended = mock.Mock(side_effect=extended)
    feeder._queue.state.return_value = mock.Mock(done=())
    feeder._queue.release_silent.return_value = {}
    feeder._grown_secs, feeder._generation = time.secs, 7
    for look_secs, look_cpu_secs, pause_secs in [
            (0.01, 0.01, 1.0), (0.6, 0.5, 10.0), (9.0, 9.0, 30.0), (0.3, 0.01, 1.0), (2.0, 0.01, 4.0)]:
        time.look_secs, time.look_cpu_secs = look_secs, look_cpu_secs
        feeder.look_around()
        num_looks, looked_secs = feeder._local.extended.call_count, time.secs - look_secs
        assert feeder.idle_secs == pytest.approx(looked_secs - 1000.0)
        time.secs = looked_secs + pause_secs - 0.1
        feeder.look_around()
        assert feeder._local.extended.call_count == num_looks
        assert feeder.idle_secs == pytest.approx(looked_secs - 1000.0)
        time.secs += 0.2
    feeder.look_around()
    assert feeder._local.extended.call_count == num_looks + 1
    time.secs += 100.0
    feeder._local.growing.has_seen_all = False  # the store does not answer
    feeder.look_around()
    assert feeder.idle_secs <= 0.0
