"""What is said about an error that shows that a script was taken for one of the other TensorFlow."""

from __future__ import annotations

import importlib

import pytest
import tensorflow as tf2

from ps_train.parts.legacy import mode_advice
from ps_train.parts.legacy.classic import ending
from tests.tensorflow_mode import tf


def error_of(function):
    """Returns the error with which a function ends."""
    with pytest.raises(Exception) as raised:
        function()
    return raised.value


def fail(error):
    """Raises an error."""
    raise error


@pytest.fixture(autouse=True)
def _no_guess():
    yield
    mode_advice.set_guess(None)


@pytest.mark.parametrize("function", [
    lambda: tf2.log, lambda: tf2.train.AdamOptimizer, lambda: tf2.contrib, lambda: tf2.summary.FileWriter,
    lambda: importlib.import_module("keras.no_such.layers"),
    lambda: exec("from keras.utils import no_such"),
    lambda: fail(ValueError("Argument(s) not recognized: {'lr': 0.1}")),
    lambda: fail(AttributeError("module 'keras.api.backend' has no attribute 'set_session'")),
    lambda: fail(AttributeError("module 'tf_keras.api._v2.keras.backend' has no attribute 'set_session'")),
])
def test_an_error_about_what_tensorflow_1_had_names_its_mode(function):
    """If it was guessed that the script is for TensorFlow 2, and only then."""
    error = error_of(function)
    assert not mode_advice.mode_hint(error)
    mode_advice.set_guess(1)
    assert not mode_advice.mode_hint(error)
    mode_advice.set_guess(2)
    assert "--tf_mode=1 " in mode_advice.mode_hint(error)


@pytest.mark.parametrize("function", [
    lambda: tf.optimizers, lambda: tf.random.set_seed, lambda: iter(tf.data.Dataset.range(3)),
    lambda: tf.constant(1).numpy(),
])
def test_an_error_about_what_runs_eagerly_names_the_mode_of_tensorflow_2(function):
    """If it was guessed that the script is for TensorFlow 1."""
    with tf.Graph().as_default():
        error = error_of(function)
    mode_advice.set_guess(2)
    assert not mode_advice.mode_hint(error)
    mode_advice.set_guess(1)
    assert "--tf_mode=2 " in mode_advice.mode_hint(error)


@pytest.mark.parametrize("layout", [".", "api"])
@pytest.mark.parametrize("error", [
    AttributeError("module 'tf_keras.api._v1.keras.utils' has no attribute 'PyDataset'"),
    ImportError("cannot import name 'PyDataset' from 'tf_keras.api._v1.keras.utils' (/packages/utils/__init__.py)"),
    ModuleNotFoundError("No module named 'tf_keras.api._v1.keras.utils.PyDataset'"),
    AttributeError("module 'tf_keras' has no attribute 'ops'"),
])
def test_a_name_of_keras_3_alone_names_the_mode_of_tensorflow_2(tmp_path, monkeypatch, error, layout):
    """Issue: a script of Keras 3 that was taken for an old one had no advice."""
    package = tmp_path / "keras"
    (package / layout / "utils").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / layout / "utils" / "__init__.py").write_text("from keras.src import PyDataset as PyDataset")
    (package / layout / "__init__.py").write_text("from keras import ops")
    monkeypatch.syspath_prepend(tmp_path)
    mode_advice.set_guess(1)
    assert "--tf_mode=2 " in mode_advice.mode_hint(error)
    assert not mode_advice.mode_hint(type(error)(str(error).replace("PyDataset", "no_such").replace("ops", "no_such")))
    mode_advice.set_guess(2)
    assert "--tf_mode=2 " not in mode_advice.mode_hint(error)


@pytest.mark.parametrize("function", [
    lambda: tf2.no_such, lambda: tf.no_such, lambda: importlib.import_module("no_such"), lambda: [][1],
    lambda: tf2.train.no_such, lambda: fail(ValueError("a value")),
])
@pytest.mark.parametrize("guess", [1, 2])
def test_another_error_names_no_mode(guess, function):
    """A misspelt name, a module that is not installed."""
    mode_advice.set_guess(guess)
    assert not mode_advice.mode_hint(error_of(function))


def test_the_report_of_a_script_has_the_advice(capsys):
    """Issue: the report named no flag, and a guess that was wrong looked like a fault of the script."""
    mode_advice.set_guess(2)
    ending.report_failure(error_of(lambda: tf2.log))
    assert "--tf_mode=1 " in capsys.readouterr().err.splitlines()[-1]
