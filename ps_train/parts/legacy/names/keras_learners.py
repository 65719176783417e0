"""`keras.wrappers.scikit_learn`: a function that builds a Keras model, as an estimator of scikit-learn.

    KerasClassifier(build_fn=make_model, units=8, epochs=5).fit(x, y).predict(x)

A parameter is an argument of `build_fn`, or of the model's `fit`, `predict` and `evaluate`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

_TODAY = {"nb_epoch": "epochs"}  # of Keras 1


@functools.cache
def _bases(kind: str) -> tuple[type, ...]:
    """Returns the classes by which today's scikit-learn knows an estimator of a kind; none if it is not installed."""
    try:
        from sklearn import base  # noqa: PLC0415 (only these jobs need it)
    except ImportError:
        return ()
    return getattr(base, f"{kind}Mixin"), base.BaseEstimator


class _Learner:
    """Builds a model by `build_fn`, by a subclass that can be called, or takes it from one's `__call__`."""

    def __init__(self, build_fn: Callable | None = None, **sk_params: Any) -> None:
        """Keeps the parameters; raises ValueError for one that no function takes."""
        self.build_fn, self.sk_params = build_fn, sk_params
        self.check_params(sk_params)

    @property
    def _builder(self) -> Callable:
        return self.__call__ if self.build_fn is None else self.build_fn  # type: ignore[operator]

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raises ValueError for a parameter that neither the builder nor a method of the model takes."""
        model = tf.keras.Sequential
        takers = [self._builder, model.fit, model.predict, model.evaluate]
        for name in params:
            if not any(_takes(taker, _TODAY.get(name, name)) for taker in takers):
                raise ValueError(f"{name!r} is not a parameter of build_fn, nor of fit, predict or evaluate")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns all parameters, `build_fn` among them."""
        del deep
        return {**self.sk_params, "build_fn": self.build_fn}

    def set_params(self, **params: Any) -> Any:
        """Changes some parameters."""
        self.check_params({name: value for name, value in params.items() if name != "build_fn"})
        self.build_fn = params.pop("build_fn", self.build_fn)
        self.sk_params.update(params)
        return self

    def fit(self, x: Any, y: Any, **kwargs: Any) -> Any:
        """Builds the model, trains it with `x` [n, ...] and `y` [n, ...], and returns its history."""
        self.model = self._builder(**self._of(self._builder))
        if self.model.loss in ("categorical_crossentropy", tf.keras.losses.categorical_crossentropy) and np.ndim(y) < 2:
            y = tf.keras.utils.to_categorical(y)
        return self.model.fit(x, y, **{**self._of(self.model.fit), **kwargs})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model")

    def _of(self, function: Callable, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns those of the parameters and of what is given that a function takes."""
        named = {_TODAY.get(name, name): value for name, value in {**self.sk_params, **(given or {})}.items()}
        return {name: value for name, value in named.items() if _takes(function, name)}


def _takes(function: Callable, name: str) -> bool:
    return name in inspect.signature(function).parameters


class _Classes(_Learner):
    """What a classifier has besides."""

    def fit(self, x: Any, y: Any, sample_weight: Any = None, **kwargs: Any) -> Any:
        """Trains with the classes `y`, of any type [n], or one-hot [n, classes]; returns the history."""
        y = np.array(y)
        is_one_hot = y.ndim == 2 and y.shape[1] > 1
        self.classes_ = np.arange(y.shape[1]) if is_one_hot else np.unique(y)
        self.n_classes_ = len(self.classes_)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return super().fit(x, y if is_one_hot else np.searchsorted(self.classes_, y), **weights, **kwargs)

    def predict(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Returns the class of each example, [n]; [n, 1] of a model with one output, as Keras 2.2 did."""
        chances = self.model.predict(x, **self._of(self.model.predict, kwargs))
        return self.classes_[chances.argmax(-1) if chances.shape[-1] > 1 else (chances > 0.5).astype(int)]

    def predict_proba(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Returns the chance of each class, [n, classes]."""
        chances = self.model.predict(x, **self._of(self.model.predict, kwargs))
        return np.hstack([1 - chances, chances]) if chances.shape[1] == 1 else chances

    def score(self, x: Any, y: Any, **kwargs: Any) -> float:
        """Returns the accuracy; raises ValueError if the model was compiled without it."""
        y = np.array(y)
        y = y if y.ndim == 2 and y.shape[1] > 1 else np.searchsorted(self.classes_, y)
        if self.model.loss in ("categorical_crossentropy", tf.keras.losses.categorical_crossentropy) and y.ndim < 2:
            y = tf.keras.utils.to_categorical(y, self.n_classes_)
        values = self.model.evaluate(x, y, **self._of(self.model.evaluate, kwargs))
        found = dict(zip(self.model.metrics_names, np.atleast_1d(values)))
        for name in ("accuracy", "acc"):
            if name in found:
                return float(found[name])
        raise ValueError("KerasClassifier.score: the model has no accuracy; give compile() metrics=['accuracy']")


class _Numbers(_Learner):
    """What a regressor has besides."""

    def predict(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Returns the number of each example, [n], or [n, outputs]."""
        found = self.model.predict(x, **self._of(self.model.predict, kwargs))
        return found.squeeze(-1) if found.shape[-1] == 1 else found

    def score(self, x: Any, y: Any, **kwargs: Any) -> float:
        """Returns the loss, with its sign changed, so that more is better."""
        return -float(np.atleast_1d(self.model.evaluate(x, y, **self._of(self.model.evaluate, kwargs)))[0])


class KerasClassifier(_Classes, *_bases("Classifier")):  # type: ignore[misc]
    """A classifier."""


class KerasRegressor(_Numbers, *_bases("Regressor")):  # type: ignore[misc]
    """A regressor."""


BaseWrapper = _Learner
