"""Which Keras `tf.layers` and TensorFlow 1's RNN cells come from: TensorFlow decides it while it is imported."""

from __future__ import annotations

import importlib.util
import os

from ps_train.runtime import tensorflow_errors

_VARIABLE = "TF_USE_LEGACY_KERAS"
# util/lazy_loader.py: without tf_keras; with the variable set and without tf_keras.
_COMPLAINTS = ("is not available with Keras 3", "Keras cannot be imported")


def prefer() -> None:
    """Chooses tf_keras where it is installed: Keras 3 has no `tf.layers`. A choice of the user's own is kept."""
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault(_VARIABLE, "1")


def advice(error: Exception) -> str | None:
    """Returns a line on what to do about an error that tf_keras would prevent, or None of any other."""
    complaint = tensorflow_errors.reason(error)
    if not any(known in complaint for known in _COMPLAINTS):
        return None
    return (f"{complaint.rstrip('.')}; tf.layers and tf.nn.rnn_cell need tf_keras (pip install 'ps_train[keras]'), and "
            f"{_VARIABLE} not set to 0")
