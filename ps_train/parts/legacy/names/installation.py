"""Puts the stand-in for TensorFlow 1 in TensorFlow's place, for this whole process.

`import tensorflow.contrib.slim as slim` finds what `tf.contrib.slim` finds: import statements are answered by `Finder`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf1

from ps_train.errors import MissingModuleError
from ps_train.parts.legacy.names import repairs
from ps_train.parts.legacy.names.namespace import Namespace
from ps_train.parts.legacy.names.tables import PACKAGES, TABLES

# Folders of TensorFlow that are no part of its public names.
_PRIVATE = ("python", "core", "compiler", "tools", "lite", "_api", "include", "tsl", "security", "dtensor")


def put_in_place() -> None:
    """Makes `import tensorflow as tf` find the names of TF1, from now on and in every module of this process.

    Call it once, after TensorFlow was imported with TF_USE_LEGACY_KERAS=1 and `tf.disable_v2_behavior()` was called.
    """
    if isinstance(sys.modules["tensorflow"], Namespace):
        return
    repairs.repair()
    root = Namespace("tf", TABLES, modules=(tf1, tf2))
    for name in ("__path__", "__file__", "__spec__", "__version__", "__git_version__", "__compiler_version__"):
        if hasattr(tf2, name):
            root.__dict__[name] = getattr(tf2, name)
    sys.modules["tensorflow"] = root
    if "pandas" in sys.modules:  # tf_keras imports it
        repairs.restore_pandas(sys.modules["pandas"])
    sys.meta_path.insert(0, Finder())
    _take_over_loaded(root)


def _take_over_loaded(root: Namespace) -> None:
    """Replaces TF2's `tf.distribute` and the like by TF1's, where they are loaded already."""
    for fullname, module in list(sys.modules.items()):
        package, _, leaf = fullname.partition(".")
        if package != "tensorflow" or not leaf or "." in leaf or leaf in _PRIVATE:
            continue
        namespace = getattr(root, leaf, None)
        if isinstance(namespace, types.ModuleType):
            # The files in TensorFlow's folder of that name can still be imported.
            namespace.__dict__["__path__"] = list(getattr(module, "__path__", []))
            sys.modules[fullname] = namespace


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the submodules of each Namespace; those that only lie in TensorFlow's folders are left to Python."""

    def find_spec(self, fullname, path=None, target=None):
        """Returns a spec that leads to the submodule, or None for modules that are not below a Namespace.

        Raises:
          MissingModuleError: the submodule does not exist, and an import statement asks. It says what to use instead.
        """
        if fullname == "pandas":
            return _restoring_spec(fullname, path, target)
        if _today_name(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        parent, _, leaf = fullname.rpartition(".")
        namespace = sys.modules.get(parent)
        if not isinstance(namespace, Namespace):
            return None
        try:
            value = getattr(namespace, leaf)
        except AttributeError as error:
            if importlib.machinery.PathFinder.find_spec(fullname, namespace.__path__):
                return None
            return _refuse(fullname, str(error))
        if not isinstance(value, types.ModuleType):
            return _refuse(fullname, f"{fullname} is no module: write from {parent} import {leaf}")
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        """Leaves it to Python to make a module, which `exec_module` exchanges."""
        return None

    def exec_module(self, module):
        """Puts the module that the parent knows, or that has another name today, instead of the new one."""
        today = _today_name(module.__name__)
        parent, _, leaf = module.__name__.rpartition(".")
        sys.modules[module.__name__] = (
            importlib.import_module(today) if today else getattr(sys.modules[parent], leaf))


def _refuse(fullname: str, text: str) -> None:
    """Raises MissingModuleError for an import statement; returns None where code only asks whether there is a module.

    `pydoc.locate` and the like recognise the error by its name. With one, `from a import b` would drop the text for
    one of its own.
    """
    callers = _import_system()
    if "_find_and_load" in callers:
        raise MissingModuleError(text, name=None if "_handle_fromlist" in callers else fullname) from None


def _import_system() -> set[str]:
    """Returns the names of the functions of Python's import system that have called, up to the first other code."""
    names, frame = set(), sys._getframe(2)  # noqa: SLF001 (the only way to the frames without their source text)
    while frame is not None and (frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename):
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names


def _restoring_spec(fullname: str, path: Any, target: Any) -> importlib.machinery.ModuleSpec | None:
    """Returns the spec of pandas, whose old methods are set once it is loaded; None if it is not installed."""
    spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
    if spec is not None and spec.loader is not None:
        load = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            load(module)
            repairs.restore_pandas(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def _today_name(fullname: str) -> str | None:
    """Returns today's name of a module in one of PACKAGES, or None."""
    for old, today in PACKAGES.items():
        if fullname == old or fullname.startswith(old + "."):
            return today + fullname.removeprefix(old)
    return None
