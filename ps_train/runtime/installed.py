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
import os
import re
import sys
from collections.abc import Iterator, Sequence

from ps_train.errors import Problem, refuse
from ps_train.runtime import keras_import, logs

OLDEST = "2.14"
_RANGE = f"{OLDEST} or newer (tested: 2.14 to 2.21)"


def import_tensorflow(*, needs_gpu: bool, tf_log: bool, needs_keras: bool = False) -> None:
    """Checks TensorFlow and imports it, after setting what its import reads: GPUs, Keras, and the log level.

    Args:
      needs_keras: import Keras, too, and not when it is first used.

    Raises:
      ConfigError: TensorFlow is not installed, or too old.
    """
    check_tensorflow()
    if not needs_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    keras_import.prefer()
    lift_memory_limit()
    with _without_collections(), contextlib.nullcontext() if needs_keras else keras_import.postponing():
        if tf_log:
            import tensorflow  # noqa: F401, PLC0415 (that it is imported here is the point)
        else:
            logs.import_tensorflow_quietly()


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


def lift_memory_limit() -> None:
    """Lets TensorFlow reserve more memory than there is, unless the user has set a limit; before its first session.

    A dynamic embedding table reserves addresses for all rows that it may ever have; the system provides the memory as
    rows are written. TensorFlow's allocator with oneDNN counts reserved memory, and refuses more than the machine has.
    """
    os.environ.setdefault("TF_MKL_ALLOC_MAX_BYTES", str(2**46))


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
