"""What a feeder says of ranges, and when it looks for data, with a queue that answers as a test says."""

from __future__ import annotations

from unittest import mock

import pytest

from ps_train.errors import BlackboardError
from ps_train.parts.readers.file_ranges import FileRange
from ps_train.parts.sharding.feeder import RangeFeeder
from ps_train.parts.sharding.local_ranges import LocalRanges

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
