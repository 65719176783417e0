"""Plan and results on ps 0."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from ps_train.parts.evaluation_by_workers import exchange as exchanges
from ps_train.parts.evaluation_by_workers.exchange import ResultExchange, Share, ShareResult
from tests.tensorflow_mode import tf  # noqa: F401 (in the mode that a task uses)


def make_result(seed):
    """Returns a result with sums of several types and shapes."""
    rng = np.random.default_rng(seed)
    return ShareResult(7, seed, rng.normal(), {"a/count": rng.integers(0, 2**60, 5), "total": np.array(rng.normal())})


def assert_equal(result, expected):
    """Compares all fields, to the last digit."""
    assert result[:3] == expected[:3]
    assert set(result.sums) == set(expected.sums)
    for name, value in expected.sums.items():
        np.testing.assert_array_equal(result.sums[name], value)
        assert result.sums[name].dtype == value.dtype


@pytest.fixture
def views(start_servers):
    """The exchange as two workers see it."""
    cluster = start_servers(1, 2)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(
            ResultExchange(cluster.target("worker", index), cluster.view("worker", index)))) for index in range(2)]


def test_a_plan_and_its_results_reach_the_other_worker(views):
    """A worker finds its share by its claim, and the chief the result as it was delivered."""
    chief, worker = views
    assert worker.plan() is None
    plan = exchanges.new_plan([Share(0, 2**61 + 1), Share(3, 5)])
    chief.open(plan)
    assert worker.plan() == plan
    assert (plan.share_of(5), plan.share_of(2**61 + 1), plan.share_of(6)) == (1, 0, None)
    assert chief.results(plan, [0, 1]) == {}
    worker.deliver(plan, 1, make_result(1))
    [(share, result)] = chief.results(plan, [0, 1]).items()
    assert share == 1
    assert_equal(result, make_result(1))
    assert chief.results(plan, [0]) == {}


def test_a_result_of_an_earlier_plan_does_not_count(views):
    """Neither one from before the new plan, nor one that is written late over a result of the new plan."""
    chief, worker = views
    first, second = (exchanges.new_plan([Share(0, 1), Share(1, 2)]) for _ in range(2))
    chief.open(first)
    worker.deliver(first, 1, make_result(1))
    chief.open(second)
    assert chief.results(second, [1]) == {}
    worker.deliver(second, 1, make_result(2))
    worker.deliver(first, 1, make_result(1))
    assert chief.results(second, [1]) == {}
    worker.deliver(second, 1, make_result(2))
    assert_equal(chief.results(second, [0, 1])[1], make_result(2))
