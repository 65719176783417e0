"""The import of TensorFlow and Keras: without start-up messages, and which Keras `tf.layers` uses."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import warnings

import pytest

from ps_train.graph import plugin_calls
from ps_train.runtime import installed
from tests import clusters
from tests.processes import REPO, TaskCluster


@pytest.fixture
def choice(monkeypatch):
    """A function that makes the choice, with or without tf_keras, and returns TF_USE_LEGACY_KERAS."""
    def choose(is_installed, variable=None):
        monkeypatch.setattr(installed.importlib.util, "find_spec", lambda name: object() if is_installed else None)
        monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
        if variable is not None:
            monkeypatch.setenv("TF_USE_LEGACY_KERAS", variable)
        installed.prefer_tf_keras()
        return os.environ.get("TF_USE_LEGACY_KERAS")

    return choose


def test_tf_keras_is_chosen_where_it_is_installed(choice):
    """Otherwise TensorFlow would not find it."""
    assert choice(is_installed=True) == "1"
    assert choice(is_installed=False) is None


def test_a_choice_of_the_user_is_kept(choice):
    """Also one against tf_keras."""
    assert choice(is_installed=True, variable="0") == "0"


# In sync, the gradients go elsewhere; that says nothing about layers.
@pytest.mark.parametrize("flags", [[], ["--communication_period=10"]], ids=["async", "local"])
def test_a_model_of_tf_layers_trains(tmp_path, start_process, flags):
    """With tf_keras."""
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
    """The error of TensorFlow does not; the user has chosen Keras 3."""
    pytest.importorskip("keras", minversion="3")
    for name in ("layered", "tiny"):
        shutil.copy(REPO / f"tests/plugins/{name}.py", tmp_path)
    start_process.start("worker-0", [*TaskCluster(1, 1).flags("worker", 0), "--model=layered", "--dataset=tiny",
                                     f"--train_dir={tmp_path}/train"], cwd=tmp_path, env={"TF_USE_LEGACY_KERAS": "0"})
    assert start_process.exit_code("worker-0") == 1
    [line] = start_process.log("worker-0").splitlines()
    assert line.startswith("ps_train: layered.model_fn: ") and "(pip install 'ps_train[keras]')" in line


@pytest.mark.parametrize(("kind", "use"), [
    ("keras", "tf.keras.layers.Dense(3)"),
    ("keras", "from tensorflow import keras; keras.Model"),
    ("tf_keras", "import tensorflow.keras.layers"),
])
def test_keras_is_imported_when_it_is_first_used(kind, use):
    """Not with TensorFlow, in any of the ways to name it."""
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


def test_keras_is_imported_with_tensorflow_on_request():
    """A Keras that is imported already is left as it is."""
    pytest.importorskip("tf_keras")
    _run_python("""
import sys
from ps_train.runtime import installed
installed.import_tensorflow(needs_gpu=False, tf_log=False, needs_keras=True)
known = sys.modules["tf_keras.src"]
assert known is not None
with installed.postponing_keras():
    assert sys.modules["tf_keras.src"] is known
assert sys.modules["tf_keras.src"] is known
""", "tf_keras")


@pytest.mark.parametrize("kind", ["keras", "tf_keras"])
def test_autograph_takes_keras_as_a_library(kind):
    """TensorFlow 2.15 and 2.16 converted all that `fit` of tf_keras calls, layer by layer."""
    pytest.importorskip(kind)
    _run_python("""
from ps_train.runtime import installed
installed.import_tensorflow(needs_gpu=False, tf_log=False, needs_keras=True)
import tensorflow as tf
from tensorflow.python.autograph.impl import conversion
assert conversion.is_allowlisted(tf.keras.Model.train_step)
assert conversion.is_allowlisted(tf.keras.layers.Dense.call)
""", kind)


def test_a_process_takes_of_a_gpu_only_the_memory_that_it_needs():
    """Whatever creates the first device, such as the input pipeline: two workers may share a GPU."""
    _run_python("""
import os
from ps_train.runtime import installed
installed.import_tensorflow(needs_gpu=True, tf_log=False)
assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
""", "keras")


def _run_python(code, kind):
    environ = {**os.environ, "TF_USE_LEGACY_KERAS": str(int(kind == "tf_keras"))}
    ended = subprocess.run([sys.executable, "-c", code], cwd=REPO, env=environ, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=120)
    assert ended.returncode == 0, ended.stdout


def test_another_error_needs_no_advice():
    """A misspelt name, for example."""
    assert plugin_calls._keras_advice(AttributeError("module 'x' has no attribute 'dense'")) is None
    advice = plugin_calls._keras_advice(ImportError("Keras cannot be imported. Check it."))
    assert "pip install 'ps_train[keras]'" in advice


def _import_quietly(search_path, **environ):
    """Runs `import_tensorflow_quietly` in a new process; modules in `search_path` go first."""
    code = ("import os; from ps_train.runtime import installed; installed.import_tensorflow_quietly(); "
            "print(os.environ['TF_CPP_MIN_LOG_LEVEL']); os.write(2, b'after')")
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(search_path), str(REPO)]), **environ})


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A function that makes a module named tensorflow which, imported, writes to descriptor 2 and runs a line."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)

    def make(line=""):
        (tmp_path / "tensorflow.py").write_text(f"import os\nos.write(2, b'noise from C++')\n{line}\n")
        return tmp_path

    return make


def test_start_up_messages_of_tensorflow_are_hidden(stand_in):
    """Later output is shown."""
    ended = _import_quietly(stand_in())
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "after")


def test_a_failing_import_shows_everything(stand_in):
    """The output of TensorFlow and the traceback."""
    ended = _import_quietly(stand_in("raise ImportError('no libcudart')"))
    assert ended.returncode == 1
    assert "noise from C++" in ended.stderr and "ImportError: no libcudart" in ended.stderr


def test_the_log_level_of_the_user_is_kept(stand_in):
    """ps_train sets only the default of TF_CPP_MIN_LOG_LEVEL."""
    assert _import_quietly(stand_in(), TF_CPP_MIN_LOG_LEVEL="0").stdout == "0\n"


def test_the_real_tensorflow_is_quiet(tmp_path, monkeypatch):
    """The TensorFlow that is installed writes nothing while it is imported."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    ended = _import_quietly(tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "after")


def test_the_python_logger_of_tensorflow_is_quiet():
    """It logs errors only, and deprecation warnings are ignored."""
    level = logging.getLogger("tensorflow").level
    with warnings.catch_warnings():
        installed.import_tensorflow_quietly()  # a second time
        assert any(entry[0] == "ignore" and entry[3] and entry[3].match("tensorflow.python")
                   for entry in warnings.filters)
        assert logging.getLogger("tensorflow").level == logging.ERROR
    logging.getLogger("tensorflow").setLevel(level)


def test_an_import_that_aborts_shows_everything(stand_in):
    """As on a CPU without AVX: no code of this process runs any more."""
    ended = _import_quietly(stand_in("os.abort()"))
    assert (ended.returncode, ended.stderr) == (-signal.SIGABRT, "noise from C++")


def test_an_import_needs_no_second_process(stand_in, tmp_path):
    """A limit may leave none to this user."""
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, os\ndef fork():\n    raise BlockingIOError(errno.EAGAIN, 'no process')\nos.fork = fork\n")
    ended = _import_quietly(stand_in())
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "noise from C++after")


def test_an_import_needs_no_temporary_folder(stand_in, tmp_path):
    """The disk may be full."""
    ended = _import_quietly(stand_in(
        "import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/nowhere']\n"), TMPDIR="/nowhere")
    assert (ended.returncode, ended.stderr) == (0, "after")
