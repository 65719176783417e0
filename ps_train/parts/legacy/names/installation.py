"""Puts the stand-in for TensorFlow 1 in TensorFlow's place, for this whole process."""

from __future__ import annotations

import sys
import types

import tensorflow as tf2
import tensorflow.compat.v1 as tf1

from ps_train.parts.legacy.names import inside, repaired
from ps_train.parts.legacy.names.importing import Finder
from ps_train.parts.legacy.names.libraries import pandas_calls
from ps_train.parts.legacy.names.namespace import Namespace
from ps_train.parts.legacy.names.tables import TABLES

# Folders of TensorFlow that are no part of its public names.
_PRIVATE = ("python", "core", "compiler", "tools", "lite", "_api", "include", "tsl", "security", "dtensor")


def put_in_place() -> None:
    """Makes `import tensorflow as tf` find the names of TF1, from now on and in every module of this process.

    Call it once, after TensorFlow was imported with TF_USE_LEGACY_KERAS=1 and `tf.disable_v2_behavior()` was called.
    """
    if isinstance(sys.modules["tensorflow"], Namespace):
        return
    repaired.repair()
    inside.move_back()
    root = Namespace("tf", TABLES, own=(tf1, tf2))
    for name in ("__path__", "__file__", "__spec__", "__version__", "__git_version__", "__compiler_version__"):
        if hasattr(tf2, name):
            root.__dict__[name] = getattr(tf2, name)
    sys.modules["tensorflow"] = root
    if "pandas" in sys.modules:  # tf_keras imports it
        pandas_calls.restore_pandas(sys.modules["pandas"])
    sys.meta_path.insert(0, Finder())
    _take_over_loaded(root)


def _take_over_loaded(root: Namespace) -> None:
    """Puts TF1's `tf.distribute` and the like in place of TF2's that are loaded already."""
    for fullname, module in list(sys.modules.items()):
        package, _, leaf = fullname.partition(".")
        if package != "tensorflow" or not leaf or "." in leaf or leaf in _PRIVATE:
            continue
        found = getattr(root, leaf, None)
        if isinstance(found, types.ModuleType):
            # The files in TensorFlow's folder of that name can still be imported.
            found.__dict__["__path__"] = list(getattr(module, "__path__", []))
            sys.modules[fullname] = found
