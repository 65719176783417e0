"""Chooses the Keras from which `tf.layers` and TensorFlow 1's RNN cells come: only tf_keras has them, not Keras 3."""

from __future__ import annotations

import importlib.util
import os

from ps_train.runtime import tensorflow_errors

VARIABLE = "TF_USE_LEGACY_KERAS"
# From util/lazy_loader.py: without tf_keras; with the variable set but without tf_keras.
_COMPLAINTS = ("is not available with Keras 3", "Keras cannot be imported")


def prefer() -> None:
    """Chooses tf_keras if it is installed, unless the user has chosen; call this before TensorFlow is imported."""
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault(VARIABLE, "1")


def advice(error: Exception) -> str | None:
    """Returns a line that says how to avoid an error that tf_keras would prevent, or None for any other error."""
    complaint = tensorflow_errors.reason(error)
    if not any(known in complaint for known in _COMPLAINTS):
        return None
    return (f"{complaint.rstrip('.')}; tf.layers and tf.nn.rnn_cell need tf_keras (pip install 'ps_train[keras]'), and "
            f"{VARIABLE} not set to 0")
