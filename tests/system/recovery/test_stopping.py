"""SIGTERM to real tasks, in the middle of training and of a wait."""

from __future__ import annotations

import shutil
import signal

import pytest

from tests import clusters
from tests.processes import REPO, TaskCluster
from tests.training import MODES


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_chief_that_was_told_to_stop_continues_with_the_same_command(train, mode):
    """SIGTERM to the chief only, 143; the other worker goes on or waits, and both end well after its return."""
    training = train(1, 2, flags=["--stop_timeout_secs=2", *mode])
    training.wait_for_gates()
    training.group.signal("worker-0", signal.SIGTERM)
    assert training.group.exit_code("worker-0") == 143
    training.start("worker", 0, "worker-0-again")
    training.open_gates()
    training.assert_ends_well(killed=["worker-0"])


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_sigterm_to_all_saves_and_ends_within_the_grace_period(train, mode):
    """Matrix row 23: all four get a signal at once, and the chief still saves."""
    training = train(flags=["--save_model_secs=0", *mode], params=",batch_secs=0.01", train_steps=10**6)
    training.open_gates()
    training.wait_for_gates()
    training.stop()
    assert clusters.read_checkpoint(training.train_dir)["global_step"] >= 10


def test_sigterm_is_heard_while_a_step_is_blocked(train):
    """A worker, then the chief, hangs in its input; it ends with 143 after the grace period."""
    training = train(1, 2, flags=["--stop_timeout_secs=2"])
    training.wait_for_gates()
    for name in ("worker-1", "worker-0"):
        training.group.signal(name, signal.SIGTERM)
        assert training.group.exit_code(name) == 143


def test_sigterm_is_heard_while_a_worker_waits_for_a_ps(tmp_path, start_process):
    """Matrix row 25: no other task runs; it ends at once."""
    cluster = TaskCluster(1, 1)
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    start_process.start("worker", [*cluster.flags("worker", 0), "--model=tiny", "--dataset=tiny",
                                   f"--train_dir={tmp_path}/train", "--stop_timeout_secs=600"], cwd=tmp_path)
    start_process.wait_for_line("worker", "serves at")
    start_process.signal("worker", signal.SIGTERM)
    assert start_process.exit_code("worker") == 143
