"""TensorFlow's own SyncReplicasOptimizer as an engine, in real processes that die or finish late."""

from __future__ import annotations

import re

from ps_train.coordination.state import State

FLAGS = ["--sync_replicas", "--sync_engine=tensorflow"]
SLOWLY = ",batch_secs=0.01"  # where the gates are open


def until_both_train(training):
    """Returns when both workers take steps, with their gates open: a worker may take both gradients of an update.

    At its gate, the one that did so would keep the other from ever reaching its own.
    """
    training.open_gates()
    for name in ("worker-0", "worker-1"):
        training.group.wait_for_line(name, "examples/s")


def test_a_worker_that_finishes_later_is_let_go(train):
    """With a backup worker: it is held in its input until training is over, then pushes, and would wait for a token."""
    training = train(1, 2, flags=[*FLAGS, "--replicas_to_aggregate=1"])
    training.wait_for_gates()
    training.open_gates(0)
    training.wait_for_state(State.STOPPING)
    training.open_gates(1)
    training.assert_ends_well()
    assert "Traceback" not in training.group.logs()


def test_a_killed_worker_is_waited_for_then_named_and_the_chief_ends_with_138(train):
    """TensorFlow's class alone waits for ever, without a word."""
    training = train(1, 2, flags=FLAGS, params=SLOWLY, absent=["worker-0"], train_steps=10**6)
    for name in ("ps-0", "worker-1"):  # they have all the time to start; only the chief's is short
        training.group.wait_for_line(name, "serves at")
    training.start("worker", 0, flags=["--start_timeout_secs=8"])
    until_both_train(training)
    training.kill("worker-1")
    assert training.group.exit_code("worker-0") == 138
    log = training.group.log("worker-0")
    address = training.cluster.workers[1]
    assert f"each update waits for 2 gradients all the same; dead or never started: worker:1 {address}" in log
    assert re.search(rf"waited \d+ s for worker:1 {address}: an update needs 2 .* \[workers_missing\]", log), log


def test_without_a_chief_a_step_times_out_and_names_it(train):
    """The other worker ends with 138, after one time-out."""
    training = train(1, 2, flags=[*FLAGS, "--step_timeout_secs=12"], params=SLOWLY, train_steps=10**6)
    until_both_train(training)
    training.kill("worker-0")
    assert training.group.exit_code("worker-1") == 138
    log = training.group.log("worker-1")
    assert f"a step waited longer than --step_timeout_secs for worker:0 {training.cluster.workers[0]}" in log
    assert "[workers_missing]" in log


def test_a_killed_worker_that_is_started_again_in_time_goes_on(train):
    """The others waited for it; all end with 0."""
    # The chief comes last: alone it takes both gradients of each update, and would take all steps in 12 s.
    training = train(1, 2, flags=FLAGS, params=SLOWLY, train_steps=600, absent=["worker-0"])
    training.group.wait_for_line("worker-1", "serves at")
    training.start("worker", 0)
    until_both_train(training)
    training.kill("worker-1")
    training.group.wait_for_line("worker-0", "dead or never started: worker:1")
    training.start("worker", 1, "worker-1-again")
    training.assert_ends_well(killed=["worker-1"])
