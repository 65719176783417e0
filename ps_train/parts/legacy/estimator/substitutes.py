"""Substitutes for the modules that tensorflow-estimator imports and that TensorFlow 2.16 and later have removed.

Each one is honest: what it cannot do raises NotImplementedError and names what is missing. Training on parameter
servers uses none of it.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any, Callable, NoReturn

from tensorflow.python.util import tf_export

_TPU_MODULES = ("session_support", "tpu_embedding", "tpu_embedding_gradient")


def add_missing_modules() -> None:
    """Puts a substitute into sys.modules for each module that this TensorFlow has not."""
    _add_unless_importable("tensorflow.python.distribute.estimator_training", _distribute_coordinator)
    for name in _TPU_MODULES:
        _add_unless_importable(f"tensorflow.python.tpu.{name}", _AnyClass)
    if not hasattr(tf_export, "ESTIMATOR_API_NAME"):
        name = "tensorflow_estimator.python.estimator.estimator_export"
        sys.modules.setdefault(name, _export_decorator(name))


def _add_unless_importable(name: str, make: Callable[[str], types.ModuleType]) -> None:
    try:
        importlib.import_module(name)
    except ImportError:
        sys.modules[name] = make(name)


def _distribute_coordinator(name: str) -> types.ModuleType:
    """Returns the module that runs Estimators under tf.distribute strategies: here, under none."""
    module = types.ModuleType(name)
    module.init_run_config = _init_run_config
    module.should_run_distribute_coordinator = lambda config: False
    for function in ("train_and_evaluate", "estimator_train", "estimator_evaluate"):
        setattr(module, function, _refusing("a tf.distribute strategy"))
    return module


def _init_run_config(config: Any, tf_config: Any) -> None:
    """Does what the removed function does for a RunConfig without a tf.distribute strategy."""
    asked_for = ("_train_distribute", "_eval_distribute", "_experimental_distribute")
    if any(getattr(config, name, None) is not None for name in asked_for):
        _refusing("a tf.distribute strategy")()
    config._distribute_coordinator_mode = None  # noqa: SLF001 (Estimator reads it)


def _refusing(what: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"Estimator with {what} needs TensorFlow 2.15 or older; train on parameter servers, "
                                  "or give RunConfig no strategy")

    return refuse


class _AnyClass(types.ModuleType):
    """A module that has every class; none of them can be created."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init__": _refusing(f"{self.__name__}.{name}")})
        setattr(self, name, made)
        return made


def _export_decorator(name: str) -> types.ModuleType:
    """Returns the module of the decorator that notes public names for TensorFlow's API generator."""
    module = types.ModuleType(name)

    class estimator_export:  # noqa: N801 (its name in the package)
        def __init__(self, *names: str, v1: Any = None) -> None:
            pass

        def __call__(self, exported: Any) -> Any:
            return exported

        def export_constant(self, module_name: str, constant: str) -> None:
            pass

    module.estimator_export = estimator_export
    return module
