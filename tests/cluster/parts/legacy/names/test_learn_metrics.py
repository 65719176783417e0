"""MetricSpec of contrib.learn: what a metric function is called with."""

from __future__ import annotations

import functools

import pytest

from ps_train.parts.legacy.names import learn_metrics

TENSORS = {"classes": "c", "scores": "s"}


def call(metric_fn, weight_key=None):
    """Returns what the function returns for labels "l", predictions "s" and weights "w"."""
    spec = learn_metrics.MetricSpec(metric_fn, "scores", weight_key=weight_key)
    return spec.create_metric_ops({"weight": "w"}, "l", TENSORS)


@pytest.mark.parametrize("metric_fn", [
    lambda predictions, labels: (predictions, labels), lambda labels, predictions: (predictions, labels),
    lambda predictions, targets: (predictions, targets), lambda logits, label: (logits, label),
    lambda labels, x: (x, labels), lambda x, target=None: (x, target),
    lambda **named: (named["predictions"], named["labels"]),
    functools.partial(lambda k, predictions, labels: (predictions, labels), k=3),
    functools.partial(lambda labels, predictions, weights=None: (predictions, labels), weights="own")])
def test_labels_and_predictions_have_several_names(metric_fn):
    """In any order; what has no such name is given by its place."""
    assert call(metric_fn) == ("s", "l")


def test_a_metric_of_predictions_alone():
    """It gets no labels."""
    assert call(lambda predictions: predictions) == call(lambda values: values) == "s"


def test_weights_are_a_feature():
    """By either of their names, and only if there is a key."""
    assert call(lambda predictions, labels, weight=None: weight, "weight") == "w"
    assert call(lambda values, weights=None: weights, "weight") == "w"
    assert call(lambda predictions, labels, weights=None: weights) is None


def test_a_key_is_needed_to_choose_among_several():
    """And none for a single tensor."""
    spec = learn_metrics.MetricSpec(lambda predictions, labels: predictions)
    with pytest.raises(ValueError, match="MetricSpec: prediction_key must be one of classes, scores"):
        spec.create_metric_ops({}, "l", TENSORS)
    assert spec.create_metric_ops({}, "l", {"only": "o"}) == "o" and spec.prediction_key is None
