"""Finding a plug-in: the user's own modules before the defaults, and what is said where there is none."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys
import textwrap

import pytest

from ps_train.errors import ConfigError
from ps_train.plugins import finder

REPO = pathlib.Path(__file__).resolve().parents[3]
MODEL = "def model_fn(features, labels, mode, params): return 'model'\n"
DEFAULTS = "models.cnn, models.mlp, models.softmax"


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


def _refusal(flag, name, function):
    with pytest.raises(ConfigError) as caught:
        finder.find(flag, name, function)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["nope", "nope.nope", "plugins_folder.nope", "", ".", "..", "a..b", "nowhere/net.py",
                                  "with blank", "os.path.nope", "1", "日本"])
def test_an_unknown_module_is_refused(working_dir, name):
    """A name that is no module says where it was looked for, what there is, and what to give."""
    (working_dir / "plugins_folder").mkdir()
    assert _refusal("--model", name, "model_fn") == (
        f"--model: no module {name!r} from the working directory {working_dir}; known here: {DEFAULTS}; "
        "give the dotted name of a module with model_fn")


@pytest.mark.parametrize(("flag", "folder", "function"), [
    ("--model", "models", "model_fn"), ("--model", "models", "build_model"), ("--dataset", "data", "input_fn")])
def test_what_is_known_is_listed(working_dir, flag, folder, function):
    """Modules here and in the usual folder that define the function, or are one; not helpers, nor odd files."""
    (working_dir / folder).mkdir()
    (working_dir / "mine.py").write_text(f"class Net: pass\n{function} = Net()\n")
    (working_dir / "helper.py").write_text(f"x = 1  # for {function}\n")
    (working_dir / "latin.py").write_bytes(b"# \xe9\n")
    (working_dir / folder / "inner.py").write_text(f"def {function}(): pass\n")
    assert f"known here: mine, {folder}.inner, {folder}." in _refusal(flag, "nope", function)


@pytest.mark.parametrize(("name", "first"), [
    ("mymodle", "mymodel, models.cnn, "), ("models.sofmax", "models.softmax, mymodel, "), ("./mymodell", "mymodel, "),
    ("mymdel.py", "mymodel, ")])
def test_near_names_come_first(working_dir, name, first):
    """A slip of the finger is seen at once."""
    (working_dir / "mymodel.py").write_text(MODEL)
    assert f"known here: {first}" in _refusal("--model", name, "model_fn")


@pytest.mark.parametrize(("name", "dotted"), [
    ("mymodel.py", "mymodel"), ("./mymodel", "mymodel"), ("./mymodel.py", "mymodel"), ("nets/deep.py", "nets.deep"),
    ("nets/deep", "nets.deep"), ("{here}/nets/deep.py", "nets.deep"), ("nets/../mymodel.py", "mymodel")])
def test_the_path_of_a_file_is_answered_with_its_dotted_name(working_dir, name, dotted):
    """The file is not imported before."""
    (working_dir / "nets").mkdir()
    for path in ("mymodel.py", "nets/deep.py"):
        (working_dir / path).write_text("1 / 0\n")
    name = name.format(here=working_dir)
    assert _refusal("--model", name, "model_fn") == (
        f"--model: got {name!r}, which is a path; give the dotted name: --model={dotted}")


def test_the_path_of_a_file_elsewhere_says_where_to_start(working_dir):
    """A module is found from the working directory."""
    here = working_dir / "here"
    here.mkdir()
    (working_dir / "net.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert _refusal("--model", "../net.py", "model_fn") == (
            f"--model: got '../net.py', a file outside of the working directory {here}; start in {working_dir} with "
            "--model=net")


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
        from ps_train.plugins import finder as finding
        for flag, names in (("--model", ["models.own", "models.softmax", "softmax", "own", "models"]),
                            ("--dataset", ["data.own", "data.glyphs", "data.fetch"])):
            for name in names:
                print(name, finding.find(flag, name, "f").__file__)
        """)
    if not is_on_path:
        code = f"import sys; sys.path.insert(0, {str(REPO)!r}); import ps_train\n{code}"
    ended = subprocess.run([sys.executable, "-c", code], cwd=working_dir, stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.STDOUT, timeout=60, check=False, env={"PYTHONPATH": str(REPO)})
    found = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    mine = {"models.own": "models/own.py", "models.softmax": "models/softmax.py", "softmax": "models/softmax.py",
            "own": "models/own.py", "data.own": "data/own.py", "data.glyphs": "data/glyphs.py"}
    assert {name: found.get(name) for name in mine} == {
        name: str(working_dir / path) for name, path in mine.items()}, ended.stdout
    assert found["data.fetch"] == str(REPO / "data" / "fetch.py"), ended.stdout


def test_the_users_own_module_of_the_folders_name_hides_no_default(working_dir):
    """A file data.py beside the model is usual."""
    (working_dir / "data.py").write_text("input_fn = 'mine'\n")
    assert finder.find("--dataset", "data.fetch", "input_fn").__file__ == str(REPO / "data" / "fetch.py")
    assert finder.find("--dataset", "data", "input_fn").input_fn == "mine"
