"""The ages of what is served, against the formula."""

from __future__ import annotations

import numpy as np
import pytest

from ps_train.parts.live.pushes import Begin
from ps_train.parts.publish import freshness
from ps_train.parts.publish.freshness import ServedAges


@pytest.fixture
def seen(monkeypatch):
    """Returns a ServedAges whose clock is set by the third number of each push: (cut, watermark, now)."""
    def serve(pushes):
        result = ServedAges()
        for number, (cut, watermark, now) in enumerate(pushes, 1):
            monkeypatch.setattr(freshness.time, "time", lambda now=now: now)
            result.served(Begin(number, number - 1, "t", 10 * number, cut, watermark))
        return result.as_json()

    return serve


def test_a_push_is_as_old_as_each_step_and_event_since_the_push_before(seen):
    """From the newest to the oldest, evenly."""
    ages = seen([(100.0, 40.0, 101.0), (110.0, 60.0, 112.0), (120.0, 80.0, 123.0)])
    trained = np.concatenate([np.linspace(2, 12, 20), np.linspace(3, 13, 20)])
    events = np.concatenate([np.linspace(52, 72, 20), np.linspace(43, 63, 20)])
    assert ages == {
        f"{name}_secs_{share}": pytest.approx(np.quantile(values, quantile), abs=1e-3)
        for name, values in (("trained_to_served", trained), ("event_to_served", events))
        for share, quantile in (("p50", 0.5), ("p99", 0.99))}


def test_what_is_not_known_is_none(seen):
    """After the first push, and without a watermark."""
    assert set(seen([(100.0, 40.0, 101.0)]).values()) == {None}
    ages = seen([(100.0, None, 101.0), (110.0, 60.0, 112.0)])
    assert ages["trained_to_served_secs_p50"] == 7
    assert ages["event_to_served_secs_p50"] is None
