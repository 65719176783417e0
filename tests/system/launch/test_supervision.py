"""Lost tasks: which are restarted, after which pause, and how often; the pause blocks nothing."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess

import pytest

from ps_train.launch import supervision
from ps_train.launch.supervision import ClusterProcesses, Restarts
from tests.children import python


class Ended:
    """Stands for a task that has just ended, and ends again at once each time it is started."""

    def __init__(self, name, code, then=None):
        self.name = name
        self.exit_code = code
        self.restarts = 0
        self.is_stopped_on_request = False
        self._then = code if then is None else then

    def restart(self):
        self.restarts += 1
        self.exit_code = self._then


class Clock:
    """A clock that a test moves."""

    now_secs = 0.0

    def __call__(self):
        return self.now_secs


def tasks_with(worker, ps_code=None, chief_code=None):
    return ClusterProcesses([Ended("ps:0", ps_code)], [Ended("worker:0", chief_code), worker])


def test_the_pause_grows_to_half_a_minute_and_each_restart_is_told():
    """At once, then after 1, 2, 4, 8, 16, 30, 30 s; not a moment earlier; after the last one the task is left alone."""
    said, clock = [], Clock()
    restarts, worker = Restarts(8, said.append, clock), Ended("worker:1", 137)
    tasks = tasks_with(worker)
    for count, pause_secs in enumerate([0, 1, 2, 4, 8, 16, 30, 30]):
        assert list(restarts.restart_due(tasks)) == [worker]
        when = f"in {pause_secs} s" if pause_secs else "at once"
        assert said[count:] == [f"worker:1 ended with 137; starting it again {when} (restart {count + 1} of 8)"]
        if pause_secs:
            clock.now_secs += pause_secs - 0.01
            assert (list(restarts.restart_due(tasks)), worker.restarts) == ([worker], count)
            clock.now_secs += 0.02
        assert (list(restarts.restart_due(tasks)), worker.restarts) == ([], count + 1)
    assert (list(restarts.restart_due(tasks)), worker.restarts, len(said)) == ([], 8, 8)


def test_a_task_that_ran_for_a_while_is_started_at_once():
    """Lost once an hour, it is no task that cannot start; one that ends at its start waits longer each time."""
    said, clock = [], Clock()
    restarts, worker = Restarts(9, said.append, clock), Ended("worker:1", 137, then=0)
    worker.exit_code = None
    tasks = tasks_with(worker)
    for run_secs in (1.0, 1.0, 1.0, 30.0, 1.0):
        clock.now_secs += run_secs
        worker.exit_code = 137
        restarts.restart_due(tasks)
        clock.now_secs += 10.0  # longer than any of these pauses
        restarts.restart_due(tasks)
        worker.exit_code = None
    assert [line.partition("again ")[2].partition(" (")[0] for line in said] == [
        "at once", "in 1 s", "in 2 s", "at once", "in 1 s"]


@pytest.mark.parametrize(("code", "comes_back"), [
    (None, False), (0, False), (1, False), (2, False), (127, False),
    (128, True), (130, True), (137, True), (138, True), (139, True), (143, True),
])
def test_only_what_was_lost_or_killed_comes_back(code, comes_back):
    """0 is done, 1 to 127 are permanent; a 143 after a SIGTERM of the launcher comes when it no longer watches."""
    assert bool(Restarts(1, lambda text: None).restart_due(tasks_with(Ended("worker:1", code)))) is comes_back


def test_none_is_the_default():
    """Without --max_restarts a task that was killed has failed."""
    assert not Restarts(0, pytest.fail).restart_due(tasks_with(Ended("worker:1", 137)))


@pytest.mark.parametrize("done", [{"ps_code": 0}, {"chief_code": 0}], ids=["a ps", "the chief"])
def test_after_the_end_of_training_nobody_is_started(done):
    """A worker that came back would wait for ps that have ended; one that waits for its restart has failed."""
    restarts = Restarts(3, lambda text: None, Clock())
    worker = Ended("worker:1", 137)
    assert list(restarts.restart_due(tasks_with(worker))) == [worker]
    assert not restarts.restart_due(tasks_with(worker, **done))
    assert worker.restarts == 0


def test_each_task_has_its_own_count():
    """Two that end together are both started again, each for the first time."""
    said = []
    worker, other = Ended("worker:1", 137), Ended("worker:2", 138)
    cluster = ClusterProcesses([], [Ended("worker:0", None), worker, other])
    assert set(Restarts(1, said.append).restart_due(cluster)) == {worker, other}
    assert [line.rpartition("(")[2] for line in said] == ["restart 1 of 1)"] * 2


def fails_until(tmp_path, count, code):
    """A task that kills itself `count` times, then ends with `code`."""
    return python(tmp_path, "worker:1", f"""
        import os, pathlib
        starts = pathlib.Path({str(tmp_path / "starts")!r})
        starts.open("a").write("x")
        number = len(starts.read_text())
        print("start", number, flush=True)
        if number <= {count}:
            os.kill(os.getpid(), 9)
        raise SystemExit({code})
    """)


@pytest.mark.parametrize(("kills", "code", "most", "restarts", "end"), [
    (2, 0, 2, 2, 0), (2, 0, 3, 2, 0), (2, 0, 1, 1, 137), (1, 7, 3, 1, 7),
])
def test_a_task_is_watched_through_its_restarts(tmp_path, kills, code, most, restarts, end):
    """It ends with its last exit code, and one log has all that it wrote."""
    lines = []
    task = fails_until(tmp_path, kills, code)
    no_pauses = Restarts(most, lambda text: None, itertools.count(step=1000).__next__)
    failed = supervision.watch(ClusterProcesses([], [task]), lambda: lines.extend(task.new_lines()), [],
                               no_pauses.restart_due)
    assert list(failed) == ([task] if end else [])
    assert (task.exit_code, task.restarts) == (end, restarts)
    assert lines == [f"start {number + 1}" for number in range(restarts + 1)]
    assert (tmp_path / "worker-1.log").read_text().splitlines() == lines


def test_the_pause_blocks_neither_the_others_nor_a_signal(tmp_path):
    """While it lasts the others are watched and shown, and a signal ends the watch without a restart."""
    said, signals, shown = [], [], []
    task = fails_until(tmp_path, 2, 0)

    def show():
        if len(said) == 2:  # the first restart needs no pause
            shown.append(task.exit_code)
        if len(shown) == 3:
            signals.append(signal.SIGTERM)

    endless_pause = Restarts(2, said.append, Clock())
    assert supervision.watch(ClusterProcesses([], [task]), show, signals, endless_pause.restart_due) == []
    assert (shown, task.restarts) == ([137] * 3, 1)


def test_a_restart_that_the_system_refuses_is_tried_again(tmp_path, monkeypatch):
    """Memory is short just after the kernel has killed a task for it; each attempt counts."""
    said, refused = [], [OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), OSError(errno.EAGAIN, "no process")]
    popen = subprocess.Popen

    def start(*arguments, **settings):
        if refused:
            raise refused.pop(0)
        return popen(*arguments, **settings)

    task = fails_until(tmp_path, 1, 0)
    monkeypatch.setattr(subprocess, "Popen", start)
    no_pauses = Restarts(3, said.append, itertools.count(step=1000).__next__)
    assert supervision.watch(ClusterProcesses([], [task]), lambda: None, [], no_pauses.restart_due) == []
    assert (task.exit_code, task.restarts) == (0, 3)
    assert [line for line in said if "cannot" in line] == ["cannot start worker:1: Cannot allocate memory",
                                                          "cannot start worker:1: no process"]
