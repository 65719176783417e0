"""HParams: values, their types, and how they are parsed."""

from __future__ import annotations

import json

import pytest

from ps_train.parts.legacy.names.hparams import HParams, parse_values


def _made():
    return HParams(rate=0.1, units=100, cells=["a", "b"], decays=[0.5, 0.25], is_fast=True, name="net", none=None)


@pytest.mark.parametrize(("text", "changed"), [
    ("", {}),
    ("rate=1", {"rate": 1.0}),
    ("rate=-.5e-3,units=7", {"rate": -0.0005, "units": 7}),
    ("units=1,units=2", {"units": 2}),
    (" units = 3 , name=a_b", {"units": 3, "name": "a_b"}),
    ("is_fast=false", {"is_fast": False}),
    ("is_fast=0", {"is_fast": False}),
    ("cells=[x,y,z]", {"cells": ["x", "y", "z"]}),
    ("decays=[1, 2]", {"decays": [1.0, 2.0]}),
    ("decays[1]=4", {"decays": [0.5, 4.0]}),
    ("decays=[1,2],units=3", {"decays": [1.0, 2.0], "units": 3}),
    ("name=", {"name": ""}),
])
def test_parse_sets_values_of_the_type_of_the_default(text, changed):
    """Each pair changes one value; the others stay."""
    assert _made().parse(text).values() == {**_made().values(), **changed}
    assert all(type(_made().parse(text).values()[name]) is type(value) for name, value in changed.items())


@pytest.mark.parametrize("text", [
    "rate", "rate=fast", "units=0.5", "is_fast=maybe", "unknown=1", "units=[1,2]", "cells=x", "=1", "rate=1 2=3"])
def test_parse_refuses_other_types_and_names(text):
    """A value of another type, an unknown name and a malformed pair are ValueErrors."""
    with pytest.raises(ValueError, match=r"\S"):
        _made().parse(text)


def test_parse_values_may_ignore_unknown_names():
    """As some scripts share one flag between programs."""
    assert parse_values("a=1,b=2", {"b": int}, ignore_unknown=True) == {"b": 2}


def test_a_value_is_an_attribute_a_member_and_an_item_of_values():
    """Each way to read a value gives the same."""
    params = _made()
    assert (params.units, params.get("units"), "units" in params, params.values()["units"]) == (100, 100, True, 100)
    assert (params.get("unknown", 5), "unknown" in params) == (5, False)


def test_values_can_be_added_replaced_and_removed():
    """set_hparam keeps the type, also from JSON and dictionaries."""
    params = HParams()
    params.add_hparam("size", 3)
    params.set_hparam("size", 4.0)
    assert params.size == 4 and isinstance(params.size, int)
    assert params.override_from_dict({"size": 5}).size == 5
    assert params.parse_json(json.dumps({"size": 6})).to_json() == '{"size": 6}'
    params.del_hparam("size")
    assert params.values() == {}


def test_a_name_is_given_once_and_never_that_of_a_method():
    """`values` as a name would hide the method."""
    params = HParams(size=3)
    for name in ("size", "values"):
        with pytest.raises(ValueError, match=f"reserved: {name}"):
            params.add_hparam(name, 1)


def test_a_list_may_not_be_empty():
    """It would have no type."""
    with pytest.raises(ValueError, match="cannot be empty: sizes"):
        HParams(sizes=[])


def test_a_value_may_be_any_object():
    """A function or another HParams is replaced by one of its type, as it is."""
    params = HParams(activation=len, inner=HParams(a=1))
    other = HParams(a=2)
    params.set_from_map({"activation": max, "inner": other})
    assert params.activation is max and params.inner is other
    with pytest.raises(ValueError, match="Could not parse hparam 'activation'"):
        params.set_hparam("activation", 3)


def test_text_of_values_can_be_parsed_again():
    """As in 1.13 to 1.15."""
    values = HParams(rate=0.5, layers=[8, 4], name="a")
    assert str(values) == "rate=0.5,layers=[8, 4],name=a"
    assert HParams(rate=0.0, layers=[1, 1], name="b").parse(str(values)).values() == values.values()
    assert repr(values) == "HParams([('layers', [8, 4]), ('name', 'a'), ('rate', 0.5)])"
