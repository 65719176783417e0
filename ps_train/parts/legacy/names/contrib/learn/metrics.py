"""contrib.learn.MetricSpec: metrics beside those of the model, chosen by the names of predictions and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf


class PredictionKey:
    """The names of a model's predictions."""

    CLASSES = "classes"
    PROBABILITIES = "probabilities"
    LOGITS = "logits"
    LOGISTIC = "logistic"
    SCORES = "predictions"


class ProblemType:
    """The kind of what a model predicts."""

    UNSPECIFIED = 0
    CLASSIFICATION = 1
    LINEAR_REGRESSION = 2
    LOGISTIC_REGRESSION = 3


class MetricSpec:
    """A metric function, and which prediction, label and weight it takes."""

    def __init__(self, metric_fn: Callable, prediction_key: str | None = None, label_key: str | None = None,
                 weight_key: str | None = None) -> None:
        """Takes a function of `predictions`, `labels` and `weights`; a key of None is the only tensor that there is."""
        self._metric_fn = metric_fn
        self._keys = (prediction_key, label_key, weight_key)

    def create_metric_ops(self, inputs: Mapping, labels: Any, predictions: Any) -> Any:
        """Returns the value and update op of the metric.

        Args:
          inputs: name -> feature, of which one may be the weight.
          labels: a tensor, or a dictionary of tensors.
          predictions: the same.

        Raises:
          ValueError: a key is needed to choose a tensor.
        """
        prediction_key, label_key, weight_key = self._keys
        if prediction_key == PredictionKey.CLASSES and "class_ids" in predictions:
            predictions, prediction_key = tf.squeeze(predictions["class_ids"], axis=1), None
        weights = {} if weight_key is None else {"weights": inputs[weight_key]}
        return self._metric_fn(predictions=_choose(predictions, prediction_key, "prediction_key"),
                               labels=_choose(labels, label_key, "label_key"), **weights)


def _choose(tensors: Any, key: str | None, name: str) -> Any:
    if not isinstance(tensors, dict):
        return tensors
    if key is None and len(tensors) > 1:
        raise ValueError(f"MetricSpec: {name} must be one of {', '.join(sorted(tensors))}")
    return tensors[key] if key is not None else next(iter(tensors.values()))


def with_metrics(estimator: Any, metrics: Mapping[Any, Any] | None) -> Any:
    """Returns an Estimator that evaluates further metrics.

    Args:
      estimator: the Estimator.
      metrics: name -> MetricSpec; or (name, name of the prediction) -> function of predictions and labels.
    """
    if not metrics:
        return estimator
    specs = {name if isinstance(name, str) else name[0]:
             spec if isinstance(spec, MetricSpec) else MetricSpec(spec, None if isinstance(name, str) else name[1])
             for name, spec in metrics.items()}

    def metric_fn(features: Mapping, labels: Any, predictions: Any) -> dict:
        return {name: spec.create_metric_ops(features, labels, predictions) for name, spec in specs.items()}
    return tf.estimator.add_metrics(estimator, metric_fn)
