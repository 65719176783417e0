"""The search of `ps_train tune`, on speeds that a formula gives."""

from __future__ import annotations

import itertools

import pytest

from ps_train.parts.tune.search import GAIN, Choice, Trials, search

LADDERS = {"communication_period": [1, 4, 16, 64], "steps_per_execution": [1, 4, 16], "num_workers": [1, 2, 4],
           "num_ps": [1, 2, 4], "wire_dtype": ["as_is", "bfloat16"]}
FIRST = Choice(num_ps=1, num_workers=2, steps_per_execution=1, communication_period=1, wire_dtype="as_is")


def speed(choice, *, cores=2, compute=1.0, exchange=4.0, call=2.0, overhead=0.05):
    """Mini-batches per second: a worker's time for one, shared between more tasks than there are cores."""
    at_once = choice.steps_per_execution * choice.communication_period
    wire = 1.0 if choice.wire_dtype == "as_is" else 0.8
    secs = compute + wire * exchange / choice.communication_period / choice.num_ps**0.3 + call / at_once
    tasks = choice.num_workers + 0.3 * choice.num_ps
    return 1000.0 * choice.num_workers / secs / max(1.0, tasks / cores) / (1.0 + overhead * choice.num_ps)


def search_of(measure, *, has_time=lambda: True, first=FIRST, ladders=LADDERS):
    """Returns the trials of a search."""
    trials = Trials(first, measure, has_time)
    search(ladders, trials)
    return trials


@pytest.mark.parametrize("costs", [
    {}, {"compute": 50.0}, {"exchange": 0.1}, {"call": 0.0}, {"cores": 8}, {"cores": 1}, {"exchange": 50.0},
    {"cores": 8, "exchange": 50.0, "overhead": 0.0}], ids=str)
def test_the_choice_is_near_the_best_of_the_grid(costs):
    """Within two gains that were too small to take, at a third of the trials."""
    tried = []
    trials = search_of(lambda choice: tried.append(choice) or speed(choice, **costs))
    grid = [choice for values in itertools.product(*(LADDERS[name] for name in Choice._fields))
            if (choice := Choice(*values)).is_possible]
    best = max(speed(choice, **costs) for choice in grid)
    chosen, rate = trials.fastest()[0]
    assert rate == speed(chosen, **costs) >= best / GAIN**2
    assert len(set(tried)) < len(grid) / 3 and all(choice.is_possible for choice in tried)


def test_what_was_faster_once_by_chance_is_tried_again():
    """And the median decides: a choice that had one good moment does not stay the fastest."""
    lucky = FIRST._replace(num_ps=2)
    rates = {lucky: iter([200.0, 80.0, 80.0])}
    trials = search_of(lambda choice: next(rates[choice]) if choice in rates else 100.0)
    assert trials.fastest()[0] == (FIRST, 100.0) and not list(rates[lucky])


def test_a_choice_that_cannot_be_used_is_never_chosen():
    """Its speed is 0, and those behind it on its ladder are not tried."""
    tried = []
    trials = search_of(lambda choice: tried.append(choice) or (0.0 if choice.communication_period > 1 else 10.0))
    assert {choice.communication_period for choice, _ in trials.fastest()} == {1}
    assert {choice.communication_period for choice in tried} == {1, 4}


def test_without_time_the_first_choice_is_the_answer():
    """It is tried in any case, for there is no answer without it; then as many as there is time for."""
    trials = search_of(lambda choice: 10.0, has_time=lambda: False)
    assert trials.fastest() == [(FIRST, 10.0)]
    left = iter([True, True, *[False] * 100])
    assert len(search_of(lambda choice: speed(choice), has_time=lambda: next(left)).fastest()) == 3


def test_what_the_user_has_fixed_stays():
    """A ladder of one value."""
    trials = search_of(speed, ladders={**LADDERS, "num_workers": [2], "communication_period": [1]})
    assert {(choice.num_workers, choice.communication_period) for choice, _ in trials.fastest()} == {(2, 1)}
