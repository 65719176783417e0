"""A ps that dies, freezes or is left alone: real processes, killed while training is held at a gate."""

from __future__ import annotations

import re

import pytest

from tests.training import GATE_BATCH

SLOWLY = ",batch_secs=0.01"  # of an endless training


# For async see the packed variables below (ps 1) and system/graph/test_queues.py (ps 0).
@pytest.mark.parametrize("dead", [0, 1])
def test_after_the_death_of_a_ps_all_continue_from_one_checkpoint(train, dead):
    """Matrix rows 12 and 13: the chief restores both ps from the same checkpoint, and says so once."""
    training = train(flags=["--save_model_secs=1", "--sync_replicas"])
    training.group.wait_for_line("worker-0", "saved ")
    training.wait_for_gates()
    training.kill(f"ps-{dead}")
    training.start("ps", dead, f"ps-{dead}-again")
    training.open_gates()
    training.assert_ends_well(killed=[f"ps-{dead}"])
    log = training.group.log("worker-0")
    assert len(re.findall(r"a ps has lost its parameters at about step \d+: restoring all ps from", log)) == 1, log
    assert "Traceback" not in log + training.group.log("worker-1")


def test_what_is_packed_is_not_lost(train):
    """With many small variables, whose values are in a packed one: after a new chief, then after the loss of a ps.

    A step takes a tenth of the error. So after those up to the gate the loss is below 0.1, where it began with 14; had
    it begun anew, it would be above 1 when ten more steps are taken, and told.
    """
    training = train(params=",num_parts=40",
                     flags=["--save_model_secs=1", "--optimizer=sgd", "--learning_rate=0.00125"])
    training.wait_for_gates()
    training.group.wait_for_line("worker-0", f"model.ckpt-{2 * GATE_BATCH}")
    training.kill("worker-0")
    training.start("worker", 0, "worker-0-again")
    training.wait_for_gates("worker-0-again")
    num_lines = training.group.log("worker-0-again").count("examples/s")
    training.kill("ps-1")
    training.start("ps", 1, "ps-1-again")
    training.open_gates(0)  # the other worker might else take all steps before the chief takes ten and tells its loss
    training.group.wait_for_line("worker-0-again", "examples/s", number=num_lines + 1)
    training.open_gates(1)
    training.assert_ends_well(killed=["worker-0", "ps-1"])
    assert "Traceback" not in training.group.logs()
    log = training.group.log("worker-0-again")
    assert log.count("a ps has lost its parameters at about step") == 1
    for part in log.split("restoring all ps from"):
        losses = [float(loss) for loss in re.findall(r"loss ([\d.e+-]+)", part)]
        assert losses and losses[0] < 0.1, losses


def test_a_ps_that_dies_before_the_first_checkpoint_is_told_loudly(train):
    """Matrix row 14: training starts again from new parameters."""
    training = train(flags=["--save_model_secs=0"])
    training.wait_for_gates()
    training.kill("ps-1")
    training.start("ps", 1, "ps-1-again")
    training.open_gates()
    training.assert_ends_well(killed=["ps-1"])
    assert "NO CHECKPOINT was saved before: STARTING AGAIN" in training.group.log("worker-0")


# For sync see row 18 in system/test_faults.py: to a worker, a link that delivers nothing is a frozen ps.
def test_a_frozen_ps_is_noticed_and_training_goes_on_when_it_wakes(train):
    """Matrix row 15: the step times out, and the same processes train on.

    No gate may hold up the input, which would let the step time out as well; so training is ended by a signal.
    """
    training = train(flags=["--step_timeout_secs=2"], params=SLOWLY, train_steps=10**6)
    training.open_gates()
    training.wait_for_gates()
    training.group.pause("ps-1")
    training.group.wait_for_line("worker-0", "lost the session")
    training.group.resume("ps-1")
    for name in ("worker-0", "worker-1"):
        training.group.wait_for_line(name, "examples/s", number=training.group.log(name).count("examples/s") + 2)
    training.stop()


def test_a_ps_that_stays_frozen_ends_the_workers_with_138(train):
    """Matrix row 16: within the step and the start time-out, naming whom they waited for.

    The workers start one by one; none needs its short time-out to wait for another one's start.
    """
    training = train(flags=["--step_timeout_secs=1"], params=SLOWLY, start_timeout_secs=8, train_steps=10**6,
                     absent=["worker-0", "worker-1"])
    training.open_gates()
    for index in range(2):
        training.group.wait_for_line(f"ps-{index}", "serves at")
    for index in range(2):
        training.start("worker", index)
        training.wait_for_gates(f"worker-{index}")
    training.group.pause("ps-1")
    codes = [training.group.exit_code(f"worker-{index}") for index in range(2)]
    assert codes == [138, 138]
    assert re.search(rf"ps:1 {training.cluster.ps[1]}.*\[timed_out\]\n", training.group.log("worker-0"))


def test_a_ps_ends_when_all_workers_have_died(train):
    """Matrix row 49: exit code 138 after the idle time-out."""
    training = train(1, 1, flags=["--idle_timeout_secs=6"], is_ps_last=True)
    training.wait_for_gates()
    training.kill("worker-0")
    assert training.group.exit_code("ps-0") == 138
    assert "[no_workers]" in training.group.log("ps-0")


def test_a_ps_that_dies_during_the_evaluation_is_not_needed_any_more(train):
    """Matrix row 50: everything is saved; the chief evaluates and ends with 0. It asks no ps that has ended."""
    training = train(1, 2, holds_evaluation=True)
    training.open_gates()
    training.group.wait_for_line("worker-0", "training ended")
    assert training.group.exit_code("worker-1") == 0
    training.kill("ps-0")
    training.open_eval_gate()
    training.assert_ends_well(killed=["ps-0"])
    log = training.group.log("worker-0")
    assert re.search(r"After 20\d training", log)
    assert re.search(r"cannot read how many steps each worker took: ps:0 \S+ has ended", log), log
