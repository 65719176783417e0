"""Plug-ins: how they are found, what they must have, and how --params reaches them."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import pathlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_train.errors import ConfigError
from ps_train.plugins import contracts
from ps_train.plugins.contracts import Dataset, Model, ModelSpec

REPO = pathlib.Path(__file__).resolve().parents[3]
MODEL = "def model_fn(features, labels, mode, params): return 'model'\n"
DATASET = "def input_fn(mode, params, shard): return 'dataset'\n"
_numbers = itertools.count()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function that writes a module of a name of its own into the working directory and returns that name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def write_module(source, folder="", suffix=""):
        name = f"plugin_{next(_numbers)}{suffix}"
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return ".".join([*filter(None, folder.split("/")), name])

    return write_module


def _refusal(function, *arguments):
    with pytest.raises(ConfigError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- finding and checking

@pytest.mark.parametrize("source", [
    MODEL,
    "def model_fn(features, labels, mode, params, config=None): return 'model'\n",
    "def model_fn(**everything): return 'model'\n",
    "class Net:\n  def __call__(self, features, labels, mode, params): return 'model'\nmodel_fn = Net()\n",
], ids=["plain", "more with defaults", "keywords", "callable object"])
def test_loads_a_model_from_the_working_directory(write, source):
    """Anything that can be called with the contract's arguments is a model_fn."""
    name = write(source)
    model = contracts.load_model(name)
    assert (model.name, model.default_params) == (name, {})
    assert model.model_fn(features=1, labels=2, mode="train", params={}) == "model"


def test_loads_a_dataset_with_and_without_prepare(write):
    """`prepare` is optional; without it nothing is done."""
    without = contracts.load_dataset(write(DATASET))
    assert without.input_fn(mode="train", params={}, shard=(0, 1)) == "dataset"
    assert without.prepare({}) is None
    with_one = contracts.load_dataset(write(DATASET + "def prepare(params): return 'prepared'\n"))
    assert with_one.prepare({}) == "prepared"


def test_loads_a_module_of_a_package(write):
    """A dotted name goes through packages, also those without an __init__.py."""
    name = write(MODEL, folder=f"package_{next(_numbers)}/inner")
    assert contracts.load_model(name).name == name


@pytest.mark.parametrize(("load", "short", "full"), [
    (contracts.load_model, "softmax", "models.softmax"), (contracts.load_dataset, "digits", "data.digits")])
def test_a_name_without_a_dot_is_looked_for_in_the_usual_folder(monkeypatch, load, short, full):
    """--model=softmax means models.softmax, --dataset=digits data.digits."""
    monkeypatch.chdir(REPO)
    assert load(short).name == full == load(full).name


@pytest.mark.parametrize(("load", "source", "complaint"), [
    (contracts.load_model, "x = 1\n", "has no function model_fn(features, labels, mode, params); add it"),
    (contracts.load_model, "model_fn = 3\n", "has no function model_fn(features, labels, mode, params); add it"),
    (contracts.load_model, "def model_fn(x, y): pass\n",
     "model_fn takes (x, y); it must take model_fn(features, labels, mode, params)"),
    (contracts.load_model, "def model_fn(features, labels, mode, params, config): pass\n",
     "model_fn takes (features, labels, mode, params, config); it must take model_fn(features, labels, mode, params)"),
    (contracts.load_dataset, "x = 1\n", "has no function input_fn(mode, params, shard); add it"),
    (contracts.load_dataset, "def input_fn(): pass\n", "input_fn takes (); it must take input_fn(mode, params, shard)"),
    (contracts.load_dataset, DATASET + "def prepare(): pass\n", "prepare takes (); it must take prepare(params)"),
    (contracts.load_dataset, DATASET + "prepare = 3\n", "has no function prepare(params); add it"),
    (contracts.load_model, MODEL + "DEFAULT_PARAMS = ['a']\n",
     "DEFAULT_PARAMS is ['a']; allowed: a dict of name: value"),
    (contracts.load_model, MODEL + "DEFAULT_PARAMS = {'sizes': (1, 2)}\n",
     "DEFAULT_PARAMS['sizes'] is (1, 2); allowed: bool, int, float and str, so that --params can set it"),
    (contracts.load_dataset, DATASET + "DEFAULT_PARAMS = {'x': None}\n",
     "DEFAULT_PARAMS['x'] is None; allowed: bool, int, float and str, so that --params can set it"),
])
def test_a_module_that_breaks_the_contract_is_refused(write, load, source, complaint):
    """A missing function, another signature, defaults that --params cannot set: the message names the module."""
    name = write(source)
    message = _refusal(load, name)
    assert message.endswith(complaint)
    assert name in message


@pytest.mark.parametrize(("source", "error"), [
    ("1 / 0\n", ZeroDivisionError), ("import no_such_module_at_all\n", ModuleNotFoundError),
    ("def model_fn(:\n", SyntaxError)])
def test_a_fault_in_the_users_module_keeps_its_traceback(write, source, error):
    """What the plug-in raises while it is imported is the user's, and comes through as it is."""
    with pytest.raises(error):
        contracts.load_model(write(source))


def test_a_package_that_lacks_a_module_keeps_its_traceback(write):
    """A package that imports something that is not there is not mistaken for one that is not there itself."""
    name = write(MODEL, folder=f"package_{next(_numbers)}")
    package = name.partition(".")[0]
    missing = package[:4]  # a name that the plug-in's begins with
    (pathlib.Path.cwd() / package / "__init__.py").write_text(f"import {missing}\n")
    with pytest.raises(ModuleNotFoundError, match=f"'{missing}'"):
        contracts.load_model(name)


# --- --params

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
    found = contracts.resolve_params(text, [_model(rate=0.5, units=3), _dataset(split="a")], shared)
    assert found == [{**shared, **model_params}, {**shared, **dataset_params}]
    assert [type(value) for value in found[0].values()] == [int, float, int]


def test_a_name_that_both_know_goes_to_both():
    """One value serves both, each with its own type."""
    assert contracts.resolve_params("size=2", [_model(size=1), _dataset(size=1.0)], {}) == [{"size": 2}, {"size": 2.0}]


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False),
                                             ("FALSE", False), ("0", False)])
def test_reads_booleans(text, value):
    """A bool is true, false, 1 or 0."""
    assert contracts.resolve_params(f"on={text}", [_model(on=not value)], {}) == [{"on": value}]


@pytest.mark.parametrize(("text", "message"), [
    ("rate", "--params: got 'rate'; allowed: name=value,name=value"),
    ("=1", "--params: got '=1'; allowed: name=value,name=value"),
    ("rate=1,,units", "--params: got 'units'; allowed: name=value,name=value"),
    ("rate=1,rate=2", "--params: 'rate' is given twice; give it once"),
    ("rat=1", "--params: unknown parameter 'rat'; known to m and d: on, rate, split, units"),
    ("seed=1", "--params: 'seed' has a flag of its own; give --seed=1"),
    ("rate=x", "--params: rate='x'; allowed: float, as in m's default 0.5"),
    ("units=1.5", "--params: units='1.5'; allowed: int, as in m's default 3"),
    ("on=yes", "--params: on='yes'; allowed: bool, as in m's default True"),
])
def test_refuses_wrong_params(text, message):
    """Unknown names list the known ones; wrong values show the default."""
    found = _refusal(contracts.resolve_params, text, [_model(rate=0.5, units=3, on=True), _dataset(split="a")],
                     {"seed": 0})
    assert found == message


def test_plugins_without_parameters_say_so():
    """An unknown name where nothing is known."""
    assert _refusal(contracts.resolve_params, "a=1", [_model(), _dataset()], {}) == (
        "--params: unknown parameter 'a'; known to m and d: none")


def test_a_default_may_not_hide_a_flag():
    """DEFAULT_PARAMS with the name of a flag would make that flag do nothing."""
    assert _refusal(contracts.resolve_params, "", [_model(batch_size=8)], {"batch_size": 100}) == (
        "m.DEFAULT_PARAMS has 'batch_size', which is a flag of its own; leave it out: params has the value of "
        "--batch_size")


_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
_VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False),
                    st.text(st.characters(exclude_characters=",", exclude_categories=["Cs"])).map(str.strip))


@given(st.dictionaries(_NAMES, _VALUES, max_size=5))
def test_params_of_every_type_come_back(params):
    """Written as name=value and read again, every value is the same."""
    zeros = {name: type(value)() for name, value in params.items()}
    text = ",".join(f"{name}={value}" for name, value in params.items())
    assert contracts.resolve_params(text, [_model(**zeros)], {}) == [params]


@given(st.one_of(st.text(), st.builds("{}={}".format, st.sampled_from("abcde"), st.text())))
def test_any_text_is_params_or_a_config_error(text):
    """No text raises anything but ConfigError."""
    with contextlib.suppress(ConfigError):
        contracts.resolve_params(text, [_model(a=1, b=0.5, c=True, d="")], {})


def test_a_model_spec_fills_in_what_is_not_given():
    """A model_fn gives what its mode needs."""
    assert ModelSpec(loss=1) == (1, None, None, None, "loss")
