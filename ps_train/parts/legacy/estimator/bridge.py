"""Makes PyPI's tensorflow-estimator 2.15.0 importable on TensorFlow 2.16 and later, and puts it at tf.estimator.

    install() --> substitutes.py: what the package imports and TensorFlow has no longer
              --> tf.estimator, tf.compat.v1.estimator, `import tensorflow.estimator`, ...

TensorFlow 2.14 and 2.15 bring the package themselves; there `install` changes nothing but the importable names.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types

from ps_train.errors import ConfigError
from ps_train.plugins import estimator_offer

_PACKAGE = "tensorflow_estimator.python.estimator"
_COMMAND = "pip install 'ps_train[estimator]'"


def install_estimator() -> types.ModuleType:
    """Puts Estimator's API of TensorFlow 2 at `tf.estimator`, and that of TensorFlow 1 at `tf.compat.v1.estimator`.

    Returns:
      The API of TensorFlow 1.

    Raises:
      ConfigError: tensorflow-estimator or tf_keras is not installed, or TensorFlow was imported with Keras 3.
    """
    import tensorflow as tf  # noqa: PLC0415 (the caller decides when TensorFlow is imported)

    if _lacks_estimator(tf):
        _check_installed()
    if _is_keras_3(tf):
        raise ConfigError("tf.estimator needs Keras 2, and tf.keras is Keras 3 here; set TF_USE_LEGACY_KERAS=1 before "
                          "TensorFlow is imported, or leave that to `python -m ps_train`")
    apis = _import_apis()
    for name, api in apis.items():
        for module in _modules(tf, name):
            if _lacks_estimator(module):
                module.estimator = api
        sys.modules[f"{name}.estimator"] = api
    return apis["tensorflow.compat.v1"]


def _lacks_estimator(module: types.ModuleType) -> bool:
    return isinstance(getattr(module, "estimator", None), (type(None), estimator_offer.OfferedEstimator))


def _modules(tf: types.ModuleType, name: str) -> list[types.ModuleType]:
    """Returns the modules of that name: `tf.compat.v1` need not be the same object as the imported module."""
    found: types.ModuleType = tf
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return [found, importlib.import_module(name)]


def _check_installed() -> None:
    """Raises ConfigError, with the command that helps, if a package that Estimator needs is not installed."""
    for package in ("tensorflow_estimator", "tf_keras"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"tf.estimator: this TensorFlow has no Estimator, and {package} is not installed; "
                              f"{_COMMAND}")


def _is_keras_3(tf: types.ModuleType) -> bool:
    return getattr(tf.keras, "__version__", "2").startswith("3.")  # tf_keras gives no version there


def _import_apis() -> dict[str, types.ModuleType]:
    """Returns module of TensorFlow -> the API that it has."""
    from ps_train.parts.legacy.estimator import substitutes  # noqa: PLC0415 (it imports TensorFlow)

    substitutes.add_missing_modules()
    v1, v2 = (importlib.import_module(f"{_PACKAGE}.api._{version}.estimator") for version in ("v1", "v2"))
    return {"tensorflow": v2, "tensorflow.compat.v1": v1, "tensorflow.compat.v2": v2}
