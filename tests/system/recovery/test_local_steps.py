"""Local steps when a task dies in the midst of a round, in real processes."""

from __future__ import annotations

import pytest

# The bound lets a worker come to its gate while the other one waits at its own.
ROUNDS = {"async": ["--staleness_bound=40"], "sync": ["--sync_replicas"]}


@pytest.mark.parametrize(("name", "mode"), [("worker-1", "async"), ("worker-0", "async"), ("worker-0", "sync"),
                                            ("ps-1", "sync")])
def test_with_local_steps_every_role_may_die_in_the_midst_of_a_round(train, name, mode):
    """It is started again and all end with 0; in async under a bound of the staleness."""
    training = train(flags=["--communication_period=5", "--save_summaries_steps=0", "--save_model_secs=1",
                            *ROUNDS[mode]])
    training.wait_for_gates()
    training.kill(name)
    job, _, index = name.partition("-")
    training.start(job, int(index), f"{name}-again")
    training.open_gates()
    training.assert_ends_well(killed=[name])
    assert "Traceback" not in training.group.logs()
