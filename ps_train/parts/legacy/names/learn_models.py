"""contrib.learn's models: the Estimator's, with the arguments, defaults and predictions that they had.

    the loss                 its mean over the batch; the Estimator trains on the sum
    an optimizer by default  the Estimator's learning rates are lower, or do not depend on the number of columns
    predictions              "classes" are numbers [n], and "scores" the values [n]
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.learn import Fitting
from ps_train.parts.legacy.names.learn_metrics import PredictionKey
from ps_train.parts.legacy.names.more_optimizers import clip_gradients_by_norm
from ps_train.parts.legacy.names.wrapped_columns import for_linear_model

_log = logging.getLogger(__name__)
_DNN_RATE, _LINEAR_RATE = 0.05, 0.2  # contrib.learn's
OPTIMIZERS = {
    "Adagrad": tf.train.AdagradOptimizer, "Adam": tf.train.AdamOptimizer, "Ftrl": tf.train.FtrlOptimizer,
    "Momentum": functools.partial(tf.train.MomentumOptimizer, momentum=0.9), "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer}
# Argument -> its name in the Estimator.
_TODAY = {"weight_column_name": "weight_column", "label_keys": "label_vocabulary"}
# Arguments that the Estimator has not, and that changed how it trains; those without an effect on numbers.
_DROPPED = ("enable_centered_bias", "embedding_lr_multipliers")
_WITHOUT_EFFECT = ("input_layer_min_slice_size", "_joint_linear_weights", "_joint_weight", "_joint_weights",
                   "fix_global_step_increment_bug")  # the step always counts one
# Model -> its arguments in their order.
_ORDERS = {
    "DNNClassifier": "hidden_units feature_columns model_dir n_classes weight_column_name optimizer activation_fn "
                     "dropout gradient_clip_norm enable_centered_bias config feature_engineering_fn "
                     "embedding_lr_multipliers input_layer_min_slice_size label_keys",
    "DNNRegressor": "hidden_units feature_columns model_dir weight_column_name optimizer activation_fn dropout "
                    "gradient_clip_norm enable_centered_bias config feature_engineering_fn label_dimension "
                    "embedding_lr_multipliers input_layer_min_slice_size",
    "LinearClassifier": "feature_columns model_dir n_classes weight_column_name optimizer gradient_clip_norm "
                        "enable_centered_bias _joint_weight config feature_engineering_fn label_keys",
    "LinearRegressor": "feature_columns model_dir weight_column_name optimizer gradient_clip_norm "
                       "enable_centered_bias label_dimension _joint_weights config feature_engineering_fn",
    "DNNLinearCombinedClassifier":
        "model_dir n_classes weight_column_name linear_feature_columns linear_optimizer _joint_linear_weights "
        "dnn_feature_columns dnn_optimizer dnn_hidden_units dnn_activation_fn dnn_dropout gradient_clip_norm "
        "enable_centered_bias config feature_engineering_fn embedding_lr_multipliers input_layer_min_slice_size "
        "label_keys fix_global_step_increment_bug",
    "DNNLinearCombinedRegressor":
        "model_dir weight_column_name linear_feature_columns linear_optimizer _joint_linear_weights "
        "dnn_feature_columns dnn_optimizer dnn_hidden_units dnn_activation_fn dnn_dropout gradient_clip_norm "
        "enable_centered_bias label_dimension config feature_engineering_fn embedding_lr_multipliers "
        "input_layer_min_slice_size fix_global_step_increment_bug",
}


# contrib.learn's name of a metric -> the Estimator's.
_OLD_METRICS = {
    "labels/prediction_mean": "prediction/mean", "labels/actual_label_mean": "label/mean",
    "accuracy/baseline_label_mean": "label/mean", "accuracy/threshold_0.500000_mean": "accuracy",
    "precision/positive_threshold_0.500000_mean": "precision", "recall/positive_threshold_0.500000_mean": "recall"}


# contrib.learn's name of a variable -> the Estimator's, as patterns.
_OLD_VARIABLES = (
    (r"dnn/(hiddenlayer_\d+|logits)/weights", r"dnn/\1/kernel"),
    (r"dnn/(hiddenlayer_\d+|logits)/biases", r"dnn/\1/bias"),
    (r"linear/bias_weight", r"linear/linear_model/bias_weights"),
    (r"linear/(.*)/weights?", r"linear/linear_model/\1/weights"))


def _layers(names: Sequence[str], leaf: str) -> list[str]:
    """Returns the names of the variables of a DNN's layers, in their order."""
    hidden = [name for name in names if re.fullmatch(rf"dnn/hiddenlayer_\d+/{leaf}", name)]
    return [*sorted(hidden, key=lambda name: int(re.findall(r"\d+", name)[0])), f"dnn/logits/{leaf}"]


def _variable_name(name: str, names: Sequence[str]) -> str:
    """Returns the Estimator's name of a variable for contrib.learn's, or the same if it is none."""
    for old, new in _OLD_VARIABLES:
        if (match := re.fullmatch(old, name)) and match.expand(new) in names:
            return match.expand(new)
    return name


def _optimizer(given: Any, default: str, rate: float) -> Any:
    """Returns what the Estimator takes: contrib.learn gave its learning rate to one that is a name, or left out."""
    given = given or default
    return functools.partial(OPTIMIZERS[given], rate) if isinstance(given, str) else given


def _clipping(optimizer: Any, clip_norm: float | None) -> Any:
    """Returns an optimizer, or a function that makes one, whose gradients are clipped together to a norm."""
    if not clip_norm:
        return optimizer
    make = (lambda: optimizer) if isinstance(optimizer, tf.train.Optimizer) else optimizer
    return lambda: clip_gradients_by_norm(make(), clip_norm)


def _engineered(model_fn: Callable, engineer: Callable) -> Callable:
    """Returns a model's function that gets the features and labels which another function makes of them."""
    def call(features: Any, labels: Any, mode: str, config: Any) -> Any:
        features, labels = engineer(features, labels)
        return model_fn(features=features, labels=labels, mode=mode, config=config)
    return call


def _by_columns(columns: list | None) -> float:
    """Returns the learning rate of a linear model of so many columns."""
    return min(_LINEAR_RATE, 1 / math.sqrt(len(columns))) if columns else _LINEAR_RATE


class OldNames:
    """An Estimator whose variables have contrib.learn's names, too."""

    def get_variable_value(self, name: str) -> np.ndarray:
        """Returns a variable's value, by today's name or contrib.learn's, such as "linear/age/weight"."""
        names = self.get_variable_names()  # type: ignore[attr-defined]
        return super().get_variable_value(  # type: ignore[misc]
            name if name in names else _variable_name(name, names))


class _Model(OldNames, Fitting):
    """The constructor and the predictions of contrib.learn's models."""

    default_output: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        model = type(self).__name__.removeprefix("Learn")
        order = _ORDERS[model].split()
        if len(args) > len(order):
            raise TypeError(f"{model}: got {len(args)} arguments by position; it has {len(order)}")
        kwargs.update(zip(order, args))
        if dropped := [name for name in _DROPPED if kwargs.pop(name, None)]:
            _log.warning("tf.contrib.learn.%s: %s has no effect, because the Estimator has no such argument", model,
                         ", ".join(dropped))
        clip_norm, engineer = kwargs.pop("gradient_clip_norm", None), kwargs.pop("feature_engineering_fn", None)
        given = {_TODAY.get(name, name): list(value) if name.endswith("feature_columns") else value
                 for name, value in kwargs.items() if value is not None and name not in _WITHOUT_EFFECT}
        linear = "feature_columns" if model.startswith("Linear") else "linear_feature_columns"
        if linear in given:
            given[linear] = for_linear_model(given[linear])
        given.update((name, _clipping(optimizer, clip_norm)) for name, optimizer in _optimizers(model, given).items())
        given.setdefault("loss_reduction", tf.losses.Reduction.SUM_OVER_BATCH_SIZE)
        self._has_words, self._has_weights = "label_vocabulary" in given, "weight_column" in given
        super().__init__(**given)
        self._head = inspect.getclosurevars(self._model_fn).nonlocals["head"]
        if engineer is not None:
            self._model_fn = _engineered(self._model_fn, engineer)

    @property
    def params(self) -> dict[str, Any]:
        """What the model's function got: of that the head, for scripts that set its `_thresholds`."""
        return {"head": self._head}

    @property
    def weights_(self) -> Any:
        """The kernels of a DNN, in their order; those of a linear model by contrib.learn's names, or its only one."""
        names = self.get_variable_names()
        if "linear/linear_model/bias_weights" not in names:
            return [self.get_variable_value(name) for name in _layers(names, "kernel")]
        found = {re.sub(r"linear_model/(.*)weights$", r"\1weight", name): self.get_variable_value(name)
                 for name in names if re.fullmatch(r"linear/linear_model/.*/weights", name)}
        return next(iter(found.values())) if len(found) == 1 else found

    @property
    def bias_(self) -> Any:
        """The biases of a DNN, in the order of its layers, or the bias of a linear model."""
        names = self.get_variable_names()
        if "linear/linear_model/bias_weights" in names:
            return self.get_variable_value("linear/linear_model/bias_weights")
        return [self.get_variable_value(name) for name in _layers(names, "bias")]

    def evaluate(self, *args: Any, **kwargs: Any) -> dict:  # type: ignore[override]
        """Evaluates; returns the metrics by contrib.learn's names, too. `loss` is the mean over the sum of weights."""
        found = super().evaluate(*args, **kwargs)
        if self._has_weights:
            found["loss"] = found["average_loss"]
        return {**{old: found[name] for old, name in _OLD_METRICS.items() if name in found}, **found}

    def predict(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                outputs: Any = None, as_iterable: bool = True, **kwargs: Any) -> Any:
        """Yields the class or the value of each example; with `outputs`, a dictionary of those predictions."""
        if not outputs:
            return self._only(self.default_output, x, input_fn, batch_size, as_iterable, **kwargs)
        return super().predict(x, input_fn, batch_size, outputs, as_iterable, **kwargs)

    def _only(self, key: str, x: Any, input_fn: Any, batch_size: Any, as_iterable: bool, **kwargs: Any) -> Any:
        found = super().predict(x, input_fn, batch_size, [key], as_iterable, **kwargs)
        return (each[key] for each in found) if as_iterable else found[key]

    def predictions(self, *args: Any, **kwargs: Any) -> Iterator[dict]:
        """Yields all predictions of each example, by contrib.learn's names."""
        for each in super().predictions(*args, **kwargs):
            if "class_ids" in each:
                each["classes"] = each["classes" if self._has_words else "class_ids"][0]
            if "predictions" in each:
                values = each.pop("predictions")
                each["scores"] = values[0] if len(values) == 1 else values
            yield each

    def with_old_names(self, predictions: dict) -> dict:
        """Returns the predictions of a batch, tensors, by contrib.learn's names."""
        old = dict(predictions)
        if "class_ids" in old:
            old["classes"] = tf.squeeze(old["classes" if self._has_words else "class_ids"], axis=1)
        if "predictions" in old:
            values = old.pop("predictions")
            old["scores"] = tf.squeeze(values, axis=1) if values.shape[1] == 1 else values
        return old


def _optimizers(model: str, given: dict) -> dict:
    """Returns the arguments that are optimizers."""
    if model.startswith("DNNLinear"):
        rate = _by_columns(given.get("linear_feature_columns"))
        return {"dnn_optimizer": _optimizer(given.get("dnn_optimizer"), "Adagrad", _DNN_RATE),
                "linear_optimizer": _optimizer(given.get("linear_optimizer"), "Ftrl", rate)}
    if model.startswith("DNN"):
        return {"optimizer": _optimizer(given.get("optimizer"), "Adagrad", _DNN_RATE)}
    # One that is given by its name has the same rate for any number of columns.
    rate = _LINEAR_RATE if given.get("optimizer") else _by_columns(given.get("feature_columns"))
    return {"optimizer": _optimizer(given.get("optimizer"), "Ftrl", rate)}


class _Classifier(_Model):
    """The predictions of classifiers."""

    default_output = PredictionKey.CLASSES

    def predict_classes(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                        as_iterable: bool = True) -> Any:
        """Yields the class of each example."""
        return self._only(PredictionKey.CLASSES, x, input_fn, batch_size, as_iterable)

    def predict_proba(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                      as_iterable: bool = True) -> Any:
        """Yields the probability of each class, [classes], for each example."""
        return self._only(PredictionKey.PROBABILITIES, x, input_fn, batch_size, as_iterable)


class _Regressor(_Model):
    """The predictions of regressors."""

    default_output = PredictionKey.SCORES

    def predict_scores(self, x: Any = None, input_fn: Callable | None = None, batch_size: int | None = None,
                       as_iterable: bool = True) -> Any:
        """Yields the value of each example, or its values [label_dimension]."""
        return self._only(PredictionKey.SCORES, x, input_fn, batch_size, as_iterable)


# The Estimator refuses a class that overrides its methods itself, so these are of base classes.
(LearnDNNClassifier, LearnDNNRegressor, LearnLinearClassifier, LearnLinearRegressor, LearnDNNLinearCombinedClassifier,
 LearnDNNLinearCombinedRegressor) = (
    type(f"Learn{name}", (_Classifier if name.endswith("Classifier") else _Regressor, getattr(tf.estimator, name)), {})
    for name in _ORDERS)
