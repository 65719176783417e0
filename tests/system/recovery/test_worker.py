"""A worker that dies, comes back or never comes: real processes, killed while training is held at a gate.

Each worker trains so many mini-batches, then waits in its input until its gate is opened; faults happen meanwhile.
"""

from __future__ import annotations

import json
import re

from ps_train.coordination.state import State
from tests.training import GATE_BATCH


def test_a_worker_that_dies_does_not_stop_the_others(train):
    """Matrix rows 5 and 48: the chief trains to the end, and waits for no dead one; for sync see test_sync.py."""
    training = train(1, 2)
    training.wait_for_gates()
    training.kill("worker-1")
    training.open_gates()
    training.assert_ends_well(killed=["worker-1"])


def test_a_worker_that_never_comes_is_told_once_and_not_needed(train):
    """Matrix row 2: the others train to the end; the chief waits for it a while, and says so.

    Worker 1 ends first, while the chief waits at its gate: so only worker 2 is missing, however slow the machine is.
    """
    training = train(1, 3, flags=["--end_timeout_secs=1"], absent=["worker-2"])
    training.wait_for_gates("worker-0")
    training.open_gates(1)
    assert training.group.exit_code("worker-1") == 0
    training.open_gates(0)
    training.assert_ends_well()
    log = training.group.log("worker-0")
    assert log.count("worker:2") == 1, log
    assert f"ending without worker:2 {training.cluster.workers[2]}: not finished" in log


def test_a_restart_storm_leaves_a_ps_as_it_was(train):
    """Matrix rows 8 and 9: a worker dies and comes back five times; neither threads nor memory of the ps add up.

    Each time it takes steps again, from the global step that the others have reached.
    """
    training = train(1, 2)
    training.wait_for_gates()
    name, names, grown = "worker-1", [], []
    for number in range(5):
        training.kill(name)
        names.append(name)
        name = f"worker-1-again-{number}"
        training.start("worker", 1, name)
        training.wait_for_gates(name)
        assert int(re.search(r"step (\d+) of", training.group.log(name))[1]) > GATE_BATCH
        grown.append((training.group.status("ps-0", "Threads"), training.group.status("ps-0", "VmRSS")))
    training.open_gates()
    training.assert_ends_well(killed=names)
    (first_threads, first_kib), (last_threads, last_kib) = grown[0], grown[-1]
    assert last_threads <= first_threads + 8, grown  # gRPC makes and ends some as it likes
    assert last_kib <= first_kib + 32 * 1024, grown


def test_a_worker_that_dies_after_the_last_step_keeps_nobody(train):
    """Matrix row 51: it cannot say any more that it has finished; all others end with 0."""
    training = train(1, 2)
    training.wait_for_gates()
    training.open_gates(0)
    training.wait_for_state(State.STOPPING)
    training.kill("worker-1")
    training.assert_ends_well(killed=["worker-1"])


def test_a_worker_that_comes_back_to_a_training_that_has_ended_ends(train):
    """Matrix row 51: with 0 once it has waited, the chief as well; one that is to take further steps exits with 138.

    An orchestrator would otherwise start a lost worker again and again.
    """
    training = train(1, 2)
    training.open_gates()
    training.assert_ends_well()
    noted = json.loads((training.train_dir / "journal.jsonl").read_text().splitlines()[-1])
    patience = "--start_timeout_secs=2"
    for index, name, steps, exit_code in ((1, "worker-again", 1, 0), (1, "worker-for-more", 10, 138),
                                          (0, "chief-again", 1, 0)):
        training.start("worker", index, name, [patience, f"--train_steps={steps * training.train_steps}"])
        assert training.group.exit_code(name) == exit_code, training.group.logs()
        assert (f"has ended at step {noted['step']}" in training.group.log(name)) == (exit_code == 0)
    again = json.loads((training.train_dir / "journal.jsonl").read_text().splitlines()[-1])
    assert {**again, "time": noted["time"]} == noted, "the training has the same end as before"
