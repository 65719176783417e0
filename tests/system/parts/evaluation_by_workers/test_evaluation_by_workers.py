"""Tasks that are killed while all workers evaluate: the result is that of an evaluation without faults."""

from __future__ import annotations

import re

import numpy as np

FLAGS = ["--evaluate_with=workers", "--learning_rate=0.01"]


def begin(train, num_ps=1, num_workers=3):
    """Returns a training whose workers have each begun to evaluate a share, and wait at the gate of its data."""
    training = train(num_ps, num_workers, flags=FLAGS, holds_evaluation=True)
    training.open_gates()
    for index in range(num_workers):
        training.group.wait_for_line(f"worker-{index}", f"of {num_workers}", number=1)
        training.group.wait_for_line(f"worker-{index}", "evaluating share")
    return training


def assert_evaluated(training, chief="worker-0"):
    """The chief reports the metrics of all 640 examples on the weights in the checkpoint."""
    from tests import clusters  # noqa: PLC0415 (it imports TensorFlow, which the processes need and this one does not)

    saved = clusters.read_checkpoint(training.train_dir)
    features = np.random.default_rng(0).normal(size=(640, 4)).astype(np.float32)
    residuals = features @ saved["weights"] - features @ np.array([1.0, -2.0, 3.0, 0.5], np.float32)
    log = training.group.log(chief)
    assert f"After {saved['global_step']} training steps, on 640 held-out examples:" in log
    [loss_sum] = re.findall(r"loss = (\S+) in sum", log)
    assert np.isclose(float(loss_sum), np.sum(residuals**2), rtol=1e-4, atol=1e-9)
    assert f"  error = {np.mean(np.abs(residuals)):.4f}" in log


def test_the_share_of_a_worker_that_dies_is_evaluated_by_the_chief(train):
    """The chief names it, and counts every example once."""
    training = begin(train)
    training.kill("worker-2")
    training.open_eval_gate()
    training.assert_ends_well(killed=["worker-2"])
    assert "worker:2 has died or left: its share is evaluated here" in training.group.log("worker-0")
    assert_evaluated(training)


def test_a_ps_that_dies_in_the_evaluation_is_restored_for_another_one(train):
    """The chief restores the last checkpoint when the ps is back, and all workers evaluate again."""
    training = begin(train, num_ps=2, num_workers=2)
    training.kill("ps-1")
    training.open_eval_gate()
    training.start("ps", 1, "ps-1-again")
    training.assert_ends_well(killed=["ps-1"])
    assert "the evaluation was lost" in training.group.log("worker-0")
    assert_evaluated(training)


def test_a_chief_that_dies_in_the_evaluation_begins_another_one(train):
    """The other worker waits for the chief that comes in its place, and takes part again."""
    training = begin(train, num_workers=2)
    training.kill("worker-0")
    training.start("worker", 0, "worker-0-again")
    training.group.wait_for_line("worker-0-again", "evaluating share")
    training.open_eval_gate()
    training.assert_ends_well(killed=["worker-0"])
    assert training.group.log("worker-1").count("evaluating share") == 2
    assert_evaluated(training, "worker-0-again")
