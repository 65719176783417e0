"""Modules inside TensorFlow in which a script finds other objects than TensorFlow's own code does.

In TensorFlow 1, `tensorflow.python.training.server_lib.Server` and `tf.train.Server` were one class. Here the second
is ps_train's, and TensorFlow itself needs the first.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ps_train.parts.legacy.names.moved import AS_PUBLIC
from ps_train.parts.legacy.names.namespace import resolve

_INSIDE = ("tensorflow.", "ps_train.")


class ScriptModule(types.ModuleType):
    """A module of TensorFlow's, with other names for scripts; files beside it can still be imported."""

    def __init__(self, original: types.ModuleType, today: Any) -> None:
        """Takes the module, and the object that has what scripts find, by its attributes."""
        super().__init__(original.__name__, original.__doc__)
        self.__dict__.update({name: value for name, value in vars(original).items() if name in (
            "__file__", "__loader__", "__package__", "__path__", "__spec__")}, _original=original, _today=today)

    def __getattr__(self, leaf: str) -> Any:
        # Who asks is the code that reads the attribute: a function of TensorFlow, or of the script.
        is_inside = str(sys._getframe(1).f_globals.get("__name__")).startswith(_INSIDE)  # noqa: SLF001
        first, second = (self._original, self._today) if is_inside else (self._today, self._original)
        if leaf == "__all__":
            return getattr(first, "__all__", None) or [name for name in dir(first) if not name.startswith("_")]
        return getattr(first if hasattr(first, leaf) else second, leaf)

    def __setattr__(self, leaf: str, value: Any) -> None:
        # What a script replaces there, TensorFlow is to find, too.
        super().__setattr__(leaf, value)
        setattr(self._original, leaf, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._original), *dir(self._today)})


def replace_module(name: str, module: types.ModuleType) -> None:
    """Lets import statements find a module by another name, in the place of the one that had it."""
    parent, _, leaf = name.rpartition(".")
    sys.modules[name] = module
    setattr(importlib.import_module(parent), leaf, module)


def offer_public_names(root: Any) -> None:
    """Lets scripts find the classes of `tf` in modules inside TensorFlow; `root` is the script's `tf`."""
    for name, public in AS_PUBLIC.items():
        module = importlib.import_module(name)
        replace_module(name, ScriptModule(module, _Public(root, public, getattr(module, "__all__", dir(module)))))


class _Public:
    """The names of `tf` that a module has, each looked up when it is asked for."""

    def __init__(self, root: Any, public: Mapping[str, str], names: Sequence[str]) -> None:
        self._root, self._public = root, public
        self.__all__ = [name for name in sorted({*names, *public}) if not name.startswith("_")]

    def __dir__(self) -> list[str]:
        return list(self._public)

    def __getattr__(self, leaf: str) -> Any:
        if leaf not in self._public:
            raise AttributeError(leaf)
        return resolve(self._public[leaf], self._root)
