"""Local steps when a task dies in the midst of a round, in real processes."""

from __future__ import annotations

import pytest

FLAGS = ["--communication_period=5", "--save_summaries_steps=0", "--save_model_secs=1"]


def kill_and_start_again(training, name):
    job, _, index = name.partition("-")
    training.kill(name)
    training.start(job, int(index), f"{name}-again")


def test_with_local_steps_in_async_every_worker_may_die_in_the_midst_of_a_round(train):
    """Under a bound of the staleness: a worker, then the chief is started again, and all end with 0."""
    # The bound lets a worker come to its gate while the other one waits at its own.
    training = train(1, 2, flags=[*FLAGS, "--staleness_bound=40"])
    training.wait_for_gates()
    kill_and_start_again(training, "worker-1")
    training.wait_for_gates("worker-1-again")
    kill_and_start_again(training, "worker-0")
    training.open_gates()
    training.assert_ends_well(killed=["worker-0", "worker-1"])
    assert "Traceback" not in training.group.logs()


@pytest.mark.parametrize("name", ["worker-0", "ps-1"])
def test_with_local_steps_in_sync_every_role_may_die_in_the_midst_of_a_round(train, name):
    """It is started again, and all end with 0."""
    training = train(flags=[*FLAGS, "--sync_replicas"])
    training.wait_for_gates()
    kill_and_start_again(training, name)
    training.open_gates()
    training.assert_ends_well(killed=[name])
    assert "Traceback" not in training.group.logs()
