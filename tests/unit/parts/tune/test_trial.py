"""The rate of a trial, from the reports of its chief."""

from __future__ import annotations

import contextlib
import types

import pytest

from ps_train.parts.tune import trial
from ps_train.parts.tune.search import Choice
from ps_train.runtime.reports import Progress

CHOICE = Choice(num_ps=1, num_workers=1, steps_per_execution=16, communication_period=1, wire_dtype="as_is")


class _Clock:
    """Stands for `time`: it passes only in `sleep`."""

    now_secs = 100.0

    def monotonic(self) -> float:
        return self.now_secs

    def sleep(self, secs: float) -> None:
        self.now_secs += secs


class _Training:
    """Reports so many steps at a time, once in a while."""

    is_running = True

    def __init__(self, clock: _Clock, steps: int, secs: float) -> None:
        self._clock, self._begun_secs, self._steps, self._secs = clock, clock.now_secs, steps, secs

    def launch(self) -> None:
        pass

    @property
    def progress(self) -> Progress | None:
        reports = int((self._clock.now_secs - self._begun_secs) / self._secs)
        return None if not reports else Progress(
            step=reports * self._steps, train_steps=0, loss=0.0, steps_per_sec=0.0, examples_per_sec=0.0)


@pytest.mark.parametrize(("steps", "report_secs"), [(16, 1.6), (16, 2.9), (1, 0.1), (64, 7.0)])
def test_the_rate_is_that_of_whole_reports(monkeypatch, steps, report_secs):
    """Also where a session run of several steps takes a large part of the time that is measured, or more than it."""
    clock = _Clock()
    monkeypatch.setattr(trial, "time", clock)
    runner = trial.Runner(types.SimpleNamespace(sync_replicas=False), None, [], "")
    training = _Training(clock, steps, report_secs)
    monkeypatch.setattr(runner, "_training", lambda *args, **kwargs: contextlib.nullcontext(training))
    assert runner.rate(CHOICE, 3.0) == pytest.approx(steps / report_secs, rel=0.02)
