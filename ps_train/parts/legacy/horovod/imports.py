"""Where `import` finds Horovod's modules, whether Horovod is installed or not.

    horovod.tensorflow, .mpi_ops, ...      module.py, whose names they share
    horovod.keras, horovod.tensorflow.keras and their callbacks    keras_names.py: one Keras, Keras 2, has both names
    any other                              one line

A script of TensorFlow 2 gets one line, too: the stand-ins build graphs.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any

from ps_train.errors import ConfigError, MissingModuleError
from ps_train.parts.legacy.horovod import module as horovod_module
from ps_train.parts.legacy.names.namespace import script_line

_VERSION = "0.28.1"  # the newest one, whose names these are; scripts ask whether it is a later one than some other
_KERAS = ("horovod.keras", f"{horovod_module.NAME}.keras")
_CALLBACKS = tuple(f"{name}.callbacks" for name in _KERAS)


def _find_error(fullname: str) -> MissingModuleError:
    return MissingModuleError(
        "horovod_name_missing", f"{fullname} ({script_line()}): ps_train has stand-ins for {horovod_module.NAME}, "
        f"{' and '.join(_KERAS)} only; other scripts need Horovod itself")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that have a stand-in, also where Horovod is installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Returns a spec of these modules; raises MissingModuleError for the others of Horovod."""
        if fullname in ("horovod", horovod_module.NAME, *horovod_module.SUBMODULES, *_KERAS, *_CALLBACKS):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if fullname.partition(".")[0] == "horovod":
            raise _find_error(fullname)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """Leaves the package to Python."""
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Puts a stand-in in place of the module."""
        name = module.__name__
        if name == "horovod":
            module.__version__, module.__file__ = _VERSION, __file__
        elif name in _KERAS:
            sys.modules[name] = _keras_module(name)
        elif name in _CALLBACKS:
            sys.modules[name] = sys.modules[name.rpartition(".")[0]].callbacks
        else:
            ours = sys.modules[name] = horovod_module
            ours.__path__ = []  # so that its submodules can be imported


def _keras_module(name: str) -> types.ModuleType:
    """Returns the stand-in of `horovod.keras`, from the script's first import of it.

    Raises:
      ConfigError: tf_keras is not installed, or `init` was called before.
    """
    if importlib.util.find_spec("tf_keras") is None:
        raise ConfigError("package_missing", f"{name} ({script_line()}) needs Keras 2, and tf_keras is not installed; "
                          "pip install 'ps_train[keras]'")
    horovod_module.keep_variables()
    from ps_train.parts.legacy.horovod import keras_names  # noqa: PLC0415 (it needs Keras 2)

    return keras_names.stand_in_of_keras()


def offer(server_class: Any) -> None:
    """Lets import statements find the modules; `server_class` is that of `init`."""
    horovod_module.use_server(server_class)
    sys.meta_path.insert(0, _Finder())


class _Refusal(importlib.abc.MetaPathFinder):
    """Says what a TensorFlow 2 script with Horovod can do."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Raises MissingModuleError for Horovod in a cluster, or where it is not installed."""
        if fullname.partition(".")[0] != "horovod":
            return None
        is_installed = importlib.machinery.PathFinder.find_spec("horovod") is not None
        if is_installed and not os.environ.get("TF_CONFIG", "").strip():
            return None
        raise MissingModuleError(
            "horovod_tensorflow_2", f"{fullname} ({script_line()}): ps_train run has Horovod's names for scripts of "
            "TensorFlow 1 only, which build graphs, and this one is for TensorFlow 2; start it with horovodrun, or "
            "move it to tf.distribute or `ps_train keras`; if it builds graphs, give --tf_mode=1")


def refuse_in_tensorflow_2() -> None:
    """Lets an import of Horovod fail with one line, in a script of TensorFlow 2."""
    sys.meta_path.insert(0, _Refusal())
