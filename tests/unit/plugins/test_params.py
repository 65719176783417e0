"""How --params reaches the plug-ins."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_train.errors import ConfigError
from ps_train.plugins.contracts import Dataset, Model
from ps_train.plugins.params import resolve_params
from tests.errors import raises


def _model(**defaults):
    return Model("m", lambda **arguments: None, defaults)


def _dataset(**defaults):
    return Dataset("d", lambda **arguments: None, lambda params: None, defaults)


@pytest.mark.parametrize(("text", "model_params", "dataset_params"), [
    ("", {"rate": 0.5, "units": 3}, {"split": "a"}),
    ("rate=0.1", {"rate": 0.1, "units": 3}, {"split": "a"}),
    ("rate=1,units=7", {"rate": 1.0, "units": 7}, {"split": "a"}),
    ("split=b", {"rate": 0.5, "units": 3}, {"split": "b"}),
    (" rate = 0.1 , split = x y ,", {"rate": 0.1, "units": 3}, {"split": "x y"}),
    ("split=", {"rate": 0.5, "units": 3}, {"split": ""}),
    ("split=a=b", {"rate": 0.5, "units": 3}, {"split": "a=b"}),
])
def test_params_go_to_the_plugin_that_knows_them(text, model_params, dataset_params):
    """Each plug-in gets the shared values, its defaults, and what was given, typed as its default is."""
    shared = {"seed": 1}
    found = resolve_params(text, [_model(rate=0.5, units=3), _dataset(split="a")], shared)
    assert found == [{**shared, **model_params}, {**shared, **dataset_params}]
    assert [type(value) for value in found[0].values()] == [int, float, int]


def test_a_name_that_both_know_goes_to_both():
    """One value serves both, each with its own type."""
    assert resolve_params("size=2", [_model(size=1), _dataset(size=1.0)], {}) == [{"size": 2}, {"size": 2.0}]


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False),
                                             ("FALSE", False), ("0", False)])
def test_reads_booleans(text, value):
    """A bool is true, false, 1 or 0."""
    assert resolve_params(f"on={text}", [_model(on=not value)], {}) == [{"on": value}]


@pytest.mark.parametrize(("text", "code", "words"), [
    ("rate", "flag_malformed", ["'rate'"]),
    ("=1", "flag_malformed", ["'=1'"]),
    ("rate=1,,units", "flag_malformed", ["'units'"]),
    ("rate=1,rate=2", "parameter_given_twice", ["'rate'"]),
    ("rat=1", "parameter_unknown", ["'rat'", "on, rate, split, units"]),
    ("seed=1", "parameter_is_flag", ["--seed=1"]),
    ("rate=x", "parameter_malformed", ["rate='x'", "float", "0.5"]),
    ("units=1.5", "parameter_malformed", ["units='1.5'", "int", "3"]),
    ("on=yes", "parameter_malformed", ["on='yes'", "bool", "True"]),
])
def test_refuses_wrong_params(text, code, words):
    """Unknown names list the known ones; wrong values show the default."""
    with raises(code, kind=ConfigError) as caught:
        resolve_params(text, [_model(rate=0.5, units=3, on=True), _dataset(split="a")], {"seed": 0})
    assert all(word in str(caught.value) for word in words)


def test_a_default_may_not_hide_a_flag():
    """DEFAULT_PARAMS with the name of a flag would make that flag do nothing."""
    with raises("parameter_is_flag"):
        resolve_params("", [_model(batch_size=8)], {"batch_size": 100})


_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
_VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False),
                    st.text(st.characters(exclude_characters=",", exclude_categories=["Cs"])).map(str.strip))


@given(st.dictionaries(_NAMES, _VALUES, max_size=5))
def test_params_of_every_type_come_back(params):
    """Written as name=value and read again, every value is the same."""
    zeros = {name: type(value)() for name, value in params.items()}
    text = ",".join(f"{name}={value}" for name, value in params.items())
    assert resolve_params(text, [_model(**zeros)], {}) == [params]


@given(st.one_of(st.text(), st.builds("{}={}".format, st.sampled_from("abcde"), st.text())))
def test_any_text_is_params_or_a_config_error(text):
    """No text raises anything but ConfigError."""
    with contextlib.suppress(ConfigError):
        resolve_params(text, [_model(a=1, b=0.5, c=True, d="")], {})
