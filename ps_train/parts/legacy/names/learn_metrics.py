"""contrib.learn's MetricSpec and PredictionKey, and an Estimator that evaluates further metrics."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

# What a metric function may call its arguments; the first name is today's.
_LABELS = ("labels", "label", "targets", "target")
_PREDICTIONS = ("predictions", "prediction", "logits", "logit")
_WEIGHTS = ("weights", "weight")


class PredictionKey:
    """The names of a model's predictions."""

    CLASSES = "classes"
    PROBABILITIES = "probabilities"
    LOGITS = "logits"
    LOGISTIC = "logistic"
    SCORES = "scores"
    TOP_K = "top_k"
    GENERIC = "output"


class ProblemType:
    """The kind of what a model predicts."""

    UNSPECIFIED = 0
    CLASSIFICATION = 1
    LINEAR_REGRESSION = 2
    LOGISTIC_REGRESSION = 3


def argument_names(function: Callable) -> list[str]:
    """Returns the names of a function's arguments, without those that a `functools.partial` has given it."""
    given = function.keywords if isinstance(function, functools.partial) else {}
    return [name for name in inspect.signature(function).parameters if name not in given]


class MetricSpec:
    """A metric function, and which prediction, label and weight it takes."""

    def __init__(self, metric_fn: Callable, prediction_key: str | None = None, label_key: str | None = None,
                 weight_key: str | None = None) -> None:
        """Takes a function of predictions, labels and weights by any of their names; a None key is the only tensor."""
        self.metric_fn = metric_fn
        self.prediction_key, self.label_key, self.weight_key = prediction_key, label_key, weight_key

    def create_metric_ops(self, inputs: Mapping, labels: Any, predictions: Any) -> Any:
        """Returns the value and update op of the metric; labels and predictions are a tensor or a dictionary of some.

        Args:
          inputs: name -> feature, of which one may be the weight.

        Raises:
          ValueError: a key is needed to choose a tensor.
        """
        weights = None if self.weight_key is None else inputs[self.weight_key]
        return _call(self.metric_fn, _choose(labels, self.label_key, "label_key"),
                     _choose(predictions, self.prediction_key, "prediction_key"), weights)


def _call(metric_fn: Callable, labels: Any, predictions: Any, weights: Any) -> Any:
    """Calls a metric function by the names that its arguments have; one without a name for the labels gets none."""
    parameters = inspect.signature(metric_fn).parameters.values()
    names = argument_names(metric_fn)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        names += [_LABELS[0], _PREDICTIONS[0], _WEIGHTS[0]]
    label, prediction, weight = (
        next((name for name in known if name in names), None) for known in (_LABELS, _PREDICTIONS, _WEIGHTS))
    kwargs = {} if weights is None else {weight or _WEIGHTS[0]: weights}
    if label is not None and prediction is None and label == names[0]:
        return metric_fn(labels, predictions, **kwargs)
    if label is not None:
        kwargs[label] = labels
    if prediction is None:
        return metric_fn(predictions, **kwargs)
    return metric_fn(**{prediction: predictions}, **kwargs)


def _choose(tensors: Any, key: str | None, name: str) -> Any:
    if not isinstance(tensors, dict):
        return tensors
    if key is None and len(tensors) > 1:
        raise ValueError(f"MetricSpec: {name} must be one of {', '.join(sorted(tensors))}")
    return tensors[key] if key is not None else next(iter(tensors.values()))


def as_metric(value: Any) -> Any:
    """Returns the value and update op of a metric; that of a tensor alone is the tensor's last value."""
    if not isinstance(value, tf.Tensor):
        return value
    keys = tf.GraphKeys
    shape = value.shape if value.shape.is_fully_defined() else []
    last = tf.Variable(lambda: tf.zeros(shape, value.dtype), trainable=False,
                       collections=[keys.LOCAL_VARIABLES, keys.METRIC_VARIABLES])
    return last, tf.assign(last, value)


def with_metrics(estimator: Any, metrics: Mapping[Any, Any] | None) -> Any:
    """Returns an Estimator that evaluates further metrics.

    Args:
      metrics: name -> MetricSpec; or (name, name of the prediction) -> function of predictions and labels.
    """
    if not metrics:
        return estimator
    specs = {name if isinstance(name, str) else name[0]:
             spec if isinstance(spec, MetricSpec) else MetricSpec(spec, None if isinstance(name, str) else name[1])
             for name, spec in metrics.items()}
    with_old_names = getattr(estimator, "with_old_names", lambda predictions: predictions)

    def metric_fn(features: Mapping, labels: Any, predictions: Any) -> dict:
        old = with_old_names(predictions)
        return {name: as_metric(spec.create_metric_ops(features, labels, old)) for name, spec in specs.items()}
    found = tf.estimator.add_metrics(estimator, metric_fn)
    found.without_metrics = of_learn(estimator)
    return found


def of_learn(estimator: Any) -> Any:
    """Returns the Estimator to which `with_metrics` added some, or the same one."""
    return getattr(estimator, "without_metrics", estimator)
