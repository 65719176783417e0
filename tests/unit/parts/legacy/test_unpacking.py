"""A function that returned fewer values before returns as many as its caller takes apart."""

import pytest

from ps_train.parts.legacy import unpacking


def _function():
    return unpacking.as_before(("outputs", "state", "lengths"), 2)


def test_two_values_are_taken_apart_as_before():
    outputs, state = _function()
    [again, _] = _function()
    assert (outputs, state, again) == ("outputs", "state", "outputs")


def test_all_values_are_there_for_any_other_statement():
    outputs, state, lengths = _function()
    assert (outputs, state, lengths) == _function() == tuple(_function()[index] for index in range(3))
    first, *others = _function()
    assert (first, others) == ("outputs", ["state", "lengths"])
    with pytest.raises(ValueError, match="not enough values"):
        _1, _2, _3, _4 = _function()
