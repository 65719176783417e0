"""Tasks that die while ps 0 hands out ranges of the input: real processes, and two ledgers of what was trained on."""

from __future__ import annotations

import signal

import pytest

from tests.sharded import NUM_EPOCHS, NUM_LINES, Sharded


@pytest.fixture
def sharded(tmp_path, start_process):
    """A function that starts a Sharded, whose flags it takes."""
    return lambda *flags, **options: Sharded(tmp_path, start_process, flags, **options)


@pytest.mark.parametrize("mode", [[], ["--sync_replicas"]], ids=["async", "sync"])
def test_each_line_counts_once_an_epoch_when_workers_die(sharded, mode):
    """A worker stays away until its ranges are given to the chief; the chief is started again at once."""
    training = sharded(*mode, held=[0, 1])
    training.wait_until_held(0, 1)
    training.kill("worker-1")
    training.group.wait_for_line("worker-0.1", "worker:1: no heartbeat for 3 s; reassigning its ranges")
    training.release(1)
    training.start("worker-1")
    if mode:  # it needs the chief for a step
        training.wait_until_begun(1)
    else:  # the chief is held, which leaves data for the other one
        training.group.wait_for_line("worker-1.2", "step ")
    training.release(0)
    training.group.wait_for_line("worker-1.2", "step ")
    training.kill("worker-0")
    training.start("worker-0")
    training.assert_ends_well()
    # On a busy machine it comes back later than after the three seconds, and the other one has its ranges by then.
    assert ("an earlier process or session of this worker held ranges" in training.group.log("worker-0.2")
            or "worker:0: no heartbeat for 3 s" in training.group.log("worker-1.2"))
    training.assert_counts_fit(training.saved_counts())


def test_after_the_death_of_a_ps_the_data_goes_back_with_parameters_and_rows(sharded):
    """The position and the counts in the last checkpoint fit, also if training had gone on after the restored one.

    It is that of two tables, of which one is large, and training goes on during a save. Each range that was in hand
    then may count once more.
    """
    training = sharded("--save_model_steps=20", batch_secs=0.02, num_ps=2, params=",rows_per_line=500")
    training.wait_until_saved(40)
    training.kill("ps-0")
    training.start("ps-0")
    training.assert_ends_well()
    assert "ranges are done; reassigning those that workers held during the save: " in training.group.log("worker-0.1")
    counts = training.saved_counts()
    training.assert_counts_fit(counts)
    training.assert_counts_fit(training.saved_rows())
    assert training.seen().total() >= counts.total()  # equal, if the ps died just after a checkpoint


def test_a_stopped_worker_returns_its_ranges(sharded):
    """The other one gets them at once, and not after the heartbeat time-out."""
    training = sharded(beat_timeout_secs=60, held=[0, 1])
    training.wait_until_held(0, 1)
    training.group.signal("worker-1.1", signal.SIGTERM)
    training.group.wait_until_heard("worker-1.1")
    training.release(0, 1)
    assert training.group.exit_code("worker-1.1") == 143
    assert "returning ranges to the queue" in training.group.log("worker-1.1")
    del training.lives["worker-1"]
    training.assert_ends_well()
    seen = training.seen()
    assert min(seen[line] for line in range(NUM_LINES)) == NUM_EPOCHS
    assert seen.total() < NUM_EPOCHS * NUM_LINES + 6 * 51
