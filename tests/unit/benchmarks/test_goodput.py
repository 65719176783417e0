"""What a kill costs, from the lines of the workers; the lines themselves; the table."""

from __future__ import annotations

import pytest

from benchmarks import goodput
from benchmarks.harness import killing
from benchmarks.harness.killing import Kill, Sample


def lines(*spans):
    """Samples at 10 a second: each span is (first second, last second, first step, steps per second)."""
    return [Sample(start + tick / 10, round(step + steps_per_sec * tick / 10))
            for start, end, step, steps_per_sec in spans for tick in range(round((end - start) * 10) + 1)]


def test_without_a_kill_every_possible_step_is_taken():
    """Also where the rate is twice what it was before: a mean of before and behind is possible."""
    samples = lines((0, 40, 0, 100))
    assert killing.cost(samples, "worker", 10.0, 20.0, [(0.0, 10.0), (30.0, 40.0)], 0.5) == Kill(
        "worker", pytest.approx(1.0), pytest.approx(0.1), 0.0, 0.5)
    samples = lines((0, 10, 0, 100), (10.1, 30, 1000, 100), (30.1, 40, 3000, 300))
    kill = killing.cost(samples, "worker", 10.0, 20.0, [(0.0, 10.0), (30.0, 40.0)], 0.0)
    assert kill.goodput == pytest.approx(0.5, abs=0.01)


def test_the_loss_of_a_ps_costs_the_standstill_and_the_steps_that_are_repeated():
    """2 s without a step, and 100 steps since the checkpoint, of 2000 possible ones."""
    samples = lines((0, 10, 0, 100), (12, 40, 900, 100))
    kill = killing.cost(samples, "ps", 10.0, 20.0, [(0.0, 10.0), (30.0, 40.0)], 0.0)
    assert kill.goodput == pytest.approx(1 - (200 + 100) / 2000, abs=0.001)
    assert (kill.still_secs, kill.repeated_secs) == (pytest.approx(2.0), pytest.approx(1.0))


def test_a_worker_less_is_a_lower_rate_and_no_standstill():
    """Half of the steps for 5 of 20 s."""
    samples = lines((0, 10, 0, 100), (10.1, 15, 1005, 50), (15.1, 40, 1255, 100))
    kill = killing.cost(samples, "worker", 10.0, 20.0, [(0.0, 10.0), (30.0, 40.0)], 0.0)
    assert kill.goodput == pytest.approx(1 - 250 / 2000, abs=0.005)
    assert (kill.still_secs, kill.repeated_secs) == (pytest.approx(0.1), 0.0)


def test_a_training_that_does_not_come_back_has_no_goodput():
    """What was trained before the kill does not count."""
    samples = lines((0, 10, 0, 100))
    kill = killing.cost(samples, "ps", 10.0, 20.0, [(0.0, 10.0)], 0.0)
    assert (kill.goodput, kill.still_secs) == (0.0, 20.0)


def test_the_steps_of_each_peer_are_read_from_its_lines(tmp_path):
    """ps_train's, the classic loop's, and that of torchrun's workers; each names its worker."""
    log = tmp_path / "tasks" / "worker-1.log"
    log.parent.mkdir()
    log.write_text("step 12 of 1000000000  loss 0.3  1.0 steps/s  10 examples/s\n"
                   "1.5: Worker 1: training step 7 done (global step: 13)\nstep 14 of all\nstep 15 of")
    cluster = killing.KilledCluster({}, tmp_path, 1)
    cluster.train_for(0.0)
    cluster.look_until(lambda: bool(cluster.samples), "lines")
    assert [sample.step for sample in cluster.samples] == [12, 13, 14]


def test_the_table_has_a_row_for_each_job_and_what_is_wanted():
    """Medians, least and greatest; a goal at one kill a minute only."""
    kills = [Kill("ps", 0.9, 2.0, 0.5, 0.0), Kill("worker", 0.96, 0.1, 0.0, 0.1), Kill("worker", 0.98, 0.1, 0.0, 0.1)]
    rows = goodput.table({"ps_train, once a minute": kills, "ps_train, once in 15 s": kills[:1]}).splitlines()[2:]
    assert [[cell.strip() for cell in row.split("|")[1:5]] for row in rows] == [
        ["ps_train, once a minute", "worker", "2", "0.970 (0.960 to 0.980)"],
        ["ps_train, once a minute", "ps", "1", "0.900"], ["ps_train, once in 15 s", "ps", "1", "0.900"]]
    assert [row.split("|")[-2].strip() for row in rows] == ["0.97", "0.95", ""]
