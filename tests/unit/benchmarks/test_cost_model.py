"""The cost model finds the numbers that its runs were made with, and says what bounds a larger cluster."""

from __future__ import annotations

import pytest

from benchmarks import cost_model
from benchmarks.cost_model import Costs, Run

COSTS = Costs(worker=2.0, worker_for_each_ps=0.5, ps=0.8, ps_for_each_ps=0.2)


def run_of(num_workers, num_ps, batches_per_sec=400.0):
    """Returns a run that costs exactly that, heartbeats of 2 ms included."""
    return Run(num_workers, num_ps, 2.0 + 0.5 * num_ps, 0.8 + 0.2 * num_ps + 2.0 * num_workers / batches_per_sec,
               batches_per_sec)


def test_the_fit_finds_the_costs():
    """Of three runs; the share of the heartbeats is taken out by itself."""
    assert cost_model.fit([run_of(2, 1), run_of(4, 2), run_of(32, 4)]) == pytest.approx(COSTS)


def test_a_run_weighs_by_its_relative_error():
    """With two costs for one size, the prediction lies nearer to the smaller one than their mean."""
    runs = [run_of(2, 1), run_of(2, 2)._replace(workers_ms=2.0), run_of(2, 2)._replace(workers_ms=4.0)]
    assert 2.0 < cost_model.fit(runs).workers_ms(2) < 3.0


def test_runs_with_one_number_of_ps_are_refused():
    """They do not tell what a ps costs."""
    with pytest.raises(ValueError, match="two numbers of ps"):
        cost_model.fit([run_of(2, 1), run_of(4, 1)])


@pytest.mark.parametrize("ps_ms", [0.04, 0.05])
def test_a_run_whose_ps_did_less_than_its_heartbeats_is_refused(ps_ms):
    """Nothing is left for the mini-batches: the costs would be negative, or endless."""
    with pytest.raises(ValueError, match=r"leave out 10x2: .* 0.0[45] CPU ms .* alone take 0.05"):
        cost_model.fit([run_of(2, 1), run_of(10, 2)._replace(ps_ms=ps_ms)])


@pytest.mark.parametrize(("num_workers", "num_ps", "of_workers", "of_ps", "bound"), [
    (4, 1, 4000 / 2.5, 1 * 1000 * 0.992 / 1.0, "ps"),
    (4, 4, 4000 / 4.0, 4 * 1000 * 0.992 / 1.6, "workers"),
    (500, 64, 500_000 / 34.0, 0.0, "heartbeats"),
])
def test_the_bound_is_the_smaller_rate(num_workers, num_ps, of_workers, of_ps, bound):
    """With one core for each ps; the heartbeats of 500 workers need all of that of ps 0."""
    rates = cost_model.rates(COSTS, num_workers, num_ps, ps_cores=1.0)
    assert (rates.of_workers, rates.of_ps) == pytest.approx((of_workers, of_ps))
    assert rates.bound == bound


def test_the_table_has_each_run_beside_its_prediction():
    """A run that costs a fifth less than predicted shows that."""
    text = cost_model.table([run_of(2, 1), run_of(4, 2)._replace(workers_ms=2.5)], COSTS, {(2, 1)})
    assert "| 2, 1 | 2.50 | 2.50 (+0%) |" in text and text.count("| yes |") == 1
    assert "| 4, 2 | 2.50 | 3.00 (+20%) |" in text and text.count("| no |") == 1
