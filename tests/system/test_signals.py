"""SIGTERM and Ctrl-C to one task of a real cluster, or to one that waits; see also system/recovery/test_stopping.py."""

from __future__ import annotations

import re
import shutil
import signal

import pytest

from tests import clusters
from tests.processes import REPO, TaskCluster
from tests.training import GATE_BATCH


def test_sigterm_to_one_ps_alone_takes_effect_after_the_grace_period(train):
    """Matrix row 23: it serves on, as the chief may need it for a last save; then 143. Started again, all go on."""
    training = train(flags=["--save_model_steps=10", "--stop_timeout_secs=3"])
    training.wait_for_gates()
    training.group.signal("ps-1", signal.SIGTERM)
    assert training.group.exit_code("ps-1") == 143
    assert "[stopped]" in training.group.log("ps-1")
    training.start("ps", 1, "ps-1-again")
    training.open_gates()
    training.assert_ends_well(killed=["ps-1"])
    assert "a ps has lost its parameters" in training.group.log("worker-0")


def test_sigterm_to_one_worker_alone_leaves_the_others_training(train):
    """Matrix row 23: async; it ends with 143 after the step that it is in, the others end with 0."""
    training = train(1, 2, flags=["--end_timeout_secs=2"])
    training.wait_for_gates()
    training.group.signal("worker-1", signal.SIGTERM)
    training.group.wait_until_heard("worker-1")  # else it may take all steps before it hears
    training.open_gates(1)
    assert training.group.exit_code("worker-1") == 143
    training.open_gates()
    training.assert_ends_well(killed=["worker-1"])


def test_sigterm_to_the_chief_alone_saves(train):
    """Matrix row 23: the chief saves before it ends with 143."""
    training = train(1, 2, flags=["--save_model_secs=0"])
    training.wait_for_gates()
    training.group.signal("worker-0", signal.SIGTERM)
    training.group.wait_until_heard("worker-0")  # else it may take all steps before it hears
    training.open_gates(0)
    assert training.group.exit_code("worker-0") == 143
    assert clusters.read_checkpoint(training.train_dir)["global_step"] >= GATE_BATCH


@pytest.mark.parametrize("job", ["worker", "ps"])
def test_a_second_ctrl_c_ends_a_task_at_once(train, job):
    """Matrix row 24: the first one lets a step that is blocked have its grace period, the second does not."""
    training = train(1, 1, flags=["--stop_timeout_secs=3600"])
    training.wait_for_gates()
    training.group.signal(f"{job}-0", signal.SIGINT)
    training.group.wait_for_line(f"{job}-0", "stopping: the current work has 3600 s to end")
    training.group.signal(f"{job}-0", signal.SIGINT)
    assert training.group.exit_code(f"{job}-0") == 128 + signal.SIGINT


def test_sigterm_is_heard_while_a_ps_is_frozen(tmp_path, start_process):
    """Matrix row 25: the worker is about to open its session, and no ps answers; it does not wait for the time-out."""
    cluster = TaskCluster(1, 1)
    shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path)
    flags = ["--model=tiny", "--dataset=tiny", f"--train_dir={tmp_path}/train", "--stop_timeout_secs=3600"]
    start_process.start("ps", [*cluster.flags("ps", 0), *flags], cwd=tmp_path)
    start_process.wait_for_line("ps", "serves at")
    start_process.pause("ps")
    start_process.start("worker", [*cluster.flags("worker", 0), *flags], cwd=tmp_path)
    start_process.wait_for_line("worker", "waiting for ps:0")
    start_process.signal("worker", signal.SIGTERM)
    assert start_process.exit_code("worker") == 143
    assert re.search(r"ps:0 .*\[stopped\]\n", start_process.log("worker"))
