"""Functions of a program as plug-ins: what a task finds in the module that is written, and what is refused."""

from __future__ import annotations

import importlib
import linecache
import os
import pathlib
import subprocess
import sys
import sysconfig
import textwrap
import types

import pytest

from ps_train.plugins.functions import import_path, plugin_name
from tests.errors import raises
from tests.processes import GUARD_SECS

REPO = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = '''
    import math
    import os.path as paths
    import threading
    from collections import OrderedDict
    from math import sqrt
    from string import capwords

    from ps_train.errors import PsTrainError
    from ps_train.plugins.functions import plugin_name

    RATE, LAYERS, TABLE = 0.25, [3, 4], OrderedDict(a=1)
    DEFAULT_PARAMS = {"depth": 2}
    unused = lock = threading.Lock()
    nn = lock

    class Scale:
        factor = 3

        def apply(self, value):
            return value * self.factor * RATE

    def twice(function):
        def call(value):
            return 2 * function(value)
        return call

    def even(number):
        return number == 0 or odd(number - 1)

    def odd(number):
        return number != 0 and even(number - 1)

    def make(offset):
        def network(features, labels=LAYERS, mode: "unknown" = None, *, params: dict = DEFAULT_PARAMS):
            """Uses what there is."""
            lock = [value for value in labels]  # a local name
            half = lambda value: value / 2
            return [Scale().apply(features), sqrt(16), math.pi > 3, paths.basename("/a/b"), capwords("x y"), lock,
                    offset, half(8), TABLE["a"], even(4), params["depth"], len(lock)]
        return network

    def locked(features):
        with lock:
            return features

    def own_class(features):
        return SCALE.apply(features)

    def with_lambda(features):
        return halve(features)

    SCALE = Scale()
    halve = lambda value: value / 2
    network = make(offset=7)

    def show(function):
        try:
            plugin_name("model", function).write(".")
        except PsTrainError as error:
            print(f"{error.code}: {error}")
'''
USE = 'import program_model as written; print(written.model_fn(4.0), written.DEFAULT_PARAMS, "nn" in vars(written))'


def run(folder, *words):
    """Returns what a Python prints."""
    ended = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=GUARD_SECS,
                           check=False, env={**os.environ, "PYTHONPATH": str(REPO)})
    return ended.stdout + ended.stderr


def test_a_function_of_the_program_takes_along_what_it_uses(tmp_path):
    """Imports, functions, classes, constants, its closure and other values; nothing else of the program."""
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM) + "show(network)\n")
    assert run(tmp_path, "program.py") == ""
    assert run(tmp_path, "-c", USE) == (
        "[3.0, 4.0, True, 'b', 'X Y', [3, 4], 7, 4.0, 1, True, 2, 2] {'depth': 2} False\n")
    text = (tmp_path / "program_model.py").read_text()
    assert "RATE = 0.25" in text and "import math as math" in text and "threading" not in text


def test_a_value_keeps_its_class_though_it_looks_like_a_dict(tmp_path):
    """Issue: one of a class such as EasyDict, with dict's repr, came as a dict: `options.width` failed in the tasks."""
    (tmp_path / "settings.py").write_text("class Options(dict):\n    __getattr__ = dict.__getitem__\n")
    (tmp_path / "program.py").write_text(
        "from ps_train.plugins.functions import plugin_name\nfrom settings import Options\n"
        "options, nested = Options(width=32), {'of': [Options(width=16)]}\n"
        "def network(value):\n    return value + options.width + nested['of'][0].width\n"
        "plugin_name('model', network).write('.')\n")
    assert run(tmp_path, "program.py") == ""
    assert run(tmp_path, "-c", "import program_model; print(program_model.model_fn(1))") == "49\n"


@pytest.mark.parametrize(("call", "why"), [
    ("show(locked)", "--model: locked uses lock, a lock that cannot be pickled"),
    ("show(own_class)", "--model: own_class uses SCALE, whose class or function is defined in the program itself"),
    ("show(with_lambda)", "--model: with_lambda uses a lambda, halve, "),
    ("show(halve)", "--model: <lambda> uses a lambda, "),
    ("exec('def made(features): pass'); show(made)", "--model: made uses made, whose source Python does not know"),
])
def test_what_cannot_travel_is_refused_in_a_line(tmp_path, call, why):
    """It names the function, what it uses, and what to do; nothing is written."""
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM) + call + "\n")
    [line] = run(tmp_path, "program.py").splitlines()
    assert line.startswith(f"plugin_not_importable: {why}"), line
    assert line.endswith("so the tasks cannot have it; put the function, and what it uses, into a module, and give the "
                         "module")
    assert not (tmp_path / "program_model.py").exists()


@pytest.fixture
def plain_plugin(tmp_path, monkeypatch):
    """A module that needs no TensorFlow."""
    (tmp_path / "plain_plugin.py").write_text(
        "DEFAULT_PARAMS = {'a': 1}\ndef model_fn(features): pass\ndef other_fn(features): return 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("plain_plugin")
    del sys.modules["plain_plugin"]


@pytest.mark.parametrize(("change", "place"), [
    ("units = 99", "is 10, and would be 99"), ("rates[:] = [2]; rates = [2]", ""), ("rates = [2]", "rates is [1]"),
    ("Net.width = 7", "width is 7, and would be 10"), ("depth = 9", "depth is (3, 4), and would be (9, 10)"),
    ("Net.plain = 8; Net.layers(Net); seen()", ""), ("act = len", "act is <built-in function abs>"), ("", ""),
    ("size = 2", "size is 1, and would be 2"), ("Net.extra = 1", ""),
])
def test_what_was_bound_when_a_function_was_defined_has_not_changed_since(tmp_path, change, place):
    """Its source, evaluated again in the tasks, would bind what the names stand for now, without a word."""
    (tmp_path / "program.py").write_text(textwrap.dedent('''
        import enum
        from ps_train.errors import PsTrainError
        from ps_train.plugins.functions import plugin_name
        units, rates, depth, act, size = 10, [1], 3, abs, 1

        class Kind(enum.Enum):
            FIRST = 1

        class Net:
            plain = 5
            width: int = units
            twice = plain * 2
            grown = units
            grown *= 2
            depth = depth

            def layers(self, size=size, depth=depth):
                return size

        def seen(cache={}):
            cache["words"] = 1

        def model_fn(features, units=units, depth=(depth, depth + 1), nothing=float("nan"), *, rates=rates, act=act):
            seen()
            return units, depth, rates, act(-1), Net.width, Net.twice, Net().layers(), Kind.FIRST.value
    ''') + f"""
{change}
try:
    plugin_name("model", model_fn).write(".")
except PsTrainError as error:
    print(f"{{error.code}}: {{error}}")
""")
    printed = run(tmp_path, "program.py")
    assert ("plugin_not_importable" in printed and place in printed) if place else printed == ""
    if not place:
        values = [10, (3, 4), [2] if change.startswith("rates") else [1], 1, 10, 10, 1, 1]
        assert run(tmp_path, "-c", "import program_model; print([*program_model.model_fn(0)])") == f"{values}\n"


def test_a_module_has_its_name(plain_plugin):
    """So has its model_fn; a name is itself."""
    assert plugin_name("model", plain_plugin) == plugin_name("model", plain_plugin.model_fn) == "plain_plugin"
    assert (plugin_name("model", "mymodel"), plugin_name("model", None)) == ("mymodel", None)


def test_another_function_of_a_module_is_imported(plain_plugin, tmp_path):
    """With the DEFAULT_PARAMS of its module."""
    plugin_name("model", plain_plugin.other_fn).write(str(tmp_path))
    assert run(tmp_path, "-c", USE) == "5 {'a': 1} False\n"


@pytest.mark.parametrize("plugin", [types.ModuleType("made_here"), 7, len], ids=str)
def test_what_is_no_plugin_is_refused(plugin):
    """With what may be given."""
    with raises("plugin_not_importable"):
        plugin_name("model", plugin)


def loaded(folder, flag, expression):
    """Returns what a task prints of the plug-in that was written into a folder."""
    return run(folder, "-c", f"from ps_train.plugins import loader; plugin = loader.load_{flag}('program_{flag}'); "
               f"print({expression})")


def program(folder, text, name="program.py"):
    """Writes and runs a program, in which `show` writes its function into the working directory."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(SHOW + textwrap.dedent(text))
    return run(folder, name)


SHOW = """from __future__ import annotations
from ps_train.errors import PsTrainError
from ps_train.plugins.functions import plugin_name

def show(function, flag="model"):
    try:
        code = plugin_name(flag, function)
        code if isinstance(code, str) else code.write(".")
        print(getattr(code, "name", code))
    except PsTrainError as error:
        print(f"{error.code}: {error}")

"""


@pytest.mark.parametrize(("module", "flag"), [
    ("mlp", "model"), ("cnn", "model"), ("softmax", "model"), ("mnist", "dataset"), ("digits", "dataset")])
def test_a_module_with_a_shipped_name_stays_the_users(tmp_path, module, flag):
    """Beside the program, which runs in another folder; so does its function. By its name it would be ps_train's."""
    function = {"model": "model_fn", "dataset": "input_fn"}[flag]
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / f"{module}.py").write_text(
        f"DEFAULT_PARAMS = {{'own': 1}}\ndef {function}(**_): pass\nmake_optimizer = lambda params, global_step: 8\n")
    for given in (module, f"{module}.{function}"):
        show = f"import {module}\nshow({given}, '{flag}')\nfrom ps_train.plugins.functions import import_path\n"
        name, path = program(tmp_path, show + "print(import_path())", "project/train.py").split()
        assert name == f"program_{flag}" and str(tmp_path / "project") in path.split(":")
        code = f"import sys; sys.path[1:1] = {path.split(':')!r}\nimport {name}; print({name}.DEFAULT_PARAMS)"
        assert run(tmp_path, "-c", code) == "{'own': 1}\n"
        (tmp_path / f"{name}.py").unlink()


def test_a_module_that_the_tasks_would_not_find_is_refused(tmp_path):
    """Another file with its name is in the working directory; in its own folder it goes by its name."""
    (tmp_path / "net.py").write_text("")
    text = "import net\nshow(net)\nshow(net.other)"
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "net.py").write_text("def model_fn(): pass\ndef other(): pass\n")
    lines = program(tmp_path, text, "project/train.py").splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("plugin_not_importable: --model: module net is ")
        assert f" {tmp_path}/project/net.py, but the tasks would import {tmp_path}/net.py; " in line
    assert run(tmp_path / "project", "train.py") == "net\nprogram_model\n"


BESIDE = """
    RATE = 3
    DEFAULT_PARAMS = {"a": 1}
    def make_optimizer(params, global_step): return RATE
    def serving_input_fn(): return 4
    def prepare(params): return RATE + 2
    def callbacks(training): return [6]
    def eval_input_fn(): return make_it
    make_it = show
    def network(features): return 7
    def records(): return 8
    """
BESIDE_MODEL = ("plugin.model_fn(features=0), plugin.default_params, plugin.make_optimizer(0, 0), "
                "plugin.serving_input_fn(), __import__('program_model').callbacks(0)")
BESIDE_DATASET = "plugin.input_fn(), plugin.default_params, plugin.prepare({}), plugin.serving_input_fn()"


@pytest.mark.parametrize("is_of_module", [False, True])
def test_what_the_contract_names_beside_a_function_goes_with_it(tmp_path, is_of_module):
    """Of the program, or of the function's module; `input_fn` stands for train_input_fn and eval_input_fn."""
    text, of = textwrap.dedent(BESIDE), ""
    if is_of_module:
        (tmp_path / "reader.py").write_text(textwrap.dedent(BESIDE).replace("make_it = show", ""))
        text, of = "import reader", "reader."
    shown = program(tmp_path, f"{text}\nshow({of}network)\nshow({of}records, 'dataset')\n")
    assert shown == "program_model\nprogram_dataset\n"
    assert loaded(tmp_path, "model", BESIDE_MODEL) == "7 {'a': 1} 3 4 [6]\n"
    assert loaded(tmp_path, "dataset", BESIDE_DATASET) == "8 {'a': 1} 5 4\n"


def test_what_only_has_a_name_of_the_contract_stays(tmp_path):
    """A module called callbacks."""
    assert program(tmp_path, """
        import string as callbacks
        def network(features): return 7
        show(network)
        """) == "program_model\n"
    assert loaded(tmp_path, "model", "plugin.model_fn(features=0), hasattr(__import__('program_model'), 'callbacks')"
                  ) == "7 False\n"


DECORATED = """
    import functools

    OFFSET = 10
    DEFAULT_PARAMS = {"a": 1}

    def same(function):
        return function

    def other(function):
        def call(features):
            return 2 * function(features)
        return call

    def inside():
        local = twice
        @local
        def network(features): return features
        return network
    """


@pytest.mark.parametrize(("text", "output"), [
    ("@twice\ndef network(features): return features + OFFSET\nshow(network)", 22),
    ("@twice\n@twice\ndef network(features): return features + OFFSET\nshow(network)", 44),
    ("@same\n@twice\ndef network(features): return features + OFFSET\nshow(network)", 22),
    ("@same\ndef network(features): return features + OFFSET\nshow(network)", 11),
    ("@other\ndef network(features): return features + OFFSET\nshow(network)", 22),
    ("def make():\n  @twice\n  def network(features): return features + OFFSET\n  return network\nshow(make())", 22),
    ("def network(features): return features\nshow(twice(network))", "uses network in a wrapper that is not from"),
    ("@twice\n@other\ndef network(features): return features\nshow(network)", "uses call in a wrapper that is not"),
    ("@other\n@twice\n@same\ndef network(features): return features\nshow(network)", "uses network in a wrapper"),
    ("show(inside())", "uses local in the head of network, a name that only a function around it has"),
    ("show(twice(lambda features: 1))", "uses a lambda, "),
    ("show(twice(len))", "uses len, whose source Python does not know"),
])
@pytest.mark.parametrize("is_imported", [False, True])
def test_a_decorated_function_is_what_its_decorators_have_made(tmp_path, text, output, is_imported):
    """With the names of its own module, not those of the decorator's; never decorated twice, nor too little."""
    twice = ("import functools\nOFFSET = 1000\ndef twice(function):\n    @functools.wraps(function)\n    "
             "def call(*args, **named): return 2 * function(*args, **named)\n    return call\n")
    (tmp_path / "decorators.py").write_text(twice)
    head = ("from decorators import twice\n" if is_imported else twice) + textwrap.dedent(DECORATED)
    shown = program(tmp_path, f"{head}\n{text}\n")
    if isinstance(output, str):
        assert shown.startswith("plugin_not_importable: ") and output in shown and shown.count("\n") == 1
        return
    assert shown == "program_model\n"
    assert loaded(tmp_path, "model", "plugin.model_fn(features=1), plugin.default_params") == f"{output} {{'a': 1}}\n"


TYPED = '''
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Tensor

class Helper:
    size: Tensor = 3

def make():
    def network(features: Tensor, labels: Tensor = None) -> Tensor:
        if features is None:
            return """a
b
      c"""
        return Helper.size
    return network

show(make())
'''


def test_annotations_and_texts_are_those_of_the_program(tmp_path):
    """Names that only a type checker knows, and the lines of a text in an indented function."""
    assert program(tmp_path, TYPED) == "program_model\n"
    assert loaded(tmp_path, "model", "repr(plugin.model_fn(features=None)), plugin.model_fn(features=1)") == (
        "'a\\nb\\n      c' 3\n")


@pytest.mark.parametrize(("text", "output"), [
    ("def network(features): return 1\nfirst = network\ndef network(features): return 2\nshow(first)", 1),
    ("def network(features): return 1\nfirst = network\ndef network(features): return 2\nshow(network)", 2),
    ("def network(features): return 1\nfirst = network\ndef network(features): return first(features)\nshow(network)",
     "uses two different things that are called network"),
    ("def network(features): return features and network(0)\nfirst = network\ndef network(features): return 2\n"
     "show(first)", "uses two different things that are called network"),
    ("network = lambda features: 1\nshow(network)", "<lambda> uses a lambda, model_fn, whose source"),
])
def test_a_name_that_is_defined_twice(tmp_path, text, output):
    """The function that was given goes to the tasks, or the program says why not."""
    shown = program(tmp_path, text)
    if isinstance(output, str):
        assert shown.startswith("plugin_not_importable: ") and output in shown and shown.count("\n") == 1
    else:
        assert loaded(tmp_path, "model", "plugin.model_fn(features=1)") == f"{output}\n"


def test_a_file_that_has_changed_since_is_refused(tmp_path):
    """Python would take whatever is at that line now."""
    assert "uses network, whose source has changed since it was read" in program(tmp_path, """
        import pathlib
        def network(features): return 1
        text = pathlib.Path(__file__).read_text()
        pathlib.Path(__file__).write_text(text.replace("network(features)", "newwork(features)"))
        show(network)
        """)


def test_a_function_that_was_written_again_at_once_is_the_new_one(tmp_path, monkeypatch):
    """Its text has the length and the second of the old one, by which Python knows what it has compiled."""
    monkeypatch.syspath_prepend(str(tmp_path))
    values = []
    for number in (1, 2):
        made = {"__name__": "__main__"}
        source = f"def network(features): return {number}\n"
        linecache.cache[f"<cell {number}>"] = (len(source), None, [source], f"<cell {number}>")
        exec(compile(source, f"<cell {number}>", "exec"), made)
        plugin_name("model", made["network"]).write(str(tmp_path))
        os.utime(tmp_path / "program_model.py", (1e9, 1e9))
        values.append(importlib.import_module("program_model").model_fn(0))
        del sys.modules["program_model"]
    assert values == [1, 2]


def test_the_path_of_the_tasks(tmp_path, monkeypatch):
    """What is beside the script, wherever Python lies, and all of PYTHONPATH; not what Python finds by itself."""
    paths = {name: str(tmp_path / name) for name in ("lib/python3", "lib/python3/packages", "lib/python3-own", "given")}
    for path in paths.values():
        pathlib.Path(path).mkdir(parents=True)
    script, missing = str(tmp_path), str(tmp_path / "later.zip")
    monkeypatch.setattr(sys, "prefix", script)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: paths["lib/python3"])
    monkeypatch.setattr(sys, "path", [script, "", *paths.values(), str(REPO), str(tmp_path / "nowhere")])
    monkeypatch.chdir(REPO)
    monkeypatch.setenv("PYTHONPATH", f"{paths['given']}:{missing}:{paths['lib/python3/packages']}:")
    assert import_path().split(":") == [
        script, paths["lib/python3/packages"], paths["lib/python3-own"], paths["given"], missing]
