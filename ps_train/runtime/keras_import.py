"""Chooses the Keras that TensorFlow uses, and when it is imported.

`tf.layers` and TensorFlow 1's RNN cells come from tf_keras; Keras 3 does not have them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

from ps_train.runtime import tensorflow_errors

VARIABLE = "TF_USE_LEGACY_KERAS"
_MODULES = ("keras.src", "tf_keras.src")
# From util/lazy_loader.py: without tf_keras; with the variable set but without tf_keras.
_COMPLAINTS = ("is not available with Keras 3", "Keras cannot be imported")


def prefer() -> None:
    """Chooses tf_keras if it is installed, unless the user has chosen; call this before TensorFlow is imported."""
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault(VARIABLE, "1")


@contextlib.contextmanager
def postponing() -> Iterator[None]:
    """Lets TensorFlow be imported in its body without Keras, which is then imported when `tf.keras` is first used."""
    # The last step of importing TensorFlow imports Keras, to know Keras optimizers in SavedModels, and ignores a
    # failure. Of 2.9 s with TensorFlow 2.21, that takes 0.2 s with tf_keras, 0.4 s with Keras 3, and 0.6 s with
    # Keras 3 and matplotlib.
    imported: dict[str, Any] = sys.modules
    hidden = [name for name in _MODULES if name not in imported]
    imported.update(dict.fromkeys(hidden))  # Python cannot import a module that is None there
    try:
        yield
    finally:
        for name in hidden:
            del imported[name]


def advice(error: Exception) -> str | None:
    """Returns a line that says how to avoid an error that tf_keras would prevent, or None for any other error."""
    complaint = tensorflow_errors.reason(error)
    if not any(known in complaint for known in _COMPLAINTS):
        return None
    return (f"{complaint.rstrip('.')}; tf.layers and tf.nn.rnn_cell need tf_keras (pip install 'ps_train[keras]'), and "
            f"{VARIABLE} not set to 0")
