"""TensorFlow's own copy of an older Keras, `tensorflow.python.keras`, where scripts have imported tf.keras from.

    a script            from tensorflow.python.keras import layers     Keras 2: models of the copy are none for tf.keras
    TensorFlow itself   from tensorflow.python.keras import backend    its copy, also where it is loaded late
    either              from tensorflow.python.keras.utils import tf_utils    a file that Keras 2 keeps private
"""

from __future__ import annotations

import importlib
import importlib.util

from ps_train.parts.legacy.names.moved import COPIES
from ps_train.parts.legacy.names.script_modules import ScriptModule, replace_module


def replace_copies() -> None:
    """Puts Keras 2 in the place of the copy's modules, for all code but TensorFlow's own."""
    for name, today in COPIES.items():
        module = importlib.import_module(today)
        if importlib.util.find_spec(name) is not None:  # else the copy has none, and nothing of TensorFlow asks
            module = ScriptModule(importlib.import_module(name), module)
        replace_module(name, module)
