"""A spare process: it becomes a task that is restarted, with its log, reports and exit code, or is left out."""

from __future__ import annotations

import os
import sys

import pytest

from ps_train import __version__
from ps_train.launch.process import Process
from ps_train.launch.spare import Spare, Spares
from tests.children import run_to_end, wait_until

_ENVIRON = dict(os.environ)  # pytest changes its own
_VERSION = [sys.executable, "-m", "ps_train", "--version"]


@pytest.fixture
def spare():
    made = Spare(_ENVIRON)
    yield made
    made.end()


def ended(tmp_path, command=_VERSION, environ=_ENVIRON):
    process = Process("worker:1", command, str(tmp_path / "worker-1.log"), environ)
    run_to_end(process)
    return process


def test_a_spare_becomes_the_task_that_is_restarted(tmp_path, spare):
    """With the command of the task, in its log, under another process id; its exit code is that of the task."""
    task = ended(tmp_path)
    task.restart(spare.become)
    assert task.pid == spare.pid
    run_to_end(task)
    assert (task.exit_code, list(task.new_lines())) == (0, [__version__] * 2)


@pytest.mark.parametrize(("command", "variables"), [
    ([sys.executable, "-c", "print('other')"], {}), (_VERSION, {"TF_CONFIG": ""}), ([*_VERSION, "x" * 70_000], {})],
    ids=["no task", "another environment", "a long command line"])
def test_what_a_spare_cannot_become_is_started(tmp_path, spare, command, variables):
    """It has imported TensorFlow with one environment, and runs ps_train only."""
    task = ended(tmp_path, command, {**_ENVIRON, **variables})
    task.restart(spare.become)
    assert task.pid != spare.pid
    run_to_end(task)


def test_a_spare_that_was_killed_is_left_out(tmp_path, spare):
    """As by the kernel, where memory is short."""
    task = ended(tmp_path)
    os.kill(spare.pid, 9)
    wait_until(lambda: spare.has_ended, "the spare has ended")
    task.restart(spare.become)
    assert task.pid != spare.pid
    run_to_end(task)


class Started:
    """Stands for a spare."""

    def __init__(self, folder):
        self.folder, self.is_over = folder, False

    def become(self, command, environ, log, files):
        return None if command == ["other"] else self

    def end(self):
        self.is_over = True


def test_one_is_kept_ready_and_made_again_when_the_tasks_have_started():
    """Its import would take a core from tasks that start; one that does not fit is not left behind."""
    now_secs, made = [0.0], []
    spares = Spares({}, lambda: now_secs[0], lambda environ, folder: made.append(Started(folder)) or made[-1])
    for secs, count in ((9.0, 0), (11.0, 1), (12.0, 1)):
        now_secs[0] = secs
        spares.keep_ready()
        assert len(made) == count
    assert spares.become(["task"], {}, 1, {}) is made[0]
    assert spares.become(["task"], {}, 1, {}) is None
    now_secs[0] = 23.0
    spares.keep_ready()
    assert spares.become(["other"], {}, 1, {}) is None
    assert [spare.is_over for spare in made] == [False, True]


def test_a_spare_has_the_folder_in_which_the_tasks_were_started(tmp_path, monkeypatch):
    """A program may change to another one, and a task that is restarted must find the same relative paths."""
    now_secs, made = [0.0], []
    monkeypatch.chdir(tmp_path)
    spares = Spares(_ENVIRON, lambda: now_secs[0], lambda *args: made.append(Spare(*args)) or made[-1])
    monkeypatch.chdir("/")
    now_secs[0] = 11.0
    spares.keep_ready()
    try:
        assert os.path.samefile(f"/proc/{made[0].pid}/cwd", tmp_path)
    finally:
        spares.close()
