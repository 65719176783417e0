"""What a script is told about a name that is missing: one line, with the line of the script and what to use instead."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import sys
from collections.abc import Mapping, Sequence

from ps_train.errors import MissingNameError

# Entry of a table, or its beginning -> the package that it needs.
NEEDS = {
    "tf_slim": "tf_slim",
    "tf.contrib.slim": "tf_slim",
    "tf.nn.rnn_cell": "tf_keras",
    "tf.layers": "tf_keras",
    "tf.estimator": "tensorflow_estimator",
    "tensorflow_estimator": "tensorflow_estimator",
    "ps_train.parts.legacy.names.contrib.learn": "tensorflow_estimator",
    "tensorboard": "tensorboard",
}
_INSTALL = {
    "tf_slim": "it needs TF-Slim: pip install 'ps_train[legacy]'",
    "tf_keras": "it needs Keras 2: pip install 'ps_train[legacy]'",
    "tensorflow_estimator": "it needs the Estimator: pip install 'ps_train[estimator]'",
    "tensorboard": "it needs TensorBoard: pip install 'ps_train[tensorboard]'",
}
_PACKAGE = pathlib.Path(__file__).resolve().parents[3]
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "tf_slim", "tensorflow_estimator", "absl", "six")


def name_error(full: str, targets: Sequence[str], advice: Mapping[str, str]) -> MissingNameError:
    """Returns the error for a name that was not found.

    Args:
      full: the name as the script writes it, such as "tf.contrib.crf.crf_log_likelihood".
      targets: the entries of the tables that should have led to it, which may need a package.
      advice: missing name, or a module above it -> what to use instead.
    """
    hint = _package_hint((full, *targets)) or _longest(full, advice)
    if hint is None:
        hint = "ps_train has no stand-in for it" + (
            ", and TensorFlow 2 no tf.contrib" if full.startswith("tf.contrib") else "")
    return MissingNameError(f"{full} is not in TensorFlow {_version()} ({script_line()}): {hint}")


def script_line() -> str:
    """Returns "file:line" of the innermost frame that is neither ps_train's nor TensorFlow's."""
    frame = sys._getframe(1)  # noqa: SLF001 (the only way to the frames without their source text)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown line"


def _is_ours(filename: str) -> bool:
    if filename.startswith("<frozen "):
        return True
    path = pathlib.Path(filename)
    if _PACKAGE in path.parents:
        return True
    parts = path.parts
    return any(first in ("site-packages", "dist-packages") and second in _LIBRARIES
               for first, second in zip(parts, parts[1:]))


def _package_hint(names: Sequence[str]) -> str | None:
    for name in names:
        for beginning, package in NEEDS.items():
            if name.startswith(beginning) and not _is_there(package):
                return _INSTALL[package]
    return None


def _is_there(package: str) -> bool:
    if package == "tensorflow_estimator":
        # Without ps_train's bridge the package cannot be imported on TensorFlow 2.16 and later.
        return hasattr(sys.modules.get("tensorflow.compat.v1"), "estimator")
    return importlib.util.find_spec(package) is not None


def _longest(full: str, table: Mapping[str, str]) -> str | None:
    """Returns the entry of a name or of the nearest module above it."""
    while full:
        if full in table:
            return table[full]
        full = full.rpartition(".")[0]
    return None


def _version() -> str:
    # TensorFlow's own `__version__` would be asked of a stand-in.
    for package in ("tensorflow", "tensorflow-cpu"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "2"
