"""TensorFlow 1's canned Estimators with an optimizer of Keras, which they refused: then they are those of TensorFlow 2.

    DNNClassifier(..., optimizer=tf.keras.optimizers.Adam(0.01))      or the class: that of TensorFlow 2 from the start
    DNNClassifier(..., optimizer=lambda: tf.keras.optimizers.Adam())  from the moment that it asks for the optimizer

From TensorFlow 2.0 to 2.15 `tf.estimator.DNNClassifier` was another class than in TensorFlow 1, DNNClassifierV2: it
takes optimizers of Keras, its layers are Keras's, and its loss is a mean, not a sum. A script that gives such an
optimizer means that class; the Estimator's last release has both.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v2 as tf

_KINDS = ("Baseline", "DNN", "DNNLinearCombined", "Linear")
_TASKS = ("Classifier", "Estimator", "Regressor")
_METHODS = ("train", "evaluate", "predict", "export_saved_model", "export_savedmodel",
            "experimental_export_all_saved_models")


class KerasOptimizerError(ValueError):
    """A function that is given as optimizer has made one of Keras."""


def take_keras_optimizers(old: types.ModuleType, new: types.ModuleType) -> None:
    """Lets the classes of `old`, the Estimator's API of TensorFlow 1, become those of `new`, of TensorFlow 2."""
    from tensorflow_estimator.python.estimator import estimator  # noqa: PLC0415 (the package is there now)
    from tensorflow_estimator.python.estimator.canned import optimizers  # noqa: PLC0415

    if hasattr(optimizers.get_optimizer_instance, "__wrapped__"):  # done before
        return
    optimizers.get_optimizer_instance = _refusing_keras(optimizers.get_optimizer_instance)
    for method in _METHODS:
        setattr(estimator.Estimator, method, _trying_both(getattr(estimator.Estimator, method)))
    for name in (kind + task for kind in _KINDS for task in _TASKS):
        kind = getattr(old, name)
        kind.__init__ = _with_another(kind.__init__, getattr(new, name))


def _with_another(init: Callable, new: type) -> Callable:
    """Returns a constructor that knows the class of TensorFlow 2, and takes its state if the optimizer is Keras's."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        if any(map(_is_of_keras, (*args, *kwargs.values()))):
            vars(self).update(vars(new(*args, **kwargs)))
        else:
            init(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs).arguments
            given.pop("self")
            self._make_another = functools.partial(new, **given)
    return construct


def _is_of_keras(value: Any) -> bool:
    """Returns whether a value is an optimizer of Keras, or a class of them."""
    kinds = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)
    return isinstance(value, kinds) or (isinstance(value, type) and issubclass(value, kinds))


def _refusing_keras(get_instance: Callable) -> Callable:
    """Returns the function by which a model of TensorFlow 1 gets its optimizer; it has an error for those of Keras."""
    @functools.wraps(get_instance)
    def get(opt: Any, learning_rate: float | None = None) -> Any:
        made = opt() if callable(opt) and not isinstance(opt, str) else opt
        if _is_of_keras(made):
            raise KerasOptimizerError(f"got {type(made).__name__} of Keras as optimizer; allowed: one of tf.train")
        return get_instance(made, learning_rate)
    return get


def _trying_both(method: Callable) -> Callable:
    """Returns a method that runs again, with the model of TensorFlow 2, if an optimizer turns out to be Keras's.

    It is asked for while the graph is built, so nothing has run; the second run builds another graph.
    """
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except KerasOptimizerError:
            if not _became_another(self):
                raise
        return method(self, *args, **kwargs)

    @functools.wraps(method)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return (yield from method(self, *args, **kwargs))
        except KerasOptimizerError:
            if not _became_another(self):
                raise
        yield from method(self, *args, **kwargs)
    return generate if inspect.isgeneratorfunction(method) else call


def _became_another(estimator: Any) -> bool:
    """Gives an estimator the model of TensorFlow 2; returns whether there is one that it has not yet."""
    make = vars(estimator).pop("_make_another", None)
    if make is None:
        return False
    estimator._model_fn = make(model_dir=estimator.model_dir, config=estimator.config)._model_fn  # noqa: SLF001
    return True
