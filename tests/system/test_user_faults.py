"""What the user's own code and data do wrong on one task of a real cluster, and what becomes of the others."""

from __future__ import annotations

import re

import pytest

from tests import clusters
from tests.training import MODES


def test_a_fault_in_one_workers_code_leaves_the_others_alone(train):
    """Matrix row 40: async; that worker shows the user's traceback and exits 1, before it opens a socket."""
    faults = {"worker-1": "input_fn", "worker-2": "model_fn"}
    training = train(1, 3, flags=["--end_timeout_secs=3"], faults=faults)
    training.open_gates()
    for name, fault in faults.items():
        assert training.group.exit_code(name) == 1
        log = training.group.log(name)
        assert re.search(rf"tiny.py\", line \d+, in {fault}\n", log)
        assert f"RuntimeError: a fault in the user's {fault}" in log
        assert "serves at" not in log
    training.assert_ends_well(killed=faults)


def test_a_fault_in_one_workers_data_in_mid_training_leaves_the_others_alone(train):
    """Matrix row 40: async; it exits 1, and the chief does not wait for it at the end."""
    training = train(1, 2, flags=["--end_timeout_secs=3600"], faults={"worker-1": "step"})
    training.wait_for_gates()
    training.open_gates(1)
    assert training.group.exit_code("worker-1") == 1
    training.open_gates()
    training.assert_ends_well(killed=["worker-1"])
    assert "RuntimeError: a fault in the user's data" in training.group.log("worker-1")


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_fault_in_the_chiefs_data_ends_all(train, mode):
    """Matrix row 40: the chief shows it and exits 1; no other task can save, so the others end with 138 at once."""
    training = train(1, 2, flags=[*mode, "--idle_timeout_secs=3600"], faults={"worker-0": "step"})
    training.wait_for_gates()
    training.open_gates(0)
    assert training.group.exit_code("worker-0") == 1
    training.open_gates(1)  # not before: it might take all steps that are left before it hears of the fault
    codes = training.group.wait()
    assert codes == {"ps-0": 138, "worker-0": 1, "worker-1": 138}
    assert "RuntimeError: a fault in the user's data" in training.group.log("worker-0")
    for name in ("ps-0", "worker-1"):
        assert "[chief_failed]" in training.group.log(name), name


def test_a_fault_in_the_evaluation_ends_all_but_keeps_what_was_saved(train):
    """It does not end in time: the chief exits 1 and says what to look at, each ps ends with 138 and does not idle."""
    training = train(2, 2, flags=["--eval_timeout_secs=1", "--idle_timeout_secs=3600"], holds_evaluation=True)
    training.open_gates()
    assert training.group.wait() == {"ps-0": 138, "ps-1": 138, "worker-0": 1, "worker-1": 0}
    log = training.group.log("worker-0")
    assert re.search(r"ps_train: .* \S+model.ckpt-20\d;.*\[eval_timed_out\]\n", log)
    assert clusters.read_checkpoint(training.train_dir)["global_step"] >= training.train_steps


def test_a_dataset_shorter_than_a_batch_is_trained_on_once(train):
    """Matrix row 39: ten examples for each worker, batches of sixteen, no repetition: one batch, and all exit 0.

    In sync; for async see cluster/training/test_recovery.py.
    """
    # So long a time-out that no update is made without a worker that only starts late.
    training = train(1, 2, flags=MODES["sync"], params=",num_examples=20,repeat=false", beat_timeout_secs=60)
    training.open_gates()
    assert set(training.group.wait().values()) == {0}
    assert "the data ran out; this worker did 1 steps" in training.group.log("worker-0")
    assert clusters.read_checkpoint(training.train_dir)["global_step"] == 1


def test_a_worker_without_any_data_takes_no_step(train):
    """Matrix row 39: no step is taken, the first parameters are saved, and all exit 0; in sync no worker waits."""
    training = train(1, 2, flags=["--sync_replicas"], params=",num_batches=0")
    assert set(training.group.wait().values()) == {0}
    assert "this worker took no step: the data ran out" in training.group.log("worker-0")
    assert clusters.read_checkpoint(training.train_dir)["global_step"] == 0


def test_a_worker_with_another_learning_rate_is_refused_and_the_others_train_on(train):
    """Matrix row 45: it exits 2 and names the difference; also a chief, which then comes back as it was."""
    training = train(1, 2)
    training.wait_for_gates()
    for index in (1, 0):
        training.kill(f"worker-{index}")
        training.start("worker", index, f"other-{index}", ["--learning_rate=0.5"])
        assert training.group.exit_code(f"other-{index}") == 2
        assert re.search(rf"ps_train: worker:{index} .*--learning_rate: here 0.5.*\[worker_does_not_fit\]\n",
                         training.group.log(f"other-{index}"))
        training.start("worker", index, f"again-{index}")
        training.group.wait_for_line(f"again-{index}", "examples/s")
    training.open_gates()
    training.assert_ends_well(killed=[f"{name}-{index}" for name in ("worker", "other") for index in (0, 1)])
