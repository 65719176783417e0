"""The line about a name that TensorFlow no longer has."""

from __future__ import annotations

import pytest

from ps_train import errors
from ps_train.parts.legacy.names import namespace

ADVICE = {"tf.contrib": "outer", "tf.contrib.crf": "copy it", "tf.contrib.crf.decode": "write it"}


@pytest.mark.parametrize(("full", "hint"), [
    ("tf.contrib.crf.decode", "write it"),
    ("tf.contrib.crf.encode", "copy it"),
    ("tf.contrib.other.name", "outer"),
    ("tf.other", "ps_train has no stand-in for it"),
])
def test_the_advice_is_that_of_the_nearest_entry(full, hint):
    """The name's own advice, else that of its module."""
    assert str(namespace.name_error(full, (), ADVICE)).endswith(f": {hint}")


def test_the_line_names_the_line_of_the_script_that_asked():
    """Neither ps_train's own frames nor those of TensorFlow, but this one."""
    error = namespace.name_error("tf.mul", (), {})
    assert f"tf.mul is not in TensorFlow {namespace._version()} ({__file__}:" in str(error)
    assert "\n" not in str(error)


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    """Before any other advice: with the package the name would be there."""
    monkeypatch.setattr(namespace, "_is_there", lambda package: package != "tf_slim")
    error = namespace.name_error("tf.contrib.layers.dropout", ("tf_slim.layers",), ADVICE)
    assert str(error).endswith("it needs TF-Slim: pip install 'ps_train[legacy]'")


def test_the_estimator_is_missing_unless_it_was_put_in_its_place(monkeypatch):
    """The package alone cannot be imported on TensorFlow 2.16 and later."""
    monkeypatch.setitem(namespace.sys.modules, "tensorflow.compat.v1", object())
    places = ("ps_train.parts.legacy.names.learn:X",)
    error = namespace.name_error("tf.contrib.learn.RunConfig", places, {})
    assert str(error).endswith("it needs the Estimator: pip install 'ps_train[estimator]'")


@pytest.mark.parametrize(("error", "kind"), [
    (errors.MissingNameError, AttributeError), (errors.MissingModuleError, ImportError)])
def test_both_errors_are_what_python_expects_too(error, kind):
    """So hasattr and `except ImportError` of a script work, and ps_train shows the line without a traceback."""
    assert issubclass(error, kind) and issubclass(error, errors.UserCodeError)
    assert str(error("missing_name", "no tf.mul")) == "no tf.mul"
