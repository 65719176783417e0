"""Makes PyPI's tensorflow-estimator 2.15.0 importable on TensorFlow 2.16 and later, and puts it at tf.estimator.

    install_estimator --> substitutes for what the package imports and TensorFlow has removed
                      --> tf.estimator, tf.compat.v1.estimator, `import tensorflow.estimator`, ...

A plug-in of `ps_train train` finds a module at tf.estimator that does this on first use: `offer_estimator`.

TensorFlow 2.14 and 2.15 bring the package themselves; there only the importable names change.
The package is the last release of the original code. Nothing of it is rewritten here. A substitute raises
NotImplementedError for what it cannot do, and names what is missing. Training on parameter servers uses none of that.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any, Callable, NoReturn

import tensorflow as tf
from tensorflow.python.util import tf_export

from ps_train.errors import ConfigError

_PACKAGE = "tensorflow_estimator.python.estimator"
_HOLDERS = ("tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2")
_COMMAND = "pip install 'ps_train[estimator]'"


class _OfferedEstimator(types.ModuleType):
    """Stands where Estimator's API will be."""

    def __getattr__(self, name: str) -> Any:
        """Loads Estimator, and returns a name of it; raises ConfigError if a package that it needs is not installed."""
        if name.startswith("__"):
            raise AttributeError(name)
        install_estimator()
        return getattr(sys.modules[self.__name__], name)


def offer_estimator() -> None:
    """Puts a module that loads itself on first use at `tf.estimator`, unless TensorFlow has its own."""
    for holder in _HOLDERS:
        module = importlib.import_module(holder)
        if not hasattr(module, "estimator"):
            vars(module)["estimator"] = sys.modules[f"{holder}.estimator"] = _OfferedEstimator(f"{holder}.estimator")


def install_estimator() -> types.ModuleType:
    """Puts Estimator's API of TensorFlow 2 at `tf.estimator`, and that of TensorFlow 1 at `tf.compat.v1.estimator`.

    Returns:
      The API of TensorFlow 1.

    Raises:
      ConfigError: tensorflow-estimator or tf_keras is not installed, or TensorFlow was imported with Keras 3.
    """
    if _lacks_estimator(tf):
        _check_installed()
    if _is_keras_3():
        raise ConfigError("tf.estimator needs Keras 2, and tf.keras is Keras 3 here; set TF_USE_LEGACY_KERAS=1 before "
                          "TensorFlow is imported, or leave that to `python -m ps_train`")
    apis = _import_apis()
    for name, api in apis.items():
        for module in _modules(name):
            if _lacks_estimator(module):
                module.estimator = api
        sys.modules[f"{name}.estimator"] = api
    return apis["tensorflow.compat.v1"]


def _lacks_estimator(module: types.ModuleType) -> bool:
    return isinstance(getattr(module, "estimator", None), (type(None), _OfferedEstimator))


def _modules(name: str) -> list[types.ModuleType]:
    """Returns the modules of that name: `tf.compat.v1` need not be the same object as the imported module."""
    module: types.ModuleType = tf
    for part in name.split(".")[1:]:
        module = getattr(module, part)
    return [module, importlib.import_module(name)]


def _check_installed() -> None:
    """Raises ConfigError, with the command that helps, if a package that Estimator needs is not installed."""
    for package in ("tensorflow_estimator", "tf_keras"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"tf.estimator: this TensorFlow has no Estimator, and {package} is not installed; "
                              f"{_COMMAND}")


def _is_keras_3() -> bool:
    return getattr(tf.keras, "__version__", "2").startswith("3.")  # tf_keras gives no version there


def _import_apis() -> dict[str, types.ModuleType]:
    """Returns module of TensorFlow -> the API that it has."""
    _add_missing_modules()
    v1, v2 = (importlib.import_module(f"{_PACKAGE}.api._{version}.estimator") for version in ("v1", "v2"))
    return {"tensorflow": v2, "tensorflow.compat.v1": v1, "tensorflow.compat.v2": v2}


_TPU_MODULES = ("session_support", "tpu_embedding", "tpu_embedding_gradient")


def _add_missing_modules() -> None:
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
