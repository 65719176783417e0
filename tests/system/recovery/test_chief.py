"""A chief that dies, comes late or twice: real processes, killed while training is held at a gate."""

from __future__ import annotations

import re

import pytest

from tests import clusters
from tests.processes import TaskCluster
from tests.training import MODES, TRAIN_STEPS


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_restarted_chief_continues_on_the_live_parameters(train, mode):
    """Matrix row 10: it neither restores nor initialises, and saves at the end."""
    training = train(1, 2, flags=mode)
    training.wait_for_gates()
    training.kill("worker-0")
    training.start("worker", 0, "worker-0-again")
    if not mode:  # in sync it needs the other worker for a step
        training.wait_for_gates("worker-0-again")
    training.open_gates()
    training.assert_ends_well(killed=["worker-0"])
    log = training.group.log("worker-0-again")
    assert "starting from" not in log and "continuing from" not in log and "restoring" not in log
    assert int(re.search(r"step (\d+) of", log)[1]) > 10


def test_a_second_chief_is_refused(train):
    """Matrix rows 44 and 46: it exits 2, before it touches anything; the first one trains on.

    Its folder is another one, as where two machines share none; else it would be refused for that already.
    """
    training = train(1, 1, beat_timeout_secs=30)  # a late beat of the first one is no leave to take its place
    training.wait_for_gates()
    elsewhere = TaskCluster(0, 1)
    flags = [f"--ps_hosts={training.cluster.ps[0]}", f"--worker_hosts={elsewhere.workers[0]}", "--job_name=worker",
             "--task_index=0", *training.flags]
    flags = [f"--train_dir={training.folder}/second" if flag.startswith("--train_dir") else flag for flag in flags]
    training.group.start("second", flags, cwd=training.folder)
    assert training.group.exit_code("second") == 2
    assert "is running already" in training.group.log("second")
    training.open_gates()
    training.assert_ends_well(killed=["second"])


def test_a_chief_that_starts_last_is_waited_for(train):
    """Matrix row 4: the others wait for it, and then train."""
    training = train(1, 2, absent=["worker-0"])
    training.group.wait_for_line("worker-1", "serves at")
    training.start("worker", 0)
    training.wait_for_gates()
    training.open_gates()
    training.assert_ends_well()


def test_a_chief_that_dies_before_it_says_done_is_replaced(train):
    """Matrix row 51: it is killed in its evaluation; started again it takes no step, evaluates, and all end with 0."""
    training = train(1, 2, holds_evaluation=True)
    training.open_gates()
    training.group.wait_for_line("worker-0", "training ended")
    assert training.group.exit_code("worker-1") == 0
    training.kill("worker-0")
    training.open_eval_gate()
    training.start("worker", 0, "worker-0-again")
    training.assert_ends_well(killed=["worker-0"])
    log = training.group.log("worker-0-again")
    assert "nothing to train" in log and re.search(r"After 20\d training", log)


def test_a_chief_that_dies_before_it_says_done_and_stays_away_ends_the_ps(train):
    """Matrix row 51: each ps ends with 138 after its idle time-out; the last step is saved."""
    training = train(2, 1, flags=["--idle_timeout_secs=6"], holds_evaluation=True, is_ps_last=True)
    training.open_gates()
    training.group.wait_for_line("worker-0", "training ended")
    training.kill("worker-0")
    assert [training.group.exit_code(f"ps-{index}") for index in range(2)] == [138, 138]
    assert clusters.read_checkpoint(training.train_dir)["global_step"] == TRAIN_STEPS
