"""Which Keras `tf.layers` uses, and when Keras is imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from ps_train.runtime import keras_import
from tests import clusters
from tests.processes import REPO, TaskCluster


@pytest.fixture
def choice(monkeypatch):
    """A function that makes the choice, with or without tf_keras, and returns TF_USE_LEGACY_KERAS."""
    def choose(is_installed, before=None):
        monkeypatch.setattr(keras_import.importlib.util, "find_spec", lambda name: object() if is_installed else None)
        monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
        if before is not None:
            monkeypatch.setenv("TF_USE_LEGACY_KERAS", before)
        keras_import.prefer()
        return os.environ.get("TF_USE_LEGACY_KERAS")

    return choose


def test_tf_keras_is_chosen_where_it_is_installed(choice):
    """Elsewhere TensorFlow would not find it."""
    assert choice(is_installed=True) == "1"
    assert choice(is_installed=False) is None


def test_a_choice_of_the_users_own_is_kept(choice):
    """Also one against it."""
    assert choice(is_installed=True, before="0") == "0"


# In sync, the gradients go elsewhere; that says nothing about layers.
@pytest.mark.parametrize("flags", [[], ["--communication_period=10"]], ids=["async", "local"])
def test_a_model_of_tf_layers_trains(tmp_path, start_process, flags):
    """Issue: docs/migrate.md said that it cannot."""
    pytest.importorskip("tf_keras")
    for name in ("layered", "tiny"):
        shutil.copy(REPO / f"tests/plugins/{name}.py", tmp_path)
    TaskCluster(1, 1).start(
        start_process, ["--model=layered", "--dataset=tiny", "--batch_size=16", "--train_steps=100",
                        f"--train_dir={tmp_path}/train", *flags], cwd=tmp_path)
    assert set(start_process.wait().values()) == {0}
    assert "held-out examples:\n  loss = " in start_process.log("worker-0")
    names = clusters.read_checkpoint(tmp_path / "train").keys()
    assert {"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"} <= names


def test_without_tf_keras_a_line_says_what_to_install(tmp_path, start_process):
    """TensorFlow's own error does not; here the user has chosen Keras 3."""
    pytest.importorskip("keras", minversion="3")
    for name in ("layered", "tiny"):
        shutil.copy(REPO / f"tests/plugins/{name}.py", tmp_path)
    start_process.start("worker-0", [*TaskCluster(1, 1).flags("worker", 0), "--model=layered", "--dataset=tiny",
                                     f"--train_dir={tmp_path}/train"], cwd=tmp_path, env={"TF_USE_LEGACY_KERAS": "0"})
    assert start_process.exit_code("worker-0") == 1
    assert start_process.log("worker-0") == (
        "ps_train: layered.model_fn: `dense` is not available with Keras 3; tf.layers and tf.nn.rnn_cell need tf_keras "
        "(pip install 'ps_train[keras]'), and TF_USE_LEGACY_KERAS not set to 0\n")


@pytest.mark.parametrize(("kind", "use"), [
    ("keras", "tf.keras.layers.Dense(3)"),
    ("keras", "from tensorflow import keras; keras.Model"),
    ("tf_keras", "import tensorflow.keras.layers"),
])
def test_keras_is_imported_when_it_is_first_used(kind, use):
    """Not with TensorFlow: its first use finds it, in whichever way a model names it."""
    pytest.importorskip(kind)
    code = f"""
import sys
from ps_train.runtime import installed
installed.import_tensorflow(needs_gpu=False, tf_log=False)
import tensorflow as tf
assert not {{"keras.src", "tf_keras.src"}} & sys.modules.keys()
{use}
assert {{"keras.src", "tf_keras.src"}} & sys.modules.keys() == {{"{kind}.src"}}
"""
    _run_python(code, kind)


def test_who_needs_keras_gets_it_with_tensorflow():
    """As without ps_train; and one that is imported already is left as it is."""
    pytest.importorskip("tf_keras")
    _run_python("""
import sys
from ps_train.runtime import installed, keras_import
installed.import_tensorflow(needs_gpu=False, tf_log=False, needs_keras=True)
known = sys.modules["tf_keras.src"]
assert known is not None
with keras_import.postponing():
    assert sys.modules["tf_keras.src"] is known
assert sys.modules["tf_keras.src"] is known
""", "tf_keras")


def _run_python(code, kind):
    environ = {**os.environ, "TF_USE_LEGACY_KERAS": str(int(kind == "tf_keras"))}
    ended = subprocess.run([sys.executable, "-c", code], cwd=REPO, env=environ, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=120)
    assert ended.returncode == 0, ended.stdout


def test_another_error_needs_no_advice():
    """A misspelt name of the user's own, say."""
    assert keras_import.advice(AttributeError("module 'x' has no attribute 'dense'")) is None
    assert "pip install 'ps_train[keras]'" in keras_import.advice(ImportError("Keras cannot be imported. Check it."))
