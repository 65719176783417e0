"""Puts TensorFlow 1 in TensorFlow's place, for this whole process.

    sys.modules  `import tensorflow` is a Namespace; by `Finder`, import statements find what its attributes find
    repairs.py   TensorFlow, numpy and absl themselves, where a stand-in would not be reached; uses variables.py
    library.py   what packages such as pandas have lost; nothing here imports them
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
import types
from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf1

from ps_train.errors import MissingModuleError, MissingNameError
from ps_train.parts.legacy.names import (
    examples,
    imp_module,
    keras_arguments,
    keras_copies,
    keras_modules,
    library,
    moved,
    script_modules,
    tables,
)
from ps_train.parts.legacy.names.arrays import set_missing, wrap
from ps_train.parts.legacy.names.missing import MissingName, is_bare_import
from ps_train.parts.legacy.names.namespace import Namespace, name_error
from ps_train.parts.legacy.names.repairs import repair

# Folders of TensorFlow that are no part of its public names.
_PRIVATE = ("python", "core", "compiler", "tools", "lite", "_api", "include", "tsl", "security", "dtensor")
_log = logging.getLogger(__name__)


def install() -> None:
    """Makes `import tensorflow as tf` find the names of TF1, from now on and in every module of this process.

    Call it once, after TensorFlow was imported with TF_USE_LEGACY_KERAS=1 and `tf.disable_v2_behavior()` was called.
    """
    if isinstance(sys.modules["tensorflow"], Namespace):
        return
    repair()
    root = Namespace("tf", tables.TABLES, modules=(tf1, tf2))
    for name in ("__path__", "__file__", "__spec__", "__version__", "__git_version__", "__compiler_version__"):
        if hasattr(tf2, name):
            setattr(root, name, getattr(tf2, name))
    sys.modules["tensorflow"] = root
    set_missing(tf1, "contrib", root.contrib)  # `import tensorflow.compat.v1 as tf`
    for module in (tf1, tf2.compat.v2):  # whose `tf.compat.v1` is a module of its own, without what is set in tf1
        module.compat.v1, module.compat.v2 = tf1, tf2.compat.v2
    if importlib.util.find_spec("tf_keras"):
        wrap("load_data", examples.load_mnist, importlib.import_module("tf_keras.api._v1.keras.datasets.mnist"))
        keras_copies.replace_copies()
        keras_modules.offer_modules()
        keras_arguments.take_old_arguments()
        root.keras.__version__ = importlib.import_module("tf_keras").__version__
        set_missing(importlib.import_module("tensorflow.python.keras"), "__version__", root.keras.__version__)
    script_modules.offer_public_names(root)
    for name in library.RESTORED:
        if name in sys.modules:  # tf_keras imports some
            library.restore_package(sys.modules[name])
    if importlib.util.find_spec("imp") is None:  # since Python 3.12
        sys.modules["imp"] = imp_module
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
            namespace.__path__ = list(getattr(module, "__path__", []))
            sys.modules[fullname] = namespace


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the submodules of each Namespace; those that only lie in TensorFlow's folders are left to Python."""

    def find_spec(self, fullname, path=None, target=None):
        """Returns a spec that leads to the submodule, or None for modules that are not below a Namespace.

        Raises:
          MissingModuleError: an import statement names a submodule that does not exist; it says what to use instead.
        """
        if fullname in library.RESTORED:
            return _restoring_spec(fullname, path, target)
        if _today_name(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        parent, _, leaf = fullname.rpartition(".")
        namespace = sys.modules.get(parent)
        if isinstance(namespace, MissingName):
            return importlib.machinery.ModuleSpec(fullname, self, loader_state=namespace.submodule(fullname))
        if not isinstance(namespace, Namespace):
            return _removed_spec(self, fullname, path)
        try:
            value = getattr(namespace, leaf)
        except AttributeError as error:
            if importlib.machinery.PathFinder.find_spec(fullname, namespace.__path__):
                return None
            callers, frame = _import_system()
            if is_bare_import(frame):
                _log.warning("%s; the script fails where it uses it", error)
                return importlib.machinery.ModuleSpec(fullname, self, loader_state=namespace.missing(leaf))
            return _refuse(fullname, str(error), callers)
        if not isinstance(value, types.ModuleType):
            return _refuse(fullname, f"{fullname} is no module: write from {parent} import {leaf}",
                           _import_system()[0])
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        """Leaves it to Python to make a module, which `exec_module` exchanges."""
        return None

    def exec_module(self, module):
        """Puts the module that the parent knows, or that has another name today, instead of the new one."""
        if (missing := module.__spec__.loader_state) is not None:
            sys.modules[module.__name__] = missing
            return
        today = _today_name(module.__name__)
        if module.__name__ == "keras":
            keras_arguments.take_old_rates()
        parent, _, leaf = module.__name__.rpartition(".")
        sys.modules[module.__name__] = (
            importlib.import_module(today) if today else getattr(sys.modules[parent], leaf))


def _removed_spec(finder: Finder, fullname: str, path: Any) -> importlib.machinery.ModuleSpec | None:
    """Returns the spec of a private module that TensorFlow has removed and a script only imports; else None."""
    package, _, inner = fullname.partition(".")
    if package != "tensorflow" or inner.partition(".")[0] not in _PRIVATE or (
            importlib.machinery.PathFinder.find_spec(fullname, path)):
        return None
    _, frame = _import_system()
    if not is_bare_import(frame):
        return None

    def error() -> MissingNameError:
        return name_error(fullname, (), {fullname: "copy what the script needs of it from TensorFlow 1.15"})

    _log.warning("%s; the script fails where it uses it", error())
    return importlib.machinery.ModuleSpec(fullname, finder, loader_state=MissingName(fullname, error))


def _refuse(fullname: str, message: str, callers: set[str]) -> None:
    """Raises MissingModuleError for an import statement; returns None where code only asks whether a module exists."""
    if "_find_and_load" in callers:
        error = MissingModuleError("tf_name_missing", message)
        # `pydoc.locate` and the like recognise the error by its name. With a name, `from a import b` would replace the
        # message by one of Python's own.
        error.name = None if "_handle_fromlist" in callers else fullname
        raise error from None


def _import_system() -> tuple[set[str], types.FrameType | None]:
    """Returns the names of the functions of Python's import system that have called, and the first other frame."""
    names, frame = set(), sys._getframe(2)  # noqa: SLF001 (the only way to the frames without their source text)
    while frame is not None and (frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename):
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names, frame


def _restoring_spec(fullname: str, path: Any, target: Any) -> importlib.machinery.ModuleSpec | None:
    """Returns the spec of a package, whose old names are set once it is loaded; None if it is not installed."""
    spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
    if spec is not None and spec.loader is not None:
        load = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            load(module)
            library.restore_package(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def _today_name(fullname: str) -> str | None:
    """Returns today's name of a module in one of PACKAGES, or of one whose copy is beside the script; or None."""
    for old, today in moved.PACKAGES.items():
        if fullname == old or fullname.startswith(old + "."):
            return today + fullname.removeprefix(old)
    folder, _, leaf = fullname.rpartition(".")
    is_copied = "tf" + folder.removeprefix("tensorflow") in tables.MODELS
    return leaf if is_copied and importlib.machinery.PathFinder.find_spec(leaf, sys.path[:1]) else None
