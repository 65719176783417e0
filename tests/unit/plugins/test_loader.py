"""Loading a plug-in: where its module is searched, how it is checked, and the errors if it is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import pathlib
import subprocess
import sys
import textwrap

import pytest

from ps_train.errors import ConfigError
from ps_train.plugins import loader
from tests.errors import raises
from tests.processes import GUARD_SECS

REPO = pathlib.Path(__file__).resolve().parents[3]
MODEL = "def model_fn(features, labels, mode, params): return 'model'\n"
DATASET = "def input_fn(mode, params, shard): return 'dataset'\n"
_numbers = itertools.count()
DEFAULTS = "cnn, deepfm, dlrm, logistic_regression, mlp, softmax, wide_deep"


@pytest.fixture(autouse=True)
def working_dir(tmp_path, monkeypatch):
    """An empty one; what a test imports of `models` and `data` is forgotten after it."""
    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] in ("models", "data")]:
            monkeypatch.delitem(sys.modules, name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".", str(REPO))])
    importlib.invalidate_caches()
    forget()
    return tmp_path


@pytest.fixture
def write(working_dir):
    """A function that writes a module with a unique name into the working directory and returns that name."""
    def write_module(source, folder=""):
        name = f"plugin_{next(_numbers)}"
        (working_dir / folder).mkdir(parents=True, exist_ok=True)
        (working_dir / folder / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return ".".join([*filter(None, folder.split("/")), name])

    return write_module


def _refusal(code, flag, name, function):
    with raises(code, kind=ConfigError) as caught:
        loader.find_module(flag, name, function=function)
    return str(caught.value)


@pytest.mark.parametrize("name", ["nope", "nope.nope", "plugins_folder.nope", "", ".", "..", "a..b", "nowhere/net.py",
                                  "with blank", "os.path.nope", "1", "日本"])
def test_an_unknown_module_is_refused(working_dir, name):
    """A name that is no module says where it was looked for, what there is, and what to give."""
    (working_dir / "plugins_folder").mkdir()
    message = _refusal("plugin_not_found", "--model", name, "model_fn")
    assert repr(name) in message and str(working_dir) in message and f"known: {DEFAULTS};" in message


@pytest.mark.parametrize(("flag", "folder", "function"), [
    ("--model", "models", "model_fn"), ("--model", "models", "build_model"), ("--dataset", "data", "input_fn")])
def test_what_is_known_is_listed(working_dir, flag, folder, function):
    """Modules here and in the usual folder that define the function, or are one; not helpers, nor odd files."""
    (working_dir / folder).mkdir()
    (working_dir / "mine.py").write_text(f"class Net: pass\n{function} = Net()\n")
    (working_dir / "helper.py").write_text(f"x = 1  # for {function}\n")
    (working_dir / "latin.py").write_bytes(b"# \xe9\n")
    (working_dir / folder / "inner.py").write_text(f"def {function}(): pass\n")
    assert "known: mine, inner, " in _refusal("plugin_not_found", flag, "nope", function)


@pytest.mark.parametrize(("name", "first"), [
    ("mymodle", "mymodel, cnn, "), ("models.sofmax", "softmax, mymodel, "), ("./mymodell", "mymodel, "),
    ("mymdel.py", "mymodel, ")])
def test_near_names_come_first(working_dir, name, first):
    """A slip of the finger is seen at once."""
    (working_dir / "mymodel.py").write_text(MODEL)
    message = _refusal("plugin_not_found", "--model", name, "model_fn")
    assert f"'{first.partition(',')[0]}'? known: {first}" in message


@pytest.mark.parametrize(("name", "dotted"), [
    ("mymodel.py", "mymodel"), ("./mymodel", "mymodel"), ("./mymodel.py", "mymodel"), ("nets/deep.py", "nets.deep"),
    ("nets/deep", "nets.deep"), ("{here}/nets/deep.py", "nets.deep"), ("nets/../mymodel.py", "mymodel")])
def test_the_path_of_a_file_is_answered_with_its_dotted_name(working_dir, name, dotted):
    """The file is not imported before."""
    (working_dir / "nets").mkdir()
    for path in ("mymodel.py", "nets/deep.py"):
        (working_dir / path).write_text("1 / 0\n")
    name = name.format(here=working_dir)
    assert _refusal("plugin_is_path", "--model", name, "model_fn").endswith(f"--model={dotted}")


def test_the_path_of_a_file_elsewhere_says_where_to_start(working_dir):
    """A module is found from the working directory."""
    here = working_dir / "here"
    here.mkdir()
    (working_dir / "net.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        message = _refusal("plugin_is_path", "--model", "../net.py", "model_fn")
    assert f" {working_dir} " in message and message.endswith("--model=net")


@pytest.mark.parametrize("is_package", [True, False], ids=["package", "plain folder"])
@pytest.mark.parametrize("is_on_path", [True, False], ids=["on PYTHONPATH", "not there"])
def test_the_users_own_folder_hides_no_default(working_dir, is_package, is_on_path):
    """Both are found, whichever of the two Python takes as the package; the user's own wins where both have one."""
    for folder, function in (("models", "model_fn"), ("data", "input_fn")):
        (working_dir / folder).mkdir()
        for name in ("own", {"models": "softmax", "data": "glyphs"}[folder]):
            (working_dir / folder / f"{name}.py").write_text(f"{function} = 'mine'\n")
        if is_package:
            (working_dir / folder / "__init__.py").touch()
    code = textwrap.dedent(f"""
        import sys
        sys.path = [entry for entry in sys.path if entry != {str(REPO)!r}]
        if {is_on_path}:
            sys.path.insert(1, {str(REPO)!r})
        from ps_train.plugins import loader
        for flag, names in (("--model", ["models.own", "models.softmax", "softmax", "own", "models"]),
                            ("--dataset", ["data.own", "data.glyphs", "data.fetch"])):
            for name in names:
                print(name, loader.find_module(flag, name, function="f").__file__)
        """)
    if not is_on_path:
        code = f"import sys; sys.path.insert(0, {str(REPO)!r}); import ps_train\n{code}"
    ended = subprocess.run([sys.executable, "-c", code], cwd=working_dir, stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.STDOUT, timeout=GUARD_SECS, check=False, env={"PYTHONPATH": str(REPO)})
    found = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    mine = {"models.own": "models/own.py", "models.softmax": "models/softmax.py", "softmax": "models/softmax.py",
            "own": "models/own.py", "data.own": "data/own.py", "data.glyphs": "data/glyphs.py"}
    assert {name: found.get(name) for name in mine} == {
        name: str(working_dir / path) for name, path in mine.items()}, ended.stdout
    assert found["data.fetch"] == str(REPO / "data" / "fetch.py"), ended.stdout


def test_the_users_own_module_of_the_folders_name_hides_no_default(working_dir):
    """A file data.py next to the model is usual."""
    (working_dir / "data.py").write_text("input_fn = 'mine'\n")
    found = loader.find_module("--dataset", "data.fetch", function="input_fn")
    assert found.__file__ == str(REPO / "data" / "fetch.py")
    assert loader.find_module("--dataset", "data", function="input_fn").input_fn == "mine"


@pytest.mark.parametrize("source", [
    MODEL,
    "def model_fn(features, labels, mode, params, config=None): return 'model'\n",
    "def model_fn(**everything): return 'model'\n",
    "class Net:\n  def __call__(self, features, labels, mode, params): return 'model'\nmodel_fn = Net()\n",
], ids=["plain", "more with defaults", "keywords", "callable object"])
def test_loads_a_model_from_the_working_directory(write, source):
    """Anything that can be called with the contract's arguments is a model_fn."""
    name = write(source)
    model = loader.load_model(name)
    assert (model.name, model.default_params) == (name, {})
    assert model.model_fn(features=1, labels=2, mode="train", params={}) == "model"


@pytest.mark.parametrize("signature, given", [
    ("features, labels, mode", "features labels mode"), ("features, labels", "features labels"),
    ("features, labels, params, mode, config", "features labels mode params config"), ("features", "features")])
def test_a_model_fn_of_an_estimator_gets_the_arguments_that_it_names(write, signature, given):
    """Any of labels, mode and params may be absent, and config may be there."""
    model = loader.load_model(write(f"def model_fn({signature}): return sorted(locals().items())\n"))
    offered = {"features": 1, "labels": 2, "mode": "train", "params": {}, "config": "config"}
    assert dict(model.model_fn(**offered)) == {name: offered[name] for name in given.split()}
    assert model.takes_config == ("config" in given)


@pytest.mark.parametrize("signature, given", [
    ("", ""), ("mode", "mode"), ("params, mode", "mode params"), ("shard, size=3", "shard")])
def test_an_input_fn_of_an_estimator_gets_the_arguments_that_it_names(write, signature, given):
    """Without shard, each worker reads all of the data."""
    dataset = loader.load_dataset(write(f"def input_fn({signature}): return locals()\n"))
    offered = {"mode": "train", "params": {}, "shard": (0, 2)}
    found = dataset.input_fn(**offered)
    assert {name: found[name] for name in given.split()} == {name: offered[name] for name in given.split()}
    assert dataset.is_sharded == ("shard" in given)


def test_a_pair_of_input_functions_is_a_dataset(write):
    """One for training, the other for every other mode."""
    source = "def train_input_fn(): return 'train'\ndef eval_input_fn(params): return params['x']\n"
    dataset = loader.load_dataset(write(source))
    found = [dataset.input_fn(mode=mode, params={"x": "eval"}, shard=(0, 1)) for mode in ("train", "eval")]
    assert found == ["train", "eval"]


def test_loads_a_dataset_with_and_without_prepare(write):
    """`prepare` is optional; without it nothing is done."""
    without = loader.load_dataset(write(DATASET))
    assert without.input_fn(mode="train", params={}, shard=(0, 1)) == "dataset"
    assert without.prepare({}) is None and without.data_identity({}) is None
    with_one = loader.load_dataset(write(DATASET + "def prepare(params): return 'prepared'\n"))
    assert with_one.prepare({}) == "prepared"


def test_loads_a_module_of_a_package(write):
    """A dotted name goes through packages, also those without an __init__.py."""
    name = write(MODEL, folder=f"package_{next(_numbers)}/inner")
    assert loader.load_model(name).name == name


@pytest.mark.parametrize(("load", "short", "full"), [
    (loader.load_model, "softmax", "models.softmax"), (loader.load_dataset, "digits", "data.digits")])
def test_a_name_without_a_dot_is_looked_for_in_the_usual_folder(monkeypatch, load, short, full):
    """--model=softmax means models.softmax, --dataset=digits data.digits."""
    monkeypatch.chdir(REPO)
    assert load(short).name == full == load(full).name


@pytest.mark.parametrize(("load", "source", "code", "name"), [
    (loader.load_model, "x = 1\n", "plugin_function_missing", "model_fn(features, labels, mode, params)"),
    (loader.load_model, "model_fn = 3\n", "plugin_function_missing", "model_fn"),
    (loader.load_model, "def model_fn(x, y): pass\n", "plugin_signature", "model_fn takes (x, y)"),
    (loader.load_model, "def model_fn(features, labels, mode, params, run): pass\n", "plugin_signature", "model_fn"),
    (loader.load_model, "def model_fn(): pass\n", "plugin_signature", "model_fn takes ()"),
    (loader.load_dataset, "x = 1\n", "plugin_function_missing", "input_fn(mode, params, shard)"),
    (loader.load_dataset, "def input_fn(files): pass\n", "plugin_signature", "input_fn takes (files)"),
    (loader.load_dataset, "def train_input_fn(): pass\n", "plugin_function_missing", "eval_input_fn"),
    (loader.load_dataset, DATASET + "def prepare(): pass\n", "plugin_signature", "prepare takes ()"),
    (loader.load_dataset, DATASET + "prepare = 3\n", "plugin_function_missing", "prepare(params)"),
    (loader.load_model, MODEL + "DEFAULT_PARAMS = ['a']\n", "default_params_malformed", "['a']"),
    (loader.load_model, MODEL + "DEFAULT_PARAMS = {'sizes': (1, 2)}\n", "default_params_malformed", "'sizes'"),
    (loader.load_dataset, DATASET + "DEFAULT_PARAMS = {'x': None}\n", "default_params_malformed", "'x'"),
])
def test_a_module_that_breaks_the_contract_is_refused(write, load, source, code, name):
    """A missing function, another signature, defaults that --params cannot set: the message names the module."""
    module = write(source)
    with raises(code, kind=ConfigError) as caught:
        load(module)
    assert module in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize(("source", "error"), [
    ("1 / 0\n", ZeroDivisionError), ("import no_such_module_at_all\n", ModuleNotFoundError),
    ("def model_fn(:\n", SyntaxError)])
def test_a_fault_in_the_users_module_keeps_its_traceback(write, source, error):
    """What the plug-in raises while it is imported is the user's, and comes through as it is."""
    with pytest.raises(error):
        loader.load_model(write(source))


def test_a_package_that_lacks_a_module_keeps_its_traceback(write):
    """A package that imports a missing module is not itself reported as missing."""
    name = write(MODEL, folder=f"package_{next(_numbers)}")
    package = name.partition(".")[0]
    missing = package[:4]  # a name that the plug-in's begins with
    (pathlib.Path.cwd() / package / "__init__.py").write_text(f"import {missing}\n")
    with pytest.raises(ModuleNotFoundError, match=f"'{missing}'"):
        loader.load_model(name)


def test_an_entry_point_of_an_installed_package_is_found_last(working_dir, monkeypatch):
    """By its short name; a module of that name in the working directory comes first, and the error lists both."""
    (working_dir / "of_a_package.py").write_text(MODEL)
    entry_point = importlib.metadata.EntryPoint("ranker", "of_a_package", "ps_train.models")
    monkeypatch.setattr(loader, "_entry_points", lambda folder: {"ranker": entry_point} if folder == "models" else {})
    assert loader.load_model("ranker").name == "of_a_package"
    with raises("plugin_not_found") as caught:
        loader.load_model("rankr")
    assert "'ranker'?" in str(caught.value)
    (working_dir / "ranker.py").write_text(MODEL)
    assert loader.load_model("ranker").name == "ranker"
