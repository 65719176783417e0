"""TensorFlow's own copy of an older Keras, `tensorflow.python.keras`, where scripts have imported tf.keras from.

    a script            from tensorflow.python.keras import layers     Keras 2: models of the copy are none for tf.keras
    TensorFlow itself   from tensorflow.python.keras import backend    its copy, also where it is loaded late
    either              from tensorflow.python.keras.utils import tf_utils    a file that Keras 2 keeps private
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

from ps_train.parts.legacy.names.moved import COPIES


def replace_copies() -> None:
    """Puts Keras 2 in the place of the copy's modules, for all code but TensorFlow's own."""
    for name, today in COPIES.items():
        parent, _, leaf = name.rpartition(".")
        module = importlib.import_module(today)
        if importlib.util.find_spec(name) is not None:  # else the copy has none, and nothing of TensorFlow asks
            module = KerasModule(importlib.import_module(name), module)
        sys.modules[name] = module
        setattr(importlib.import_module(parent), leaf, module)


class KerasModule(types.ModuleType):
    """A module of the copy, with the names of Keras 2 for scripts; files beside it can still be imported."""

    def __init__(self, copy: types.ModuleType, today: types.ModuleType) -> None:
        super().__init__(copy.__name__, copy.__doc__)
        self.__dict__.update({name: value for name, value in vars(copy).items() if name in (
            "__file__", "__loader__", "__package__", "__path__", "__spec__")}, _copy=copy, _today=today)

    def __getattr__(self, leaf: str) -> Any:
        # Who asks is the code that reads the attribute: a function of TensorFlow, or of the script.
        is_inside = str(sys._getframe(1).f_globals.get("__name__")).startswith("tensorflow.")  # noqa: SLF001
        first, second = (self._copy, self._today) if is_inside else (self._today, self._copy)
        if leaf == "__all__":
            return getattr(first, "__all__", None) or [name for name in dir(first) if not name.startswith("_")]
        return getattr(first if hasattr(first, leaf) else second, leaf)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._today)})
