"""Offers `tf.estimator` to plug-ins on TensorFlow 2.16 and later, which no longer contains it.

Estimator is only loaded when a plug-in uses it, by `ps_train.parts.legacy.estimator`. The core itself never imports it.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

_HOLDERS = ("tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2")


class OfferedEstimator(types.ModuleType):
    """Stands where Estimator's API will be."""

    def __getattr__(self, name: str) -> Any:
        """Loads Estimator, and returns a name of it.

        Raises:
          ConfigError: a package that it needs is not installed.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        importlib.import_module("ps_train.parts.legacy.estimator").install_estimator()
        return getattr(sys.modules[self.__name__], name)


def offer_estimator() -> None:
    """Puts a module that loads itself on first use at `tf.estimator`, unless TensorFlow has its own."""
    for holder in _HOLDERS:
        module = importlib.import_module(holder)
        if not hasattr(module, "estimator"):
            vars(module)["estimator"] = sys.modules[f"{holder}.estimator"] = OfferedEstimator(f"{holder}.estimator")
