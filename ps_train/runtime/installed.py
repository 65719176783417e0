"""Checks which TensorFlow is installed, without importing it, which would take seconds; imports it for a verb.

    python -m ps_train.runtime.installed [MODULE...]    prints what is missing and exits with 1 (for setup_env.sh)

Several packages contain the module (tensorflow, tensorflow-cpu, those of vendors). Requirements of a Python package
cannot express such a choice, so setup.py requires none of them, and this module checks instead.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import importlib.util
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from ps_train.errors import Problem, refuse

KERAS_VARIABLE = "TF_USE_LEGACY_KERAS"
_IMPORTED = b"\0ps_train has imported TensorFlow\0"
_READ_BYTES = 1 << 16
_KERAS_MODULES = ("keras.src", "tf_keras.src")
OLDEST = "2.14"
is_verbose = False  # --tf_log, as `import_tensorflow` was told
_RANGE = f"{OLDEST} or newer (tested: 2.14 to 2.21)"


def import_tensorflow(*, needs_gpu: bool, tf_log: bool, needs_keras: bool = False) -> None:
    """Checks TensorFlow and imports it, after setting what its import reads: GPUs, Keras, and the log level.

    Args:
      needs_keras: import Keras, too, and not when it is first used.

    Raises:
      ConfigError: TensorFlow is not installed, or too old.
    """
    global is_verbose
    is_verbose = tf_log
    check_tensorflow()
    if not needs_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # tasks may share a GPU, so none takes all its memory
    prefer_tf_keras()
    prepare_native_code()
    with _without_collections(), contextlib.nullcontext() if needs_keras else postponing_keras():
        if tf_log:
            import tensorflow  # noqa: F401, PLC0415 (that it is imported here is the point)
        else:
            import_tensorflow_quietly()
    from tensorflow.python.autograph.core import config  # noqa: PLC0415 (with TensorFlow, as above)
    # TensorFlow 2.15 and 2.16 do not know that tf_keras is a library: AutoGraph would convert all that `fit` calls.
    config.CONVERSION_RULES += (config.DoNotConvert("tf_keras"),)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Imports modules whose objects Python's cyclic garbage collector never visits.

    TensorFlow makes some 10^6 objects that live as long as the process. Visiting them takes a fifth of the CPU time of
    the import, and most of that of each full collection while a graph is built.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow without its start-up messages; respects a TF_CPP_MIN_LOG_LEVEL that the user has set."""
    # Level 3 and not 2: some versions report as errors that a CUDA library was registered twice (2.14 in
    # tensorflow/tensorflow#62075, 2.15 in #70947). Real failures are Python exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    warnings.filterwarnings("ignore", module="tensorflow")
    # TensorFlow 2.21 writes its first lines before it reads that level: they are shown only if the import fails.
    with _held_stderr():
        import tensorflow  # noqa: F401, PLC0415 (that it is imported here is the point)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)


@contextlib.contextmanager
def _held_stderr() -> Iterator[None]:
    """Shows what its body writes to descriptor 2 only if the body fails, or the process dies in it.

    A child process holds it: a CPU without AVX, for example, ends the import by SIGABRT, which no code here survives.
    """
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:  # no process is left for this user: then all is shown
        os.close(reader)
        os.close(writer)
        yield
        return
    if not pid:
        os.setsid()  # the signals of this group are not for it
        os.close(writer)
        held = b""
        while not held.endswith(_IMPORTED) and (chunk := os.read(reader, _READ_BYTES)):
            held += chunk
        if not held.endswith(_IMPORTED):
            os.write(2, held)
        os._exit(0)
    stderr = os.dup(2)
    os.dup2(writer, 2)
    os.close(reader)
    os.close(writer)
    try:
        yield
        os.write(2, _IMPORTED)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        with contextlib.suppress(ChildProcessError):  # who started this process lets it ignore SIGCHLD
            os.waitpid(pid, 0)


def prefer_tf_keras() -> None:
    """Chooses tf_keras if it is installed, unless the user has chosen; call this before TensorFlow is imported.

    `tf.layers` and TensorFlow 1's RNN cells come from tf_keras; Keras 3 does not have them.
    """
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault(KERAS_VARIABLE, "1")


@contextlib.contextmanager
def postponing_keras() -> Iterator[None]:
    """Postpones the import of Keras, if TensorFlow is imported in its body, until `tf.keras` is first used."""
    # TensorFlow's import ends with that of Keras, to know Keras optimizers in SavedModels, and ignores a failure. Of
    # 2.9 s (TensorFlow 2.21) that takes 0.2 s with tf_keras, 0.4 s with Keras 3, 0.6 s with Keras 3 and matplotlib.
    imported: dict[str, Any] = sys.modules
    hidden = [name for name in _KERAS_MODULES if name not in imported]
    imported.update(dict.fromkeys(hidden))  # Python cannot import a module that is None there
    try:
        yield
    finally:
        for name in hidden:
            del imported[name]


def prepare_native_code() -> None:
    """Sets what TensorFlow's native code reads before its first session, unless the user has set it.

    A dynamic embedding table reserves addresses for all rows that it may ever have; the system provides the memory as
    rows are written. TensorFlow's allocator with oneDNN counts reserved memory, and refuses more than the machine has.
    """
    os.environ.setdefault("TF_MKL_ALLOC_MAX_BYTES", str(2**46))
    # Otherwise tasks call each other through the proxy that http_proxy names, which mostly refuses them.
    options = os.environ.get("TF_GRPC_DEFAULT_OPTIONS", "")
    if "grpc.enable_http_proxy" not in options:
        os.environ["TF_GRPC_DEFAULT_OPTIONS"] = ",".join(filter(None, (options, "grpc.enable_http_proxy=0")))


def check_tensorflow() -> None:
    """Raises ConfigError, with the command that helps, if TensorFlow is not installed or too old."""
    if problem := tensorflow_problem(tensorflow_version()):
        refuse([problem])


def tensorflow_version() -> str | None:
    """Returns the version, "" if no package gives it (a custom build), or None if TensorFlow is not installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return None
    for package in importlib.metadata.distributions():
        if "tensorflow" in (package.read_text("top_level.txt") or "").split():
            return package.version
    return ""


def tensorflow_problem(version: str | None) -> Problem | None:
    """Returns the problem with that version, or None if ps_train supports it."""
    if version is None:
        return Problem("tensorflow_missing", f"TensorFlow is not installed in {sys.prefix}; allowed: {_RANGE}: `pip "
                       "install tensorflow`, or `pip install tensorflow-cpu` on a machine without a GPU")
    if version and _numbers(version) < _numbers(OLDEST):
        return Problem("tensorflow_too_old", f"TensorFlow is {version} in {sys.prefix}; allowed: {_RANGE}: `pip "
                       "install --upgrade tensorflow`")
    return None


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)[:2]]


def main(modules: Sequence[str]) -> int:
    """Prints what is missing; returns 1 if a module is, otherwise 0."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    problem: str | None = tensorflow_problem(tensorflow_version())
    if missing and not problem:
        problem = f"{sys.prefix} lacks {', '.join(missing)}"
    if problem:
        print(problem)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
