"""Sync follows the living, in real processes: workers and a chief that die or freeze while others wait for them."""

from __future__ import annotations

import pathlib
import re

import pytest


@pytest.mark.parametrize("replicas", [2, 5], ids=["backup", "several batches each"])
def test_in_sync_the_others_go_on_with_any_number_of_gradients(train, replicas):
    """Matrix row 6: with backup workers the number stays, with several batches each those of the living are left.

    Worker 1 is held up by no gate, so that worker 0 takes steps even where the others have come to theirs before its
    first one; and worker 0 by its own, so that training has not ended by then.
    """
    training = train(1, 3, flags=["--sync_replicas", f"--replicas_to_aggregate={replicas}"])
    training.open_gates(1)
    training.group.wait_for_line("worker-0", "examples/s")
    training.kill("worker-2")
    training.open_gates()
    training.assert_ends_well(killed=["worker-2"])
    log = training.group.log("worker-0")
    assert ("gradients per update from now on: 4; dead or never started: worker:2" in log) == (replicas == 5)
    assert "gradients came too late for their update and were dropped" in log


def test_a_frozen_worker_is_trained_without_and_rejoins_when_it_wakes(train):
    """What it pushes for a step that is over is dropped and counted, and the updates wait for it again."""
    training = train(1, 3, flags=["--sync_replicas"])
    training.wait_for_gates("worker-0")
    training.group.pause("worker-2")
    training.group.wait_for_line("worker-0", "gradients per update from now on: 2; dead or never started: worker:2")
    training.group.resume("worker-2")
    training.group.wait_for_line("worker-0", "gradients per update from now on: 3")
    training.open_gates()
    training.assert_ends_well()


def test_below_the_floor_training_waits_for_the_worker_and_then_goes_on(train):
    """Matrix rows 7 and 8 in sync: with both gradients required, training needs the dead one, which rejoins."""
    training = train(1, 2, flags=["--sync_replicas", "--min_replicas_to_aggregate=2"])
    training.wait_for_gates()
    training.kill("worker-1")
    training.open_gates()
    training.group.wait_for_line("worker-0", "gradients per update from now on: 2; dead or never started: worker:1")
    training.start("worker", 1, "worker-1-again")
    training.assert_ends_well(killed=["worker-1"])
    assert int(re.search(r"step (\d+) of", training.group.log("worker-1-again"))[1]) > 10


def test_below_the_floor_for_too_long_ends_the_chief_with_138(train):
    """The error names who is missing, and its address.

    Only the chief has a short time-out, and it starts last: the other tasks have all the time to start.
    """
    training = train(1, 2, flags=["--sync_replicas", "--min_replicas_to_aggregate=2"], absent=["worker-0"])
    for name in ("ps-0", "worker-1"):
        training.group.wait_for_line(name, "serves at")
    training.start("worker", 0, flags=["--start_timeout_secs=8"])
    training.wait_for_gates()
    training.kill("worker-1")
    training.open_gates()
    assert training.group.exit_code("worker-0") == 138
    assert re.search(rf"waited \d+ s for worker:1 {training.cluster.workers[1]}: an update needs 2 gradients",
                     training.group.log("worker-0"))


def test_a_chief_that_dies_in_sync_while_a_worker_waits_lets_it_go_when_it_returns(train):
    """The gradients that were on their way are stale, and both train on together."""
    training = train(1, 2, flags=["--sync_replicas"])
    training.wait_for_gates("worker-0")
    pathlib.Path(f"{training.folder}/gate.1").touch()  # worker 1 goes on, pushes, and waits
    training.kill("worker-0")
    training.start("worker", 0, "worker-0-again")
    training.open_gates()
    training.assert_ends_well(killed=["worker-0"])
