"""Functions of a program as plug-ins: what a task finds in the module that is written, and what is refused."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
import textwrap
import types

import pytest

from ps_train.plugins.functions import plugin_name
from tests.errors import raises

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
    ended = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=60,
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
