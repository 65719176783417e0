"""Estimators under `tf.distribute` strategies, in clusters of real processes; the numbers are those of numpy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.system.parts.legacy.scripts import SCRIPTS, ScriptCluster

STEPS = 5


def losses_of(points, steps=STEPS):
    """Returns the loss before each step of gradient descent at 0.01: mean((w x - 3 x)^2), from w = 0."""
    weight, losses = 0.0, []
    for _ in range(steps):
        losses.append(np.mean((weight * points - 3 * points) ** 2))
        weight -= 0.01 * np.mean(2 * (weight * points - 3 * points) * points)
    return losses


def logged_losses(log):
    """Returns the losses that the hook of an Estimator has logged."""
    return [float(loss) for loss in re.findall(r"loss = ([\d.]+), step = \d+", log)]


@pytest.mark.parametrize(("num_ps", "flags"), [(0, []), (0, ["--keras"]), (1, ["--strategy=mirrored"])])
def test_the_workers_train_one_model_on_all_of_their_shares(start_process, tmp_path, num_ps, flags):
    """Gradients are averaged, and a step of all workers counts once; a ps, which has nothing to do, and an evaluator
    that TF_CONFIG does not list, end, too."""
    cluster = ScriptCluster(start_process, "strategy_script.py", [f"--model_dir={tmp_path}/model", *flags],
                            num_ps=num_ps, evaluator=True)
    cluster.assert_ends_well()
    log = start_process.log("worker-0")
    np.testing.assert_allclose(logged_losses(log), losses_of(np.arange(1, 5)), rtol=1e-5)
    assert "worker 0 ends, 2 replicas" in log
    from tests import clusters  # noqa: PLC0415 (it imports TensorFlow, which the processes need and this one does not)

    saved = clusters.read_checkpoint(tmp_path / "model")
    assert [value for name, value in saved.items() if "global_step" in name] == [STEPS]
    assert f"Saving dict for global step {STEPS}" in start_process.log("evaluator-0")


def test_launch_takes_workers_without_a_ps_and_a_chief(start_process, tmp_path):
    """Its TF_CONFIG lists the evaluator, and each worker tells it that it has joined the others."""
    start_process.start("launch", ["launch", "run", "--num_ps=0", "--chief_job=chief", "--evaluator",
                                   str(SCRIPTS / "strategy_script.py"), f"--model_dir={tmp_path}/model"])
    assert start_process.exit_code("launch") == 0
    log = start_process.log("launch")
    assert "chief 0 ends, 2 replicas" in log and "worker 0 ends, 2 replicas" in log


def test_a_worker_ends_when_another_has_died(start_process, tmp_path):
    """It names it, instead of waiting for its part of a step for ever; started again, all continue.

    The step either waits for the dead worker, or fails, as the connection is reset: TensorFlow does both.
    """
    flags = [f"--model_dir={tmp_path}/model", "--max_steps=1000"]
    cluster = ScriptCluster(start_process, "strategy_script.py", [*flags, "--die_at=3"], num_ps=0)
    assert [start_process.exit_code(name) for name in ("worker-1", "worker-0")] == [-9, 138]
    last_line = start_process.log("worker-0").splitlines()[-1]
    assert "worker:1" in last_line and last_line.endswith("[task_lost]")
    for job, index in cluster.tasks:
        cluster.start(job, index, f"{job}-{index} again", [flags[0], f"--max_steps={STEPS}"])
    assert [start_process.exit_code(f"worker-{index} again") for index in (0, 1)] == [0, 0]
    np.testing.assert_allclose(
        logged_losses(start_process.log("worker-0 again")), losses_of(np.arange(1, 5))[2:], rtol=1e-5)


def test_launch_starts_a_killed_worker_again(start_process, tmp_path):
    """Issues: the ps had ended, so it was not; nor could it train with a worker that was still in the old session."""
    start_process.start("launch", [
        "launch", "run", "--num_workers=2", "--max_restarts=1", "--beat_timeout_secs=4",
        str(SCRIPTS / "strategy_script.py"), f"--model_dir={tmp_path}/model", "--die_at=3"])
    assert start_process.exit_code("launch") == 0
    log = start_process.log("launch")
    assert "worker:1 ended with 137; starting it again" in log
    assert "worker 0 ends, 2 replicas" in log and "worker 1 ends, 2 replicas" in log


def test_a_step_ends_when_another_worker_hangs(start_process, tmp_path):
    """Its port answers all the time."""
    cluster = ScriptCluster(
        start_process, "strategy_script.py", [f"--model_dir={tmp_path}/model", "--max_steps=1000000"], num_ps=0)
    cluster.group.wait_for_line("worker-0", "step = 20")
    cluster.group.pause("worker-1")
    assert start_process.exit_code("worker-0") == 138
    assert start_process.log("worker-0").splitlines()[-1].endswith("[workers_missing]")
    cluster.group.kill("worker-1")


def test_a_worker_that_serves_does_not_take_a_dead_chief_for_a_good_end(start_process, tmp_path):
    """Issue: it ended with 0."""
    ScriptCluster(start_process, "strategy_script.py", [
        f"--model_dir={tmp_path}/model", "--strategy=mirrored", "--max_steps=1000", "--die_at=3", "--dies=0"], num_ps=0)
    assert [start_process.exit_code(f"worker-{index}") for index in (0, 1)] == [-9, 138]
    assert start_process.log("worker-1").splitlines()[-1].endswith("[task_lost]")


def test_the_end_of_the_input_ends_all_tasks_well(start_process, tmp_path):
    """The last checkpoint is saved, and a ps and an evaluator learn of the end."""
    cluster = ScriptCluster(start_process, "strategy_script.py", [f"--model_dir={tmp_path}/model", "--ends"],
                            evaluator=True)
    cluster.assert_ends_well()
    assert f"Saving dict for global step {STEPS}" in start_process.log("evaluator-0")
    assert "training has ended before max_steps; exporting" in start_process.log("evaluator-0")
